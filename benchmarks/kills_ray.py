"""Kill workers of a run of four processes with SIGKILL again and again; ``restart=True`` has to carry it through. See ``kills --ray``."""

import json
import os
import random
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.disturbed import Rewarding, numbers, prompts

if TYPE_CHECKING:
    from workbench.run import Run

WORKERS = (("actor", 0), ("actor", 1), ("rollout", 0), ("reference", 0))  # the reward is in the reference's process
APART = 4  # steps between two kills
GONE_SECONDS = 15.0


@dataclass(frozen=True)
class Loss:
    """One worker that was killed."""

    worker: str  # "actor, rank 1"
    fell_into: str  # the call that was under way, as the run told it
    after_step: int  # the last one that was made
    noticed_seconds: float  # from the kill to the run's notice of it
    training_seconds: float  # from the kill to the first step that was made after it
    restored_from: int  # the step of the checkpoint


def a_run(model: Path, folder: Path) -> "Run":
    """Actor on two processes, an engine, reference and reward in one; everything that has to survive is in it."""
    import workbench as wb

    return wb.Run(
        wb.DeviceMap(actor="0-1", rollout="2", reference="3", reward="3"),
        topology=wb.Topology.cpu(slots=4),
        task=wb.tasks.from_list(prompts(), scorer="exact"),
        model=model,
        reward=Rewarding(),
        algo=wb.GRPO(group_size=8, kl=0.01),
        lora=wb.LoRA(rank=4, alpha=8),
        sampling=wb.Sampling(prompts=6, max_tokens=8),
        optimizer=wb.Optimizer(learning_rate=2e-3, warmup_steps=3, decay=True),
        engine=wb.VLLM(window=256, kv_cache_gib=0.1),
        held_out=8,
        checkpoint_every=3,
        trackers=(),
        restart=True,
        name="kill",
        folder=folder,
    )


def undisturbed(model: Path, folder: Path, steps: int) -> None:
    """The same run, left alone."""
    with a_run(model, folder) as run:
        run.start(steps)
        run.wait()


def torture(model: Path, folder: Path, kills: int, seed: int) -> tuple[list[Loss], dict[str, bool]]:
    """Kill ``kills`` workers, each kind in turn in a drawn order, at drawn moments. What was lost, and what has to be true at the end."""
    rng, before = random.Random(seed), set(Path("/dev/shm").iterdir())
    victims = [WORKERS[n % len(WORKERS)] for n in range(kills)]
    rng.shuffle(victims)
    losses, pids = [], set[int]()
    with a_run(model, folder) as run:
        run.start(APART * (kills + 1))
        for number, victim in enumerate(victims, 1):
            run.wait(until_step=APART * number)
            time.sleep(rng.uniform(0, 1.5 * run.steps[-1].seconds))
            pids |= {seat["pid"] for seat in _seats(run)}
            losses.append(_lose(run, *victim))
        run.wait()
        pids |= {seat["pid"] for seat in _seats(run)}
    steps = list(range(1, APART * (kills + 1) + 1))
    return losses, {
        "every_step_once": [step.step for step in run.steps] == steps,
        "every_sync_proved": {event.data["step"] for event in run.events if event.kind == "sync"} >= {0, *steps},
        "no_process_left": _gone(pids - {os.getpid()}),
        "no_shared_memory_left": not {path for path in set(Path("/dev/shm").iterdir()) - before if not path.name.startswith("sem.")},
    }


def _lose(run: "Run", role: str, rank: int) -> Loss:
    """Kill one worker, and see the run train again."""
    pid = next(seat["pid"] for seat in _seats(run) if (seat["role"], seat["rank"]) == (role, rank))
    seen = len(run.events)
    made, began = run.steps[-1].step, time.time()
    os.kill(pid, signal.SIGKILL)
    told = _next(run, seen, "notice")
    restored = _next(run, seen, "restored")
    step = _next(run, run.events.index(restored), "step")
    fell_into = told.data["text"].partition(":")[0]
    return Loss(
        f"{role}, rank {rank}", fell_into, made, round(told.time - began, 2), round(step.time - began, 2), int(restored.data["step"])
    )


def _next(run: "Run", start: int, kind: str) -> Any:
    """The first event of a kind from place ``start`` on, waited for."""
    while True:
        for event in run.events[start:]:
            if event.kind == kind:
                return event
        if run.state not in ("starting", "running"):
            run.wait()
            raise RuntimeError(f"the run is {run.state}, and no {kind} came")
        time.sleep(0.01)


def _seats(run: "Run") -> list[dict[str, Any]]:
    seats: list[dict[str, Any]] = json.loads((run.path / "placement.json").read_text())
    return seats


def _gone(pids: set[int]) -> bool:
    """Whether all processes are gone within seconds."""
    from workbench.runtime.holders import running

    end = time.monotonic() + GONE_SECONDS
    while any(map(running, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    return not any(map(running, pids))


def measure(model: Path, folder: Path, kills: int, seed: int) -> dict[str, Any]:
    """The kills, the end, and whether the numbers are those of the run that nobody disturbed."""
    from workbench.runtime.cluster import connect
    from workbench.runtime.settings import Ray

    cluster = connect(Ray(), slots=4)  # what is measured is the loss of workers, not how long a private Ray takes to start
    try:
        losses, end = torture(model, folder / "killed", kills, seed)
        undisturbed(model, folder / "whole", APART * (kills + 1))
    finally:
        cluster.close()
    same = numbers(folder / "killed") == numbers(folder / "whole")
    return {"what": "workers of a run of four processes killed, against one that was not", "same_numbers": same, **end, "kills": losses}
