"""How long it takes to open a long run: its file holds every sample of the load, memory only some.

    python -m benchmarks.long_run --steps 1000 --samples 40

As a run of so many steps writes it, each with so many samples (40: ten seconds of four a second) of 16 GPUs.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from benchmarks.common import RESULTS, write
from workbench.events import EventLog, read_events
from workbench.listing import read_line
from workbench.past import load
from workbench.records import Load, RunStarted, State, Step

GPUS = [f"local:{number}" for number in range(16)]
SHARED = {"actor, reference": 50.123, "rollout": 40.25}


def a_load(dice: random.Random) -> Load:
    """A sample of all GPUs in which everything is known."""
    numbers = {field.name: [round(dice.uniform(0, 100), 3) for _ in GPUS] for field in fields(Load)}
    known = {"seconds": 0.25, "devices": GPUS, "throttled": ["power cap"] * len(GPUS), "missing": {}}
    return Load(**{**numbers, **known, "role_memory_gib": [SHARED] * len(GPUS), "role_busy": [SHARED] * len(GPUS)})


def written(folder: Path, steps: int, samples: int) -> float:
    """Write the run; seconds that one sample takes in the stream."""
    log, dice = EventLog(folder / "events.jsonl"), random.Random(0)
    log.emit(RunStarted("long", "m", {"name": "GRPO"}, {}, {"actor": GPUS, "rollout": GPUS}, {}, 0))
    log.emit(State("running"))
    zeros = {field.name: 0 for field in fields(Step) if field.name not in ("step", "phase_seconds", "reward_numbers")}
    spent = 0.0
    for step in range(1, steps + 1):
        for _ in range(samples):
            one, began = a_load(dice), time.monotonic()
            log.emit(one)
            spent += time.monotonic() - began
        log.emit(Step(step=step, **zeros))
    log.close()
    return spent / (steps * samples)


def seconds(work: Callable[[], Any]) -> float:
    """How long it takes."""
    began = time.monotonic()
    work()
    return round(time.monotonic() - began, 3)


def main() -> None:
    """Write one, open it, look at it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--samples", type=int, default=40)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="long_run_cpu")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        each = written(folder, arguments.steps, arguments.samples)
        file, run = folder / "events.jsonl", load(folder)
        figures = {
            "what": "a run with samples of 16 GPUs: seconds to open it and to look at it",
            "samples": arguments.steps * arguments.samples,
            "file_mb": round(file.stat().st_size / 1e6, 1),
            "emit_ms_per_sample": round(1e3 * each, 3),
            "samples_in_memory": sum(event.kind == "load" for event in run.events),
            "seconds": {
                "load": seconds(lambda: load(folder)),
                "summary": seconds(run.summary),
                "line_of_the_list": seconds(lambda: read_line(folder)),
                "every_event": seconds(lambda: sum(1 for _ in read_events(file))),
            },
        }
    write(arguments.name, figures, arguments.out)


if __name__ == "__main__":
    main()
