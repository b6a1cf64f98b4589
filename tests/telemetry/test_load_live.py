"""Real runs sample their devices: a slow loader is found and named, live and later; nothing is left behind, and nothing ends a run."""

import csv
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.test_run import PROMPTS, likes_a, make
from workbench.errors import StateError
from workbench.events import read_events
from workbench.metrics import records_of
from workbench.past import load
from workbench.records import Load, Notice, PhaseBegan, Queue, State
from workbench.run import Run
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


def samplers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("workbench-load")]


@pytest.fixture(scope="module")
def starved(free_process: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, str]:
    """A run whose loader is slow from the second step on, and what it printed."""
    task = wb.tasks.from_list(PROMPTS, scorer=likes_a)
    slow = SlowPrompts(task.prompts)
    task = replace(task, prompts=slow, origin=None)
    few, folder = wb.Sampling(prompts=4, max_tokens=8), tmp_path_factory.mktemp("starved")
    run = make(small_model, folder, trackers=(), held_out=0, task=task, sampling=few, prefetch=0, load_hz=4, load_csv=True)
    try:
        list(run.train(1))
        assert samplers() == []  # it rests
        slow.seconds = 0.3  # of each of four prompts
        list(run.train(5))
    finally:
        run.close()
    return run, run.summary().text


def test_a_slow_loader_is_found_while_the_run_trains(starved: tuple[Run, str]) -> None:
    run, summary = starved
    (found,) = run.findings
    assert (found.code, found.step) == ("WB731", 6)
    assert re.match(r"[3-9]\d % of a step's time goes by until its prompts are there", found.found)
    assert "WB731" in summary
    assert found.found in summary
    assert run.bubbles(2).worst[:2] == ("cpu:0", "data")
    assert load(run.path).findings == run.findings


def test_every_moment_of_the_steps_is_accounted_for(starved: tuple[Run, str]) -> None:
    run, _ = starved
    whole = run.bubbles()
    (device,) = whole.devices
    assert (device.device, whole.first, whole.last) == ("cpu:0", 1, 6)
    assert sum(device.busy_ns.values()) + sum(device.idle_ns.values()) == whole.wall_ns
    assert set(device.busy_ns) >= {"actor", "rollout", "reward"}
    assert whole.seconds == pytest.approx(sum(step.seconds for step in run.steps), rel=0.2, abs=1.0)
    assert load(run.path).bubbles() == whole


def test_the_samples_are_those_of_the_roles_and_only_of_the_time_at_work(starved: tuple[Run, str]) -> None:
    run, _ = starved
    loads = records_of(run.events, Load)
    assert len(loads) >= 8
    assert {tuple(one.devices) for one in loads} == {("cpu:0",)}
    assert all(set(one.role_memory_gib[0] or ()) == {"actor, rollout, reference, reward"} for one in loads)
    assert all((one.memory_gib[0] or 0) > 0.1 for one in loads)
    at_work = False
    for event in run.events:
        if event.kind == "state":
            at_work = event.data["state"] in ("starting", "running")
        assert at_work or event.kind != "load"
    assert load(run.path).watch("load").twin()["text/html"].count("cpu:0") >= 1


def test_the_table_has_a_line_for_each_sample(starved: tuple[Run, str]) -> None:
    run, _ = starved
    with open(run.path / "load.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["device"] for row in rows] == ["cpu:0"] * len(records_of(run.events, Load))
    assert any(float(row["busy"] or 0) > 0 for row in rows)


def test_phases_are_told_when_they_begin_and_the_queue_when_a_rollout_ends(starved: tuple[Run, str]) -> None:
    run, _ = starved
    begun = [(event.data["step"], event.phase, event.role) for event in run.events if event.kind == "phase_began"]
    ended = [(event.data["step"], event.phase, event.role) for event in run.events if event.kind == "phase"]
    assert begun == ended
    assert begun[:2] == [(1, "rollout", "rollout"), (1, "reward", "reward")]
    pairs = {(event.phase, event.data["step"]): event for event in run.events if event.kind == "phase_began"}
    for event in (event for event in run.events if event.kind == "phase"):
        began = pairs[event.phase, event.data["step"]]
        assert isinstance(began.record, PhaseBegan)
        assert began.record.begin_mono == event.data["begin_mono"]
    queues = records_of(run.events, Queue)
    assert [one.step for one in queues] == [1, 2, 3, 4, 5, 6]
    assert all(0 < one.running_mean <= 32 and one.preempted == 0 for one in queues)
    assert not [event for event in run.events if event.kind == "ranks"]  # one rank is never late


def test_a_fault_of_the_sampler_is_one_notice(
    free_process: None, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Sampler, probe: object) -> None:
        raise OSError("no such counter")

    monkeypatch.setattr(Sampler, "_follow", broken)
    run = make(small_model, tmp_path, trackers=(), held_out=0)
    try:
        list(run.train(3))
    finally:
        run.close()
    notices = [one.text for one in records_of(run.events, Notice) if "sampled no more" in one.text]
    assert notices == ["the load of the devices on this machine is sampled no more: OSError: no such counter"]
    assert len(run.steps) == 3


def test_nothing_samples_after_a_crash_a_stop_or_an_end(free_process: None, small_model: Path, tmp_path: Path) -> None:
    def fails(prompt: str, completion: str, answer: Any) -> float:
        raise ValueError("no")

    run = make(small_model, tmp_path, trackers=(), held_out=0, reward=fails, checkpoint_every=None)
    try:
        with pytest.raises(Exception, match="no"):
            list(run.train(2))
        assert samplers() == []
    finally:
        run.close()
    still = make(small_model, tmp_path, trackers=(), held_out=0, load_hz=0)
    try:
        list(still.train(1))
        assert samplers() == []
    finally:
        still.close()
    assert records_of(still.events, Load) == []
    with pytest.raises(StateError):
        load(run.path).bubbles()
    assert {event.kind for event in read_events(run.path / "events.jsonl")} >= {"load", "state"}
    assert records_of(run.events, State)[-1].state == "closed"
