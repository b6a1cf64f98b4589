"""What a kernel keeps after ``close()``: several runs one after another in one process, and its memory after each.

    python -m benchmarks.memory_back --model FOLDER --runs 5

Resident memory of the process (and of the GPU, by torch's allocator), in MiB: with the libraries loaded, while a run is open, and
once it is closed. What stays after the first close and does not grow is what torch, vLLM and their kernels keep for good.
"""

import argparse
import tempfile
from pathlib import Path

import psutil

import workbench as wb
from benchmarks.common import RESULTS, write
from benchmarks.kills import prompts


def resident_mib() -> dict[str, float]:
    """Of this process, and of the GPU where there is one."""
    import torch

    gpu = {"gpu": torch.cuda.memory_reserved() / 2**20} if torch.cuda.is_available() else {}
    return {"process": round(psutil.Process().memory_info().rss / 2**20), **gpu}


def one(model: str, folder: str, number: int) -> dict[str, dict[str, float]]:
    """A short run, closed: memory while it was open and after."""
    task = wb.tasks.from_list(prompts(), scorer=lambda prompt, completion, answer: completion.count("a"))
    sampling = wb.Sampling(prompts=16, max_tokens=16)
    run = wb.Run(task=task, model=model, sampling=sampling, held_out=8, trackers=(), runtime="inline", name=f"run{number}", folder=folder)
    for _ in run.train(3):
        pass
    opened = resident_mib()
    run.close()
    return {"open": opened, "closed": resident_mib()}


def main() -> None:
    """Run, close, look, again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="memory_back_cpu")
    arguments = parser.parse_args()
    import peft  # noqa: F401 - loaded before the first look, as in a kernel that has run before
    import vllm  # noqa: F401

    before = resident_mib()
    with tempfile.TemporaryDirectory() as folder:
        runs = [one(arguments.model, folder, number) for number in range(arguments.runs)]
    write(arguments.name, {"what": "MiB, several runs in one process", "libraries": before, "runs": runs}, arguments.out)


if __name__ == "__main__":
    main()
