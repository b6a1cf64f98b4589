"""Where a process says that it sits, and where it is put."""

import json
import os
import subprocess
import sys

import pytest

from workbench.roles import Role
from workbench.runtime.pools import Pool
from workbench.runtime.seat import Seat, seats
from workbench.topology.detection.host import nodes_with

ALLOWED = sorted(os.sched_getaffinity(0))


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
    code = "import sys; from workbench.runtime.seat import sit_near; sit_near('0'); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


HERE = nodes_with(ALLOWED)


def test_one_seat_for_each_role() -> None:
    pool = Pool((Role.ACTOR, Role.ROLLOUT), ("node1:0", "node1:3"), "fsdp", engine_tp=2)
    assert seats(pool, 1, "cpu") == (
        Seat("actor", "node1", "node1:3", None, os.getpid(), 1, 2, "fsdp", "actor+rollout", HERE),
        Seat("rollout", "node1", "node1:3", None, os.getpid(), 1, 2, "tp=2", "actor+rollout", HERE),
    )


def test_a_slot_of_the_cpu_is_on_this_machine() -> None:
    (found,) = seats(Pool((Role.REWARD,), ("cpu:0", "cpu:1"), on_cpu=True), 0, "cpu")
    assert (found.node, found.device, found.layout, found.rank, found.world) == ("local", "cpu:0", "ddp", 0, 2)
