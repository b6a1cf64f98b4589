"""Roles in processes of their own: real Ray, real engines, real gloo, on slots of the CPU. One run for most of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

import workbench as wb
from tests.blocks import SHARED_MEMORY, left_behind
from workbench.errors import CollectiveError, ConfigError, WorkerError
from workbench.runtime.cluster import connect

pytestmark = pytest.mark.usefixtures("free_process")

SPREAD = {"actor": "0-1", "rollout": "2", "reference": "3", "reward": "3"}


class Lengths:
    """A reward with a memory, in a process of its own."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, prompt: Any, completion: str, answer: Any) -> float:
        self.asked += 1
        return float(len(completion) % 5)

    def state_dict(self) -> dict[str, int]:
        return {"asked": self.asked}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.asked = state["asked"]


def a_run(model: Path, folder: Path, places: dict[str, Any] = SPREAD, **more: Any) -> wb.Run:
    settings: dict[str, Any] = {
        "reward": Lengths(),
        "algo": wb.GRPO(group_size=4),
        "engine": wb.VLLM(window=256, block_size=32, max_sequences=64, kv_cache_gib=0.1),
        "sampling": wb.Sampling(prompts=8, max_tokens=16),
        "lora": wb.LoRA(rank=4, alpha=8),
        "optimizer": wb.Optimizer(learning_rate=1e-3),
        "topology": wb.Topology.cpu(slots=4),
        "held_out": 0,
        "trackers": (),
        "checkpoint_every": 1,
    }
    return wb.Run(wb.DeviceMap(**places), task=wb.tasks.sorting(), model=model, folder=folder, **(settings | more))


def by_length(prompt: Any, completion: str, answer: Any) -> float:
    """In the driver's process."""
    return float(len(completion) % 5)


def seats_of(run: wb.Run) -> list[dict[str, Any]]:
    seats: list[dict[str, Any]] = json.loads((run.path / "placement.json").read_text())
    return seats


def pid_of(run: wb.Run, role: str, rank: int = 0) -> int:
    return next(seat["pid"] for seat in seats_of(run) if (seat["role"], seat["rank"]) == (role, rank))


