"""One GRPO step at the shape of Qwen2-1.5B: seconds per phase, tokens per second, peak memory, engine against trainer.

    python -m benchmarks.grpo_step --steps 8

Random weights of a real shape (a model that knows nothing costs what one that knows something does; nothing is downloaded).
A random model never ends its text, so every completion has all its tokens. The reward is arbitrary, and differs within groups.
The first steps compile, so figures are medians over the later ones. ``--small`` is the same on a CPU, to try the script.
"""

import argparse
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import workbench as wb
from benchmarks.common import write

SHAPES = {
    "qwen2-1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
    "small": {
        "vocab_size": 512,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
CHARACTERS = "abcdefghijklmnopqrstuvwxyz "


def make_model(folder: Path, shape: str) -> Path:
    """A Qwen2 of random weights, with a tokenizer that reads letters and writes words."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    config = Qwen2Config(
        **SHAPES[shape], max_position_embeddings=4096, tie_word_embeddings=True, eos_token_id=1, pad_token_id=0, bos_token_id=None
    )
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.manual_seed(0)
        model = Qwen2ForCausalLM(config).to(dtype)
    model.save_pretrained(folder)
    words = ["<pad>", "<eos>", *CHARACTERS]
    words += [f"w{i} " for i in range(len(words), config.vocab_size)]  # whatever is sampled is text
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<pad>"))
    core.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)
    return folder


def reward(prompt: str, completion: str, answer: Any) -> float:
    """Arbitrary, deterministic, and different within a group."""
    return sum(completion.encode()) % 97 / 97


def measure(arguments: argparse.Namespace, model: Path) -> dict[str, Any]:
    """Run the steps and take medians over all but the first ``arguments.skip``."""
    import torch

    run = wb.Run(**settings(arguments, model), runtime="inline", name="benchmark")
    began = time.monotonic()
    for step in run.train(arguments.steps):
        print(step, {name: round(seconds, 3) for name, seconds in step.phase_seconds.items()}, flush=True)
    steps = run.steps[arguments.skip :]
    syncs = [e.record for e in run.events if e.kind == "sync"][-len(steps) :]
    seconds = {name: median(s.phase_seconds[name] for s in steps) for name in steps[0].phase_seconds}
    figures = {
        "what": "GRPO, LoRA r16 all-linear, adapter mode, engine and trainer on one device in one process",
        "shape": {"model": arguments.shape, **{k: getattr(arguments, k) for k in ("prompts", "group", "prompt_tokens", "tokens")}},
        "steps": {"measured": len(steps), "skipped": arguments.skip, "seconds": [round(s.seconds, 3) for s in run.steps]},
        "seconds_per_step": median(s.seconds for s in steps),
        "phase_seconds": seconds,
        "tokens_per_second": {
            "rollout": median(s.tokens_completion / s.phase_seconds["rollout"] for s in steps),
            "train": median(s.tokens_trained / s.phase_seconds["update_actor"] for s in steps),
        },
        "sync": {
            "seconds": median(s.seconds for s in syncs),
            "proof_seconds": median(s.proof_seconds for s in syncs),
            "bytes": syncs[-1].bytes,
        },
        "logprob_diff": {"max": max(s.logprob_diff_max for s in steps), "mean": median(s.logprob_diff_mean for s in steps)},
        "peak_memory_gib": max(e.record.peak_gib for e in run.events if e.kind == "memory"),
        "start_seconds": next(e.record.seconds for e in run.events if e.kind == "engine_ready"),
        "all_seconds": time.monotonic() - began,
        "stop_seconds": time_to_stop(run),
    }
    run.close()
    return figures | {"memory_after_close_gib": torch.cuda.memory_allocated() / 2**30 if torch.cuda.is_available() else None}


def time_to_stop(run: wb.Run) -> float:
    """Seconds from ``stop()`` in the middle of a rollout until the run rests."""
    run.start(1000)
    while run.state != "running":
        time.sleep(0.05)
    time.sleep(1.0)
    began = time.monotonic()
    run.stop()
    return time.monotonic() - began


def read(parser: argparse.ArgumentParser, name: str, steps: int) -> argparse.Namespace:
    """The command line of a measurement of this step. ``name``: of its result; ``steps``: that are made."""
    parser.add_argument("--shape", default="qwen2-1.5b", choices=SHAPES)
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--skip", type=int, default=2)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--memory-share", type=float, default=0.4)
    parser.add_argument("--small", action="store_true", help="a small model and few tokens, for a CPU")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--name", default=name)
    arguments = parser.parse_args()
    if arguments.small:
        arguments.shape, arguments.prompts, arguments.tokens, arguments.prompt_tokens = "small", 8, 16, 16
    return arguments


def settings(arguments: argparse.Namespace, model: Path) -> dict[str, Any]:
    """What every run of a measurement is made with, whatever its map."""
    from random import Random

    rng = Random(0)
    texts = ["".join(rng.choice(CHARACTERS) for _ in range(arguments.prompt_tokens)) for _ in range(1024)]
    return {
        "task": wb.tasks.from_list([(text, "") for text in texts], scorer=reward),
        "model": model,
        "algo": wb.GRPO(group_size=arguments.group),
        "lora": wb.LoRA(rank=16, alpha=32),
        "sampling": wb.Sampling(prompts=arguments.prompts, max_tokens=arguments.tokens),
        "optimizer": wb.Optimizer(learning_rate=1e-5),
        "engine": wb.VLLM(window=arguments.prompt_tokens + arguments.tokens, memory_share=arguments.memory_share),
        "held_out": 0,
        "folder": tempfile.mkdtemp(),
    }


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments = read(parser, "grpo_step_h200", steps=8)
    with tempfile.TemporaryDirectory() as folder:
        write(arguments.name, measure(arguments, make_model(Path(folder), arguments.shape)), arguments.out)


if __name__ == "__main__":
    main()
