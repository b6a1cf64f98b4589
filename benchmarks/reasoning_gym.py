"""SmolLM2-135M-Instruct learns a task of reasoning-gym, with a knob turned on the way: the curve, and held-out scores.

    python -m benchmarks.reasoning_gym --steps 160

The policy's own score is taken at temperature 1 before and after; at the end, trained and base answer the same held-out
prompts greedily, too. In the middle the temperature is turned down, as a person would in a notebook; it shows in the curve.
"""

import argparse
import json
import math
import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import workbench as wb
from benchmarks.common import RESULTS, write

TASK = "chain_sum"
SETTINGS = {"min_terms": 2, "max_terms": 2, "min_digits": 2, "max_digits": 2}
TURNED = {"temperature": 0.7}


def measure(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Train, turn the knob half way, score."""
    task = replace(wb.tasks.reasoning_gym(TASK, **SETTINGS), held_out_temperature=1.0)
    run = wb.Run(
        task=task,
        model=arguments.model,
        algo=wb.GRPO(group_size=arguments.group),
        lora=wb.LoRA(rank=16, alpha=32),
        sampling=wb.Sampling(prompts=arguments.prompts, max_tokens=8),
        optimizer=wb.Optimizer(learning_rate=arguments.learning_rate, warmup_steps=5),
        engine=wb.VLLM(window=256, memory_share=0.3),
        held_out=arguments.held_out,
        trackers=(),
        seed=arguments.seed,
        name="smollm2-chain-sum",
        folder=folder,
    )
    for step in run.train(arguments.steps):
        if step.step % 10 == 0:
            print(step, flush=True)
        if step.step == arguments.steps // 2:
            run.knobs.set(**TURNED)
    if arguments.picture is not None:
        arguments.picture.write_bytes(run.summary().report.png)
    before, after = run.held_out[0], run.held_out[-1]
    greedy = compare_greedily(run, task, arguments.greedy)
    figures = {
        "what": f"GRPO on {arguments.model}, reasoning-gym {TASK} {SETTINGS}, {arguments.prompts} x {arguments.group} completions a step",
        "settings": {**asdict(run.plan.sampling), **asdict(run.plan.optimizer), "seed": arguments.seed},
        "held_out": {
            "before": asdict(before),
            "after": asdict(after),
            "gain": after.reward_mean - before.reward_mean,
            "gain_stderr": math.hypot(before.stderr, after.stderr),
        },
        "greedy": greedy,
        "knobs": [asdict(event.record) for event in run.events if event.kind == "knob"],
        "checkpoints": [asdict(event.record) for event in run.events if event.kind == "checkpoint"][-2:],
        "metrics": asdict(run.metrics),
        "curve": [
            {name: round(getattr(s, name), 5) for name in ("step", "reward_mean", "kl", "entropy", "completion_tokens_mean", "seconds")}
            for s in run.steps
        ],
    }
    run.close()
    return figures


def compare_greedily(run: wb.Run, task: Any, count: int) -> dict[str, float]:
    """Mean score of greedy answers to the same held-out prompts, of the trained policy and of the base; their difference is paired."""
    pairs = []
    for example in task.held_out(count):
        said = run.generate(example.given)
        pairs.append([task.scorer(example.given, text, example.answer) for text in (said.trained[0], said.base[0])])
    gains = [trained - base for trained, base in pairs]
    mean = sum(gains) / len(gains)
    error = math.sqrt(sum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1) / len(gains))
    trained, base = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    return {"prompts": len(pairs), "trained": trained, "base": base, "gain": mean, "gain_stderr": error}


def draw(figures: dict[str, Any], path: Path) -> None:
    """The curve as a picture: reward with the held-out scores, and entropy, where the turned knob shows."""
    from matplotlib.figure import Figure

    curve, held_out, knob = figures["curve"], figures["held_out"], figures["knobs"][0]
    steps = [point["step"] for point in curve]
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    panels = figure.subplots(1, 2)
    for axes, name, title in zip(panels, ("reward_mean", "entropy"), ("Reward", "Entropy, nats per token"), strict=True):
        axes.plot(steps, [point[name] for point in curve], color="#b8860b" if name == "reward_mean" else "#0f6cbd", linewidth=1.6)
        axes.axvline(knob["step"], color="#8a8a8a", linewidth=1, linestyle=(0, (4, 3)))
        axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
        axes.set_xlabel("step", loc="right")
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_ylim(bottom=0) if name == "reward_mean" else axes.set_yscale("log")  # the drop at the knob is one by half
    scores = [held_out[side] for side in ("before", "after")]
    at = [score["step"] for score in scores]
    panels[0].errorbar(
        at, [s["reward_mean"] for s in scores], [s["stderr"] for s in scores], fmt="o", color="#222222", markerfacecolor="white", capsize=3
    )
    panels[0].annotate(
        f"held out {scores[1]['reward_mean']:.2f}", (at[1], scores[1]["reward_mean"]), (-8, -26), textcoords="offset points", ha="right"
    )
    label = f"{knob['name']} {knob['old']:g} \N{RIGHTWARDS ARROW} {knob['new']:g}"
    panels[1].annotate(label, (knob["step"], 1), (6, -4), xycoords=("data", "axes fraction"), textcoords="offset points", va="top")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--group", type=int, default=16)
    parser.add_argument("--learning-rate", type=float, default=3e-4)
    parser.add_argument("--held-out", type=int, default=512)
    parser.add_argument("--greedy", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--picture", type=Path, help="PNG of the run's summary")
    parser.add_argument("--draw", type=Path, help="only draw the result that is there already, to this PNG")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="reasoning_gym_h200")
    arguments = parser.parse_args()
    if arguments.draw is not None:
        draw(json.loads((arguments.out / f"{arguments.name}.json").read_text(encoding="utf-8")), arguments.draw)
        return
    with tempfile.TemporaryDirectory() as folder:
        write(arguments.name, measure(arguments, Path(folder)), arguments.out)


if __name__ == "__main__":
    main()
