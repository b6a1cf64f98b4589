"""The demo over several seeds of warm start and of GRPO: held-out reward before and after, and seconds.

    python -m benchmarks.demo_seeds --seeds 0 1 2

Every seed makes its own model from scratch (in a cache of its own, so the warm start is timed too) and trains it as
``recipes/quickstart.ipynb`` does.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat

import workbench as wb
from benchmarks.common import write

RECIPE = Path(__file__).parent.parent / "recipes" / "quickstart.ipynb"


def parameters() -> dict[str, Any]:
    """The recipe's own parameters: the cell of literals that carries the tag."""
    cells = nbformat.read(RECIPE, 4).cells
    values: dict[str, Any] = {}
    exec(next(cell.source for cell in cells if "parameters" in cell.metadata.get("tags", [])), values)
    return values


def one(seed: int, recipe: dict[str, Any], folder: str, algo: wb.algos.Algorithm | None = None) -> dict[str, Any]:
    """Warm start and training of one seed: GRPO as in the recipe, or another ``algo``, with as many completions a step."""
    from workbench.models.warm_start import ensure

    algo = algo or wb.GRPO(group_size=recipe["group_size"])
    task, began = wb.tasks.sorting(), time.monotonic()
    assert task.demonstrations is not None
    model = ensure(task.name, task.demonstrations, seed=seed)
    warmed = time.monotonic()
    run = wb.Run(
        wb.DeviceMap(),
        task=task,
        model=model,
        algo=algo,
        lora=wb.LoRA(rank=16, alpha=32),
        sampling=wb.Sampling(prompts=recipe["prompts"] * recipe["group_size"] // algo.group_size, max_tokens=8),
        optimizer=wb.Optimizer(learning_rate=recipe["learning_rate"]),
        held_out=recipe["held_out"],
        name="seed",
        seed=seed,
        folder=folder,
    )
    for _ in run.train(recipe["steps"]):
        pass
    done = time.monotonic()
    metrics = json.loads((run.path / "metrics.json").read_text())
    run.close()
    kept = ("held_out_reward", "steps", "tokens_per_second", "sync", "peak_memory_gib", "phase_seconds")
    return {"seed": seed, "warm_start_seconds": warmed - began, "train_seconds": done - warmed} | {k: metrics[k] for k in kept}


def main() -> None:
    """Run every seed, write one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    recipe = parameters()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WORKBENCH_CACHE"] = folder
        runs = [one(seed, recipe, folder) for seed in arguments.seeds]
    gains = [run["held_out_reward"]["after"] - run["held_out_reward"]["before"] for run in runs]
    what = "the quickstart, each seed with its own warm start; train_seconds hold engine start and both evaluations"
    write("demo_seeds_cpu", {"what": what, "gain": {"least": min(gains), "mean": sum(gains) / len(gains)}, "runs": runs}, arguments.out)


if __name__ == "__main__":
    main()
