"""A real run with a slow loader: its samples are in the stream, the finding names the loader, and its bubbles do."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.telemetry.test_sampler import Place
from tests.test_run import PROMPTS, likes_a, make
from workbench.metrics import records_of
from workbench.past import load
from workbench.records import Load
from workbench.telemetry import LoadLookout
from workbench.telemetry.sampler import Sampler


class SlowPrompts:
    """Prompts that take a while to be read, once ``seconds`` is set: when the run is made it reads some for their fingerprint."""

    def __init__(self, prompts: Any) -> None:
        self.prompts, self.seconds = prompts, 0.0

    def train(self, seed: int, position: int) -> Any:
        time.sleep(self.seconds)
        return self.prompts.train(seed, position)

    def held_out(self, count: int) -> Any:
        return self.prompts.held_out(count)


def test_a_slow_loader_is_found(free_process: None, small_model: Path, tmp_path: Path) -> None:
    task = wb.tasks.from_list(PROMPTS, scorer=likes_a)
    slow = SlowPrompts(task.prompts)
    task = replace(task, prompts=slow, origin=None)
    few = wb.Sampling(prompts=4, max_tokens=8)
    run = make(small_model, tmp_path, trackers=(), held_out=0, task=task, sampling=few, prefetch=0)
    seats = [Place(role, "cpu:0", os.getpid()) for role in ("actor", "rollout")]
    try:
        list(run.train(1))
        slow.seconds = 0.4  # of each of four prompts
        with Sampler({"cpu:0": None}, seats, run._training.log.emit, hz=4) as sampler:
            list(run.train(5))
    finally:
        run.close()
    assert sampler.error is None
    loads = records_of(run.events, Load)
    assert len(loads) >= 8
    assert all(set(load.role_memory_gib[0] or ()) == {"actor, rollout"} and (load.memory_gib[0] or 0) > 0.1 for load in loads)
    found = _followed(run.events)
    assert [one.code for one in found] == ["WB731"]
    assert "of a step's time goes by until its prompts are there" in found[0].found
    assert run.bubbles(2).worst[:2] == ("cpu:0", "data")
    whole = run.bubbles()
    (device,) = whole.devices
    assert (device.device, whole.first, whole.last) == ("cpu:0", 1, 6)
    assert sum(device.busy_ns.values()) + sum(device.idle_ns.values()) == whole.wall_ns
    assert set(device.busy_ns) >= {"actor", "rollout", "reward"}
    assert whole.seconds == pytest.approx(sum(step.seconds for step in run.steps), rel=0.2, abs=0.5)
    assert load(run.path).bubbles() == whole


def _followed(events: list[Any]) -> list[Any]:
    """What a lookout says that looks after every step, as a run does."""
    lookout = LoadLookout()
    return [one for at, event in enumerate(events, 1) if event.kind == "step" for one in lookout.news(events[:at])]