def is_alive(pid: int) -> bool:
    """Whether it is there, and no zombie that only waits to be counted."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.fixture(scope="module")
def one_ray() -> Iterator[None]:
    """A private Ray that all runs of this module share: starting one takes ten seconds here."""
    cluster = connect(wb.Ray(), slots=4)
    yield
    cluster.close()


@pytest.fixture(scope="module")
def spread(one_ray: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[wb.Run]:
    """A run of four processes that has made two steps. The test that kills it comes last."""
    run = a_run(small_model, tmp_path_factory.mktemp("spread"), name="spread")
    for _ in run.train(2):
        pass
    yield run
    run.close()


def test_every_wait_of_the_start_is_told_to_its_end(spread: wb.Run) -> None:
    last = {event.record.what: event.record for event in spread.events if event.kind == "progress"}
    assert {"workers", "model", "engine"} <= last.keys()
    assert [what for what, record in last.items() if record.done < record.total] == []


def test_every_process_sits_where_the_map_says(spread: wb.Run) -> None:
    seats = seats_of(spread)
    seen = [(s["role"], s["node"], s["device"], s["uuid"], s["rank"], s["world"], s["layout"], s["group"]) for s in seats]
    assert seen == [
        ("actor", "local", "cpu:0", None, 0, 2, "ddp", "actor"),
        ("actor", "local", "cpu:1", None, 1, 2, "ddp", "actor"),
        ("rollout", "local", "cpu:2", None, 0, 1, "ddp", "rollout"),
        ("reference", "local", "cpu:3", None, 0, 1, "ddp", "reference+reward"),
        ("reward", "local", "cpu:3", None, 0, 1, "ddp", "reference+reward"),
    ]
    pids = [seat["pid"] for seat in seats]
    assert len(set(pids)) == 4
    assert pids[3] == pids[4]
    assert all(is_alive(pid) for pid in pids)
    assert os.getpid() not in pids


def test_the_mapping_is_told_when_it_is_resolved(spread: wb.Run) -> None:
    texts = [event.data["text"] for event in spread.events if event.kind == "notice"]
    (resolved,) = [text for text in texts if text.startswith("Device mapping resolved:\n")]
    assert f"actor      ddp   cpu:0 (pid {pid_of(spread, 'actor')}), cpu:1 (pid {pid_of(spread, 'actor', 1)})  [actor]" in resolved
    assert any("memory is not" in text for text in texts)


def test_the_routes_are_those_of_the_layouts_with_what_was_moved(spread: wb.Run) -> None:
    routes = {(route.phase, route.source, route.target): route for route in spread.routes}
    assert routes["update_actor", "driver", "actor"].how == "scatter"
    assert routes["update_actor", "driver", "actor"].fan.copies == 2
    sync = routes["sync", "actor", "rollout"]
    record = next(event.record for event in reversed(spread.events) if event.kind == "sync")
    assert record.bytes < sync.bytes < record.bytes + 20_000  # the weights, and what it takes to read them
    assert all(route.bytes > 0 for route in spread.routes)
    assert routes["reference", "reference", "driver"].bytes < 8 * 4 * 16 * 4 + 2_000  # 32 completions of at most 16 numbers


def test_trainers_and_engine_agree_on_every_token(spread: wb.Run) -> None:
    assert all(step.logprob_diff_max < 1e-4 for step in spread.steps)
    assert [step.adapter_version for step in spread.steps] == [1, 2]


def test_it_can_be_talked_to_stopped_and_started_again(spread: wb.Run) -> None:
    spread.generate("sort 4213=", max_tokens=4)
    done = len(spread.steps)
    spread.start(1000)
    spread.wait(until_step=done + 1)
    began = time.monotonic()
    spread.stop()
    assert time.monotonic() - began < 2
    assert spread.state == "stopped"
    done = len(spread.steps)
    for _ in spread.train(1):
        pass
    assert [step.step for step in spread.steps] == list(range(1, done + 2))


def test_a_rewards_memory_is_in_the_checkpoint(spread: wb.Run) -> None:
    state = json.loads((spread.checkpoint() / "state.json").read_text())
    assert state["reward"] == {"asked": 8 * 4 * len(spread.steps)}


def test_a_worker_that_is_killed_stops_the_run(spread: wb.Run) -> None:
    for event in ("actor", 1), ("rollout", 0):
        assert is_alive(pid_of(spread, *event))
    pids = [seat["pid"] for seat in seats_of(spread)]
    spread.start(1000)
    spread.wait(until_step=len(spread.steps) + 1)
    began = time.monotonic()
    os.kill(pid_of(spread, "actor", 1), signal.SIGKILL)
    with pytest.raises(
        WorkerError, match=r"^worker actor, rank 1 of 2, on cpu:1 of node local, pid \d+( in [a-z ]+)?: its process died"
    ) as died:
        spread.wait()
    assert time.monotonic() - began < 10
    assert "Run.restore" in died.value.fix
    assert spread.state == "failed"
    with pytest.raises(WorkerError, match=r"^worker actor, rank 1 of 2"):  # the cause, also where it is tried again
        list(spread.train(1))
    spread.close()
    assert list(filter(is_alive, pids)) == []


@pytest.fixture(scope="module")
def restored(spread: wb.Run) -> Iterator[wb.Run]:
    """The run that was killed above, in new processes on another map: sharded over two ranks, the engine one step ahead.

    Who dies is replaced. One start shows what would else take three.
    """
    run = wb.Run.restore(
        spread.path,
        reward=Lengths(),
        devices=wb.DeviceMap(actor="cpu:0-1 fsdp", rollout="cpu:2"),
        runtime=wb.Ray(timeouts={"control": 8.0}),
    )
    object.__setattr__(run.plan, "overlap", 1)
    object.__setattr__(run.plan, "restart", True)
    yield run
    run.close()


def test_a_restore_goes_on_one_step_ahead(spread: wb.Run, restored: wb.Run) -> None:
    done = len(restored.steps)
    assert done >= len(spread.steps) - 1  # the one that was recorded, and not saved, when a worker was killed
    restored.start(1000)
    restored.wait(until_step=done + 3)
    assert [step.step for step in restored.steps[: done + 3]] == list(range(1, done + 4))
    assert [step.staleness for step in restored.steps[done : done + 3]] == [0, 1, 1]
    assert restored.steps[done + 1].ahead_seconds > 0
    assert [seat["layout"] for seat in seats_of(restored) if seat["role"] == "actor"] == ["fsdp", "fsdp"]


def test_who_dies_is_replaced(restored: wb.Run) -> None:
    """After the test above, while the run goes on in its thread."""
    times = [event.kind for event in restored.events].count("restored")
    pid = pid_of(restored, "rollout")
    os.kill(pid, signal.SIGKILL)
    while is_alive(pid) or pid_of(restored, "rollout") == pid:
        time.sleep(0.05)
        assert restored.state in ("starting", "running"), restored.error
    restored.wait(until_step=len(restored.steps) + 3)
    steps = restored.steps
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    assert [event.kind for event in restored.events].count("restored") == times + 1
    assert all(step.importance_mean == pytest.approx(1, abs=0.2) for step in steps)


def test_a_rank_that_hangs_is_named(restored: wb.Run) -> None:
    """After the test above. One process is stopped, and lives; nobody is replaced any more."""
    object.__setattr__(restored.plan, "restart", False)
    pids = [seat["pid"] for seat in seats_of(restored) if seat["group"] != "driver"]
    began = time.monotonic()
    os.kill(pid_of(restored, "actor", 1), signal.SIGSTOP)
    with pytest.raises((CollectiveError, WorkerError), match=r"rank 1 of 2.* (did not arrive within 8 s|has not answered)"):
        restored.wait()
    assert time.monotonic() - began < 30
    restored.close()
    assert list(filter(is_alive, pids)) == []


PROGRAM = """
import sys
from pathlib import Path
from tests.runtime.test_ray import a_run
run = a_run(Path(sys.argv[1]), Path(sys.argv[2]), {"actor": "0"}, name="orphans", runtime="ray")
run.start(100000)
run.wait(until_step=1)
print(run.path, flush=True)
run.wait()
"""


def test_a_dead_kernel_leaves_nothing(small_model: Path, tmp_path: Path) -> None:
    before = set(SHARED_MEMORY.iterdir())
    command = [sys.executable, "-c", PROGRAM, str(small_model), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as kernel:
        assert kernel.stdout is not None
        path = next(line.strip() for line in kernel.stdout if line.startswith(str(tmp_path)))
        pids = [seat["pid"] for seat in json.loads((Path(path) / "placement.json").read_text())]
        pids += [child.pid for child in psutil.Process(kernel.pid).children(recursive=True)]  # Ray's own
        kernel.kill()
    end = time.monotonic() + 15
    while any(map(is_alive, pids)) and time.monotonic() < end:
        time.sleep(0.1)
    assert list(filter(is_alive, pids)) == []
    assert left_behind(before) == set()


def test_what_can_not_be_is_refused_before_anything_starts(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="actor and rollout have cpu:0 in common"):
        a_run(small_model, tmp_path, {"actor": "0"}, overlap=1)
    with pytest.raises(ConfigError, match="the map has 4 worker processes"):
        a_run(small_model, tmp_path, runtime="inline")
    with pytest.raises(ConfigError, match=r"no cpu:4; cpu, 4 slots has cpu:0-3"):
        a_run(small_model, tmp_path, {"actor": "0-4"})
