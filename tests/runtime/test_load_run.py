"""The load of a run of several processes: a rank that is late is found and named, and who samples ends with the workers."""

import math
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch.distributed as dist

import workbench as wb
from tests.runtime.test_ray import a_run, by_length, pid_of
from workbench.algos import Loss, TokenTerms
from workbench.metrics import records_of
from workbench.records import Load, Queue, Ranks
from workbench.runtime.cluster import connect

pytestmark = pytest.mark.usefixtures("free_process")

TWO = {"actor": "0-1", "rollout": "2", "reference": "share:actor"}
LATE_SECONDS = 0.8


@dataclass(frozen=True)
class Sleepy(wb.GRPO):
    """The second rank of the actor's takes its time over every micro-batch."""

    def loss(self, terms: TokenTerms) -> Loss:
        if dist.get_rank() == 1:
            time.sleep(LATE_SECONDS)
        return super().loss(terms)


@pytest.fixture(scope="module")
def one_ray() -> Iterator[None]:
    cluster = connect(wb.Ray(), slots=4)
    yield
    cluster.close()


@pytest.fixture(scope="module")
def late(one_ray: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[wb.Run]:
    folder = tmp_path_factory.mktemp("late")
    run = a_run(small_model, folder, TWO, name="late", algo=Sleepy(group_size=4), reward=by_length, load_hz=4, restart=True)
    list(run.train(6))
    yield run
    run.close()


def test_a_slow_rank_is_found_and_named(late: wb.Run) -> None:
    found = [seen for seen in late.findings if seen.code == "WB734"]
    assert [(seen.step, seen.since) for seen in found] in ([(5, 1)], [(6, 2)])
    words = re.match(r"rank 1 \(cpu:1\) takes ([\d.]+) s for its part of update_actor, the others ([\d.]+) s, and wait", found[0].found)
    assert words is not None
    assert float(words[1]) - float(words[2]) == pytest.approx(LATE_SECONDS, abs=0.2)
    assert found[0].found in late.summary().text


def test_waits_for_others_are_nobodys_own_work(late: wb.Run) -> None:
    ranks = [(event.phase, event.role, event.record) for event in late.events if event.kind == "ranks"]
    assert {(phase, role) for phase, role, _ in ranks} == {("reference", "reference"), ("update_actor", "actor")}
    for phase, _, record in ranks:
        assert isinstance(record, Ranks)
        step = late.steps[record.step - 1]
        assert len(record.seconds) == 2
        assert all(0 < seconds < step.phase_seconds[phase] + 0.05 for seconds in record.seconds)
        if phase == "update_actor":
            assert record.seconds[0] < step.phase_seconds[phase] - LATE_SECONDS / 2  # it waited for the other
    assert [one.step for one in records_of(late.events, Queue)] == [1, 2, 3, 4, 5, 6]


def test_every_slot_is_sampled_with_the_roles_of_its_process(late: wb.Run) -> None:
    loads = records_of(late.events, Load)
    assert {tuple(load.devices) for load in loads} == {("cpu:0", "cpu:1", "cpu:2", "driver:0")}
    held = [[next(iter(memory or {})) for memory in load.role_memory_gib] for load in loads]
    assert held[-1] == ["actor, reference", "actor, reference", "rollout", "reward"]
    assert all((gib or 0) > 0.05 for gib in loads[-1].memory_gib)
    assert any((busy or 0) > 0.01 for load in loads for busy in load.busy[:3])


def test_bubbles_of_the_run_use_its_load(late: wb.Run) -> None:
    account = late.bubbles()
    assert {one.device for one in account.devices} == {"cpu:0", "cpu:1", "cpu:2", "driver:0"}
    for one in account.devices:
        assert sum(one.busy_ns.values()) + sum(one.idle_ns.values()) == account.wall_ns


def test_the_sampler_costs_little(late: wb.Run) -> None:
    samplers = late._training.following.samplers
    assert samplers is not None
    seconds = math.fsum(step.seconds for step in late.steps)
    share = samplers.cpu_seconds / seconds
    print(f"\n4 samples a second of 4 slots: {share:.2%} of a core over {seconds:.1f} s of steps")
    assert 0 < share < 0.1


def test_workers_that_are_made_anew_are_sampled_and_nobody_samples_in_the_end(late: wb.Run) -> None:
    before = pid_of(late, "actor", 1)
    os.kill(before, signal.SIGKILL)
    list(late.train(2))
    assert pid_of(late, "actor", 1) != before
    at = next(at for at, event in enumerate(late.events) if event.kind == "restored")
    after = records_of(late.events[at:], Load)
    assert len(after) >= 2
    assert (after[-1].memory_gib[1] or 0) > 0.05  # of the new process
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("workbench-load")] == []
