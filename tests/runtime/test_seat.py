"""Where a process says that it sits: the real one, and files of a machine with two NUMA nodes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from workbench.roles import Role
from workbench.runtime import seat
from workbench.runtime.pools import Pool
from workbench.runtime.seat import Seat, seats, spans_of

ALLOWED = sorted(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8", {0, 1, 2, 3, 8}), ("5", {5}), ("0-1,32-33\n", {0, 1, 32, 33}), ("", set()), ("\n", set())],
)
def test_spans(text: str, cpus: set[int]) -> None:
    assert spans_of(text) == cpus


@pytest.mark.parametrize(
    ("near", "sits"),
    [
        (str(ALLOWED[0]), ALLOWED[:1]),
        (f"{ALLOWED[-1]},4000-4095", ALLOWED[-1:]),  # as far as the process may
        ("4000-4095", ALLOWED),  # it may run on none of them: it stays where it is
        ("", ALLOWED),
        (None, ALLOWED),
    ],
)
def test_a_process_sits_near_its_gpu(near: str | None, sits: list[int]) -> None:
    """In a process of its own: an affinity is for good."""
    code = f"import os; from workbench.runtime.seat import sit_near; sit_near({near!r}); print(sorted(os.sched_getaffinity(0)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == sits


def test_to_sit_somewhere_takes_no_torch() -> None:
    """A worker sits down before anything is allocated, and sees its GPU before torch is loaded."""
    code = "import sys; from workbench.runtime.seat import sit_near, numa_here; sit_near('0'); numa_here(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.fixture
def two_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Node 0 has the first CPU that this process may use, node 1 one that it may not, node 10 all of them."""
    for number, cpus in ((10, ",".join(map(str, ALLOWED))), (0, str(ALLOWED[0])), (1, "4000-4001")):
        (tmp_path / f"node{number}").mkdir()
        (tmp_path / f"node{number}" / "cpulist").write_text(f"{cpus}\n")
    (tmp_path / "online").write_text("0-1,10")
    monkeypatch.setattr(seat, "NUMA", tmp_path)
    return tmp_path


def test_the_numa_nodes_are_those_of_the_cpus_that_it_may_use(two_nodes: Path) -> None:
    assert seat.numa_here() == [0, 10]


def test_a_system_that_does_not_say_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seat, "NUMA", tmp_path / "nothing")
    assert seat.numa_here() == []


def test_one_seat_for_each_role(two_nodes: Path) -> None:
    pool = Pool((Role.ACTOR, Role.ROLLOUT), ("node1:0", "node1:3"), "fsdp", engine_tp=2)
    assert seats(pool, 1, "cpu") == (
        Seat("actor", "node1", "node1:3", None, os.getpid(), 1, 2, "fsdp", "actor+rollout", [0, 10]),
        Seat("rollout", "node1", "node1:3", None, os.getpid(), 1, 2, "tp=2", "actor+rollout", [0, 10]),
    )


def test_a_slot_of_the_cpu_is_on_this_machine() -> None:
    (found,) = seats(Pool((Role.REWARD,), ("cpu:0", "cpu:1"), on_cpu=True), 0, "cpu")
    assert (found.node, found.device, found.layout, found.rank, found.world) == ("local", "cpu:0", "ddp", 0, 2)
