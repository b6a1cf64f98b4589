"""Kill a training process with SIGKILL again and again, restore it each time, and compare with a run that nobody disturbed.

    python -m benchmarks.kills --kills 24 --out benchmarks/results
    python -m benchmarks.kills --ray --kills 12    # workers of a run of four processes instead: see kills_ray

Kills fall at random moments of a life (while the engine starts, in a step, between two steps) and at chosen ones within the
writing of a checkpoint. The run holds everything that has to survive: Adam's moments, a learning rate that falls, a
knob turned on the way, a reward with a memory, two optimizer steps per rollout, dynamic sampling, prompts fetched ahead.
"""

import argparse
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.disturbed import Rewarding, numbers, prompts

STEPS, EVERY = 40, 3
PRELOADED = ["workbench", "workbench.run", "peft", "accelerate", "vllm", "vllm.v1.engine.llm_engine", "vllm.v1.worker.cpu_worker"]
TURNED_AT = 14  # the step after which the temperature is turned
WITHIN = ("write", "flush", "manifest", "rename", "prune")  # moments of a checkpoint's writing that a process kills itself at


@dataclass(frozen=True)
class Kill:
    """One life that was ended."""

    moment: str  # "after 1.34 s", or the moment of a checkpoint's writing
    seconds: float  # that the process lived
    restored_from: int  # the step it went on from; -1: it was the first life
    reached: int  # the last step in the stream when it died
    checkpoint: int  # the newest whole checkpoint that it left; 0: none


def live(model: Path, folder: Path, fault: str) -> None:
    """One life of the run, in a process of its own: begun or restored, trained to its end unless killed."""
    import workbench as wb
    from workbench.run import Run

    if fault:
        _die_within(fault)
    task, reward = wb.tasks.from_list(prompts(), scorer="exact"), Rewarding()
    begun = (folder / "kill" / "plan.json").exists()
    if begun:
        run = Run.restore(folder / "kill", task=task, reward=reward)
    else:
        run = Run(
            "cpu",
            task=task,
            model=model,
            reward=reward,
            algo=wb.algos.DAPO(group_size=8, minibatches=2, sampling_rounds=2),
            lora=wb.LoRA(rank=4, alpha=8),
            sampling=wb.Sampling(prompts=6, max_tokens=8),
            optimizer=wb.Optimizer(learning_rate=2e-3, warmup_steps=3, decay=True),
            engine=wb.VLLM(window=256, kv_cache_gib=0.1),
            held_out=8,
            checkpoint_every=EVERY,
            trackers=(),
            name="kill",
            folder=folder,
        )
    for step in run.train(None if begun else STEPS):
        if step.step == TURNED_AT and run.knobs.temperature == 1.0:
            run.knobs.temperature = 0.9
    run.close()


def _die_within(fault: str) -> None:
    """Let this process kill itself at a moment of its second checkpoint's writing."""
    from workbench import checkpoint

    written = [0]

    def die_before(owner: Any, name: str, times: int) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def patched(*values: Any, **named: Any) -> Any:
            written[0] += 1
            if written[0] == times:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*values, **named)

        setattr(owner, name, patched)

    if fault == "write":
        die_before(checkpoint, "_write_json", 2)  # before the second one's state
    elif fault == "manifest":
        die_before(checkpoint.manifest, "write", 2)
    elif fault == "flush":
        die_before(checkpoint, "_flush", 7)  # of each checkpoint three files and two folders
    elif fault == "rename":
        die_before(checkpoint.Checkpoints, "_prune", 2)  # the second one is there, the folder not tidied
    else:
        die_before(checkpoint.shutil, "rmtree", 1)  # renamed for removal, not removed


def torture(model: Path, folder: Path, kills: int, seed: int) -> list[Kill]:
    """Kill the run in ``folder`` ``kills`` times, and let it come to its end then."""
    from workbench.checkpoint import Checkpoints, step_of

    rng = random.Random(seed)
    context = multiprocessing.get_context("forkserver")  # lives share what takes long: the imports
    context.set_forkserver_preload(PRELOADED)
    lives: list[Kill] = []
    faults = [f"{WITHIN[n % len(WITHIN)]}" if n % 3 == 2 else "" for n in range(kills)]
    for fault in [*faults, None]:
        found = Checkpoints(folder / "kill", 1).all()
        restored_from = step_of(found[-1]) if found else (0 if (folder / "kill").exists() else -1)
        began = time.monotonic()
        life = context.Process(target=live, args=(model, folder, fault or ""))
        life.start()
        if fault is None:
            life.join()
            if life.exitcode:
                raise RuntimeError(f"the last life ended with {life.exitcode}")
            return lives
        moment = _end(life, folder, fault, rng)
        if life.exitcode != -signal.SIGKILL:
            raise RuntimeError(f"life {len(lives) + 1} was to be killed {moment}, and ended with {life.exitcode}: too few steps?")
        found = Checkpoints(folder / "kill", 1).all()
        lives.append(Kill(moment, time.monotonic() - began, restored_from, _reached(folder), step_of(found[-1]) if found else 0))
    return lives


def _end(life: Any, folder: Path, fault: str, rng: random.Random) -> str:
    """Wait for the moment, and see the process die."""
    if fault:
        life.join()
        return f"in a checkpoint: {fault}"
    if rng.random() < 0.2:  # wherever it is in its start
        delay = rng.uniform(0, 3)
        time.sleep(delay)
        moment = f"{delay:.2f} s after its birth"
    else:
        before = _lines(folder)
        while life.is_alive() and not any('"kind": "step"' in line for line in _lines(folder)[len(before) :]):
            time.sleep(0.002)
        delay = rng.uniform(0, 0.6)
        time.sleep(delay)
        moment = f"{delay:.2f} s after its first step"
    life.kill()
    life.join()
    return moment


def _lines(folder: Path) -> list[str]:
    events = folder / "kill" / "events.jsonl"
    return events.read_text(encoding="utf-8").splitlines() if events.exists() else []


def _reached(folder: Path) -> int:
    from workbench.records import Step
    from workbench.run import Run

    if not _lines(folder):
        return 0
    return max((record.step for event in Run.load(folder / "kill").events if isinstance(record := event.record, Step)), default=0)


def main() -> None:
    """Run the test at length and write what was seen."""
    from benchmarks.common import RESULTS, write

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", type=Path, required=True, help="small; its tokenizer knows a-z, blank and =")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--ray", action="store_true", help="kill workers of a run of four processes, which goes on by itself")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if arguments.ray:
            from benchmarks import kills_ray

            write("kills_ray_cpu", kills_ray.measure(arguments.model, Path(place), arguments.kills, arguments.seed), arguments.out)
            return
        lives = torture(arguments.model, Path(place, "killed"), arguments.kills, arguments.seed)
        torture(arguments.model, Path(place, "whole"), 0, 0)
        same = numbers(Path(place, "killed")) == numbers(Path(place, "whole"))
    write("kills_cpu", {"what": "a run killed and restored, against one that was not", "same_numbers": same, "kills": lives}, arguments.out)


if __name__ == "__main__":
    main()
