"""Profiled steps of real runs: on Ray with two ranks, whose bytes the layouts foretell, and in one process, which has nobody to talk to."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.runtime.conftest import learn, sample
from workbench import profiling, views
from workbench.events import EventLog
from workbench.records import Sync, Traffic
from workbench.runtime.cluster import connect
from workbench.runtime.team import Team
from workbench.telemetry.profile import ENGINE

RANK, LAYERS, HIDDEN, KEYS, INNER = 4, 2, 128, 64, 256
# q, k, v, o, gate, up, down: each has A with its inputs and B with its outputs
ADAPTER = RANK * LAYERS * (2 * HIDDEN + 2 * (HIDDEN + KEYS) + 2 * HIDDEN + 3 * (HIDDEN + INNER))
MAPS: dict[str, dict[str, Any]] = {
    "copies": {"actor": "0-1", "rollout": "0-1"},
    "sharded": {"actor": "0-1 fsdp", "rollout": {"devices": [0, 1], "tp": 2, "mode": "merged"}},
}


# ------------------------------------------------------------ one process; first, while its engine is there


def test_one_process_has_phases_and_no_collectives_and_says_so(fresh: Team, tmp_path: Path) -> None:
    log = EventLog()
    profiling.begin(fresh)
    learn(fresh, sample(fresh))
    fresh.sync(1)
    profiling.keep(profiling.end(fresh), 7, tmp_path, log, None)
    found = views.profile(log.events).steps[-1]
    assert [(one.role, one.phase) for one in found.phases] == [("rollout", "rollout"), ("actor", "update_actor"), ("actor", "sync")]
    assert all(one.record.seconds[0] > 0 and one.record.collective_seconds == [0] for one in found.phases)
    assert (found.traffic, found.links) == ((), ())
    assert "nobody to exchange anything with" in repr(views.profile(log.events))
    assert {file.name for file in (tmp_path / "profile/step-000007").iterdir()} == {"all.json", "actor-0.json", "rollout-0.json"}


def test_no_step_is_recorded_unless_asked_and_what_is_broken_off_is_dropped(fresh: Team, tmp_path: Path) -> None:
    recorder = fresh.runtime.worker
    sample(fresh)
    assert recorder.recorder is None
    profiling.begin(fresh)
    sample(fresh)
    assert len(recorder.recorder.recordings) == 1
    profiling.drop(fresh)
    assert recorder.recorder is None
    log = EventLog()
    profiling.keep(profiling.end(fresh), 1, tmp_path, log, None)
    assert [event.kind for event in log.events] == ["profiled"]


# ------------------------------------------------------------ two


@pytest.fixture(scope="module")
def one_ray(free_process: None) -> Iterator[None]:
    """A private Ray for all runs of this module."""
    cluster = connect(wb.Ray(), slots=2)
    yield
    cluster.close()


def a_run(model: Path, folder: Path, name: str) -> wb.Run:
    return wb.Run(
        wb.DeviceMap.load(MAPS[name]),
        topology=wb.Topology.cpu(slots=2),
        task=wb.tasks.sorting(),
        model=model,
        lora=wb.LoRA(rank=RANK, alpha=8),
        algo=wb.GRPO(group_size=4),
        engine=wb.VLLM(window=64, max_sequences=64, kv_cache_gib=0.1),
        sampling=wb.Sampling(prompts=8, max_tokens=8),
        reward=lambda prompt, completion, answer: float(len(completion) % 5),
        held_out=0,
        trackers=(),
        name=name,
        folder=folder,
        profile=range(1, 2),
    )


def rows_of(run: Any) -> dict[tuple[str, str, str], Traffic]:
    """(phase, group, collective) -> what was exchanged in the last profiled step."""
    return {(one.phase, one.record.group, one.record.collective): one.record for one in run.profile.steps[-1].traffic}


def check_trace(path: Path, names: set[str]) -> None:
    """A Chrome trace that loads: every slice with a place and a time, in order, in processes and threads with names."""
    events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    heads = events[: len(events) - len(slices)]
    assert {event["ph"] for event in heads} == {"M"}
    assert [event["ts"] for event in slices] == sorted(event["ts"] for event in slices)
    assert slices[0]["ts"] == 0
    assert all(event["dur"] >= 0 and type(event["pid"]) is type(event["tid"]) is int and event["name"] for event in slices)
    named = {event["pid"]: event["args"]["name"] for event in heads if event["name"] == "process_name"}
    assert {event["pid"] for event in slices} == named.keys()
    assert set(named.values()) == names
    threads = {(event["pid"], event["tid"]) for event in heads if event["name"] == "thread_name"}
    assert {(event["pid"], event["tid"]) for event in slices} <= threads


@pytest.mark.usefixtures("one_ray")
def test_copies_add_up_the_gradients_of_their_adapters(small_model: Path, tmp_path: Path) -> None:
    with a_run(small_model, tmp_path, "copies") as run:
        list(run.train(2))
        (step,) = run.profile.steps
        rows = rows_of(run)
        shown = repr(run.profile)
    gradients = rows["update_actor", "actor.gradients", "all_reduce"]
    assert (gradients.bytes, gradients.count, gradients.members) == ([4 * ADAPTER] * 2, [1, 1], [["cpu:0", "cpu:1"]])
    assert gradients.timed == "gloo"
    assert {phase for phase, _, _ in rows} == {"update_actor"}  # engines of one device each never talk, nor does the adapter's way to them
    control = rows["update_actor", "actor.control", "all_gather"].bytes[0] or 0
    assert [(link.a, link.b, link.there, link.back) for link in step.links] == [("cpu:0", "cpu:1", *[4 * ADAPTER + control // 2] * 2)]
    path = run.path / step.told.path
    assert {file.name for file in path.iterdir()} == {"all.json", *(f"{role}-{rank}.json" for role in ROLES for rank in range(2))}
    check_trace(path / "actor-1.json", {"actor · rank 1 of 2 · cpu:1"})
    check_trace(path / "all.json", {f"{role} · rank {rank} of 2 · cpu:{rank}" for role in ROLES for rank in range(2)})
    assert repr(wb.Run.load(run.path).profile) == shown


ROLES = ("actor", "reference", "rollout")


@pytest.mark.usefixtures("one_ray")
def test_shards_are_gathered_and_what_moves_to_the_engine_is_sent(small_model: Path, tmp_path: Path) -> None:
    with a_run(small_model, tmp_path, "sharded") as run:
        list(run.train(2))
        rows = rows_of(run)
        sync = [event.record for event in run.events if event.kind == "sync" and event.data["step"] == 1][-1]
    assert isinstance(sync, Sync)
    assert rows["update_actor", "actor.shards", "reduce_scatter"].bytes == [4 * ADAPTER] * 2
    # two layers and what is around them, for the forward pass, and the layers again for the backward pass; each gathers both halves
    assert min(rows["update_actor", "actor.shards", "all_gather"].count) >= 5
    sends = rows["sync", "actor.shards", "send"]
    assert sum(count or 0 for count in sends.bytes) == sync.bytes > 0
    assert rows["sync", "actor.shards", "recv"].bytes == sends.bytes[::-1]
    engine = rows["rollout", ENGINE, "all_reduce"]  # two for each layer and the embedding's
    assert engine.count[0] > 0
    assert engine.bytes[0] == engine.bytes[1]
    assert engine.members == [["cpu:0", "cpu:1"]]
