"""PPO on the demo, GRPO beside it: held-out reward before and after over several seeds, and seconds by phase.

    python -m benchmarks.ppo_seeds --seeds 0 1 2

Both start from the same warm start of a seed, and sample as many completions a step, from as many optimizer steps: what differs is the
algorithm. PPO asks four times as many prompts, twice each, where GRPO needs eight answers to compare; its critic is a second adapter.
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import workbench as wb
from benchmarks.common import write
from benchmarks.demo_seeds import one, parameters


def algorithms(recipe: dict[str, Any]) -> dict[str, wb.algos.Algorithm]:
    """Name -> algorithm."""
    return {"grpo": wb.GRPO(group_size=recipe["group_size"]), "ppo": wb.PPO(group_size=2, minibatches=1)}


def main() -> None:
    """Every seed with both, one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=None, help="as the recipe")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    recipe = parameters()
    recipe["steps"] = arguments.steps or recipe["steps"]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["WORKBENCH_CACHE"] = folder
        runs = {
            name: [one(seed, recipe, f"{folder}/{name}", algo) for seed in arguments.seeds] for name, algo in algorithms(recipe).items()
        }
    gains = {name: [run["held_out_reward"]["after"] - run["held_out_reward"]["before"] for run in made] for name, made in runs.items()}
    figures = {
        "what": "the quickstart's task and warm start, 512 completions a step, one optimizer step each; gain of the held-out reward",
        "gain": {name: {"least": min(found), "mean": sum(found) / len(found)} for name, found in gains.items()},
        "runs": runs,
    }
    write("ppo_seeds_cpu", figures, arguments.out)


if __name__ == "__main__":
    main()
