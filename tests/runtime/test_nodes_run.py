"""Runs on a cluster of two nodes (both on this machine): one spread over both, another beside it, and what is refused meanwhile."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.runtime.test_ray import a_run, by_length, is_alive, pid_of, seats_of
from workbench.errors import ClusterError

pytestmark = pytest.mark.usefixtures("free_process")

OVER_NODES = {"actor": "node1:0,node2:0", "rollout": "node2:1"}
BESIDE = {"actor": "node1:1", "rollout": "node2:2"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Its address. node1 has two slots, node2 three: room for both runs, and for nothing else."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0, "include_dashboard": False})
    nodes.add_node(num_cpus=3, num_gpus=0)
    yield nodes.address
    nodes.shutdown()


def on_cluster(address: str, model: Path, folder: Path, places: dict[str, str], name: str) -> wb.Run:
    return a_run(model, folder, places, name=name, reward=by_length, runtime=wb.Ray(address=address), topology=None, load_hz=4)


@pytest.fixture(scope="module")
def spread(cluster: str, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[wb.Run]:
    """The run over both nodes, two steps old and training on in its thread."""
    run = on_cluster(cluster, small_model, tmp_path_factory.mktemp("spread"), OVER_NODES, "spread")
    run.start(100_000)
    run.wait(until_step=2)
    yield run
    run.close()


BESIDES = """
import sys
from pathlib import Path
from tests.runtime.test_nodes_run import BESIDE, on_cluster
run = on_cluster(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), BESIDE, "beside")
for step in run.train(2):
    pass
print(run.path, flush=True)
run.start(100000)
run.wait()
"""


@pytest.fixture(scope="module")
def beside(spread: wb.Run, cluster: str, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, wb.Run]]:
    """Another driver with a run on the slots that are left, which has made two steps and goes on; and its records."""
    words = [sys.executable, "-c", BESIDES, cluster, str(small_model), str(tmp_path_factory.mktemp("beside"))]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        path = next((line.strip() for line in driver.stdout if line.startswith("/")), "")
        assert path, "the run beside the first one failed"
        yield driver, wb.Run.load(path)
        driver.kill()


def test_ranks_sit_on_both_nodes_as_the_map_says(spread: wb.Run) -> None:
    seen = {(s["role"], s["node"], s["device"], s["rank"], s["world"], s["group"]) for s in seats_of(spread)}
    assert seen == {
        ("actor", "node1", "node1:0", 0, 2, "actor+reference"),
        ("actor", "node2", "node2:0", 1, 2, "actor+reference"),
        ("reference", "node1", "node1:0", 0, 2, "actor+reference"),
        ("reference", "node2", "node2:0", 1, 2, "actor+reference"),
        ("rollout", "node2", "node2:1", 0, 1, "rollout"),
        ("reward", "local", "cpu:0", 0, 1, "driver"),
    }


def test_the_adapter_goes_from_node_to_node_and_is_proved(spread: wb.Run) -> None:
    syncs = [event.record for event in spread.events if event.kind == "sync"]
    assert [sync.version for sync in syncs[:3]] == [1, 2, 3]
    assert len({sync.checksum for sync in syncs}) == len(syncs)
    assert all(step.logprob_diff_max < 1e-4 for step in spread.steps)


def test_devices_of_every_node_are_sampled_in_the_drivers_time(spread: wb.Run) -> None:
    end = time.monotonic() + 60  # the other node's sampler is a process that starts
    while sum(event.node == "node2" for event in spread.events) < 8 and time.monotonic() < end:
        time.sleep(0.1)
    loads = [event for event in spread.events if event.kind == "load"]
    by_node: dict[str, list[Any]] = {}
    for event in loads:
        by_node.setdefault(event.node, []).append(event)
    assert {node: {tuple(event.data["devices"]) for event in those} for node, those in by_node.items()} == {
        "local": {("node1:0", "cpu:0")},
        "node2": {("node2:0", "node2:1")},
    }
    far = by_node["node2"]
    assert [list(memory) for memory in far[-1].data["role_memory_gib"]] == [["actor, reference"], ["rollout"]]
    assert any(busy for event in far for busy in event.data["busy"])
    clock = next(event.record for event in spread.events if event.kind == "clock")
    assert clock.node == "node2"
    assert abs(clock.ahead_seconds) <= clock.within_seconds  # both nodes are this machine, with one clock
    assert clock.within_seconds < 5
    monos = [event.mono for event in far]
    assert monos == sorted(monos)
    began, now = spread.events[0].mono, spread.events[-1].mono
    assert all(began < mono <= now for mono in monos)
    assert all(abs((event.time - event.mono) - (spread.events[0].time - began)) < 1 for event in far)


def test_another_run_trains_beside_it(spread: wb.Run, beside: tuple[Any, wb.Run]) -> None:
    steps, mine = beside[1].steps, {seat["pid"] for seat in seats_of(spread)}
    assert [step.step for step in steps[:2]] == [1, 2]
    assert mine.isdisjoint(seat["pid"] for seat in json.loads((beside[1].path / "placement.json").read_text()))
    assert spread.state == "running"


def test_a_third_that_wants_a_taken_slot_is_told_by_whom(
    beside: tuple[Any, wb.Run], cluster: str, small_model: Path, tmp_path: Path
) -> None:
    third = on_cluster(cluster, small_model, tmp_path, {"actor": "node1:1", "rollout": "node2:2"}, "third")
    found = rf"actor.* on node1:1: .* 0 of them free: .*run 'beside' \(pid {beside[0].pid} on .*\) holds 1"
    with pytest.raises(ClusterError, match=found):
        next(iter(third.train(1)))
    third.close()


def test_a_map_that_needs_more_than_there_is_says_which_role(spread: wb.Run, cluster: str, small_model: Path, tmp_path: Path) -> None:
    large = on_cluster(cluster, small_model, tmp_path, {"actor": "node1:0", "rollout": "node2:0-3"}, "large")
    with pytest.raises(ClusterError, match=r"rollout on node2:3: the map needs 4 devices of node2, which has 3 CPU slots"):
        next(iter(large.train(1)))
    large.close()


def test_a_killed_driver_takes_its_own_workers_with_it_and_no_others(spread: wb.Run, beside: tuple[Any, wb.Run]) -> None:
    driver, records = beside
    theirs = [seat["pid"] for seat in json.loads((records.path / "placement.json").read_text()) if seat["group"] != "driver"]
    done = len(spread.steps)
    os.kill(driver.pid, 9)
    driver.wait()
    spread.wait(until_step=done + 3, timeout=30)
    assert len(spread.steps) >= done + 3
    assert is_alive(pid_of(spread, "rollout"))
    assert not any(map(is_alive, theirs))
