"""A reward model at the shape of Qwen2-1.5B in bfloat16 and in eight bits: rows per second, memory, and how near its scores stay.

    python -m benchmarks.reward_model
    python -m benchmarks.reward_model --small      # on a CPU, to try the script

Random weights; rows of 320 tokens, as in ``grpo_step``. The first batch is not measured.
"""

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import workbench as wb
from benchmarks.common import write
from benchmarks.grpo_step import SHAPES

ROWS, TOKENS = 256, 320


def make_model(folder: Path, shape: str) -> Path:
    """A Qwen2 with one output, of random weights, and a tokenizer that nobody uses here."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForSequenceClassification

    config = Qwen2Config(**SHAPES[shape], max_position_embeddings=4096, num_labels=1, pad_token_id=0, eos_token_id=1)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        torch.manual_seed(0)
        model = Qwen2ForSequenceClassification(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    core = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1}, unk_token="<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<eos>", pad_token="<pad>").save_pretrained(folder)
    return folder


def measure(folder: Path, dtype: str, ids: list[list[int]]) -> tuple[dict[str, Any], list[float]]:
    """Figures of one type, and its scores."""
    import torch

    cuda = torch.cuda.is_available()
    reward = wb.rewards.RewardModel(folder, dtype=dtype)
    reward.prepare("cuda" if cuda else "cpu")
    held = torch.cuda.memory_allocated() if cuda else 0
    asyncio.run(reward.score_ids(ids[:8]))
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    began = time.monotonic()
    scores = asyncio.run(reward.score_ids(ids))
    seconds = time.monotonic() - began
    peak = torch.cuda.max_memory_allocated() if cuda else 0
    figures = {"rows_per_second": len(ids) / seconds, "weights_gib": held / 2**30, "peak_gib": peak / 2**30}
    return figures, scores


def main() -> None:
    """Parse, measure, write."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    shape = "small" if arguments.small else "qwen2-1.5b"
    rows, tokens = (8, 16) if arguments.small else (ROWS, TOKENS)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(2, SHAPES[shape]["vocab_size"], (rows, tokens), generator=generator).tolist()
    with tempfile.TemporaryDirectory() as folder:
        make_model(Path(folder), shape)
        (plain, wanted), (eight, scores) = (measure(Path(folder), dtype, ids) for dtype in ("bfloat16", "int8"))
    apart = torch.tensor(scores) - torch.tensor(wanted)
    figures = {
        "what": "a reward model of random weights, scores of rows of token ids in one process",
        "shape": {"model": shape, "rows": rows, "tokens": tokens},
        "bfloat16": plain,
        "int8": eight,
        "int8_against_bfloat16": {
            "mean_difference_in_deviations": float(apart.abs().mean() / torch.tensor(wanted).std()),
            "correlation": float(torch.corrcoef(torch.tensor([wanted, scores]))[0, 1]),
        },
    }
    write("reward_model_h200", figures, arguments.out)


if __name__ == "__main__":
    main()
