"""Two processes over gloo, recorded as workers record themselves: every byte by hand."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.models.crew import Crew
from workbench.errors import StorageError
from workbench.roles import Role
from workbench.runtime.plans import Post
from workbench.runtime.pools import Pool
from workbench.runtime.recorder import WORK, Recorder
from workbench.telemetry.profile_trace import joined
from workbench.telemetry.traffic import Recording, links, traffic

POOL = Pool((Role.ACTOR,), ("cpu:0", "cpu:1"), on_cpu=True)


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2)
    yield crew
    crew.close()


def record_known_calls() -> list[Recording]:
    """On each rank: calls of every kind, of 1000 float32 where nothing else is said."""
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    from workbench.models.ranks import Ranks

    ranks = Ranks.of_world(role="actor")
    shards = ranks.groups["shards"]
    thousand, other = torch.ones(1000), 1 - ranks.rank

    def work() -> float:
        ranks.sum(thousand, "gradients")
        ranks.sum(torch.ones((), dtype=torch.float64), "gradients")
        dist.all_gather([torch.zeros(1000), torch.zeros(1000)], thousand, group=shards)
        dist.reduce_scatter_tensor(torch.zeros(500), thousand, group=shards)
        dist.broadcast(thousand, 1)
        dist.barrier()
        functional.all_reduce(thousand.to(torch.bfloat16), "sum", shards).sum()
        messages = [torch.ones(11, dtype=torch.uint8), torch.ones(11, dtype=torch.uint8)]
        both = [dist.P2POp(dist.isend, messages[0], group=shards, group_peer=other)]
        both += [dist.P2POp(dist.irecv, messages[1], group=shards, group_peer=other)]
        for pending in dist.batch_isend_irecv(both):
            pending.wait()
        return float(thousand.sum())

    recorder = Recorder(Post(POOL, ranks.rank), "cpu")
    assert recorder.during("update", work) == 2000
    assert recorder.during("peak_memory_gib", lambda: 3) == 3  # no phase: not recorded
    recorder.during("sync", lambda: ranks.agree("ab"))
    return recorder.recordings


@pytest.fixture(scope="module")
def recorded(crew: Crew) -> list[list[Recording]]:
    found: list[list[Recording]] = crew.run(record_known_calls)
    return found


def test_every_call_is_there_with_its_group_and_bytes(recorded: list[list[Recording]]) -> None:
    for rank, (update, _) in enumerate(recorded):
        assert (update.role, update.phase, update.device, update.world) == ("actor", "update_actor", f"cpu:{rank}", ("cpu:0", "cpu:1"))
        assert [(call.collective, call.group, call.ranks, call.bytes, call.peer) for call in update.calls] == [
            ("all_reduce", "actor.gradients", (0, 1), 4000, None),
            ("all_reduce", "actor.gradients", (0, 1), 8, None),
            ("all_gather", "actor.shards", (0, 1), 8000, None),
            ("reduce_scatter", "actor.shards", (0, 1), 4000, None),
            ("broadcast", "default_pg", (0, 1), 4000, 1),
            ("barrier", "default_pg", (0, 1), 0, None),
            ("all_reduce", "actor.shards", (0, 1), 2000, None),
            ("send", "actor.shards", (0, 1), 11, 1 - rank),
            ("recv", "actor.shards", (0, 1), 11, 1 - rank),
        ]


def test_seconds_are_those_of_gloos_own_ranges(recorded: list[list[Recording]]) -> None:
    for update, _ in recorded:
        timed = {call.collective: call.timed for call in update.calls}
        assert timed == dict.fromkeys(timed, "gloo")
        assert all(0 < call.seconds < update.seconds for call in update.calls)


def test_what_ranks_agree_on_goes_over_the_control_group(recorded: list[list[Recording]]) -> None:
    """First how long each rank's answer is (8 bytes), then the answers, pickled."""
    for _, sync in recorded:
        found = [(call.collective, call.group) for call in sync.calls]
        assert found == [("monitored_barrier", "actor.control"), ("all_gather", "actor.control"), ("all_gather", "actor.control")]
        assert sync.calls[1].bytes == 2 * 8


def test_ranks_together_and_links_by_hand(recorded: list[list[Recording]]) -> None:
    updates = [update for update, _ in recorded]
    rows = {(one.record.group, one.record.collective): one.record for one in traffic(1, updates)}
    assert rows["actor.gradients", "all_reduce"].count == [2, 2]
    assert rows["actor.gradients", "all_reduce"].bytes == [4008, 4008]
    assert rows["actor.gradients", "all_reduce"].members == [["cpu:0", "cpu:1"]]
    (link,) = links(1, updates, None)
    # of two ranks each sends the whole of an all-reduce, half of a gather and of a scattered sum, the root of a broadcast all of it
    common = 4000 + 8 + 8000 // 2 + 4000 // 2 + 2000 + 11
    assert (link.a, link.b, link.there, link.back) == ("cpu:0", "cpu:1", common, common + 4000)


def test_the_trace_shows_the_phase_and_the_collectives_by_name(recorded: list[list[Recording]]) -> None:
    (update, sync), _ = recorded
    whole = joined([("actor", update.trace), ("actor", sync.trace)])
    slices = [event for event in whole["traceEvents"] if event["ph"] == "X"]
    (phase,) = [event for event in slices if event["name"] == "update_actor"]
    (gradients, _) = [event for event in slices if event["name"] == "all_reduce · actor.gradients"]
    assert phase["ts"] <= gradients["ts"] < gradients["ts"] + gradients["dur"] <= phase["ts"] + phase["dur"]
    assert gradients["args"]["bytes"] == 4000
    json.dumps(whole, allow_nan=False)


def work_that_fails() -> int:
    import torch

    def fail() -> None:
        raise ValueError("broken off")

    recorder = Recorder(Post(POOL, 0), "cpu")
    with pytest.raises(ValueError, match="broken off"):
        recorder.during("update", fail)
    assert recorder.recordings == []
    recorder.during("update", lambda: torch.ones(3).sum())  # the profiler has ended, and can begin again
    return len(recorder.recordings)


def test_of_work_that_fails_nothing_is_kept(crew: Crew) -> None:
    assert crew.run(work_that_fails) == [1, 1]


def test_every_recorded_call_is_a_workers_and_every_phase_has_one() -> None:
    from workbench.records import PHASES
    from workbench.runtime.worker import Worker

    assert all(hasattr(Worker, method) for method in WORK)
    assert {phase for _, phase in WORK.values()} == set(PHASES) - {"advantages"}  # the driver's


def hear_an_engine() -> list[Any]:
    """vLLM's operators of shared memory, stood in for by the tensors they get."""
    import torch

    from workbench.runtime.listener import _heard

    one, all_ = torch.ones(6), torch.ones(12)
    return [
        _heard("_C", "shm_allreduce", (3, one)),
        _heard("_C", "shm_all_gather", (3, one, all_)),
        _heard("_C", "rms_norm", (one, one, "auto")),
        _heard("aten", "add", (one, one)),
    ]


def test_an_engines_shared_memory_is_heard() -> None:
    reduced, gathered, *others = hear_an_engine()
    assert (reduced.op, reduced.bytes, gathered.op, gathered.bytes, gathered.given) == ("allreduce", 24, "all_gather", 48, 24)
    assert others == [None, None]


def test_a_folder_for_temporary_files_that_is_full_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    recorder = Recorder(Post(Pool((Role.ACTOR,), ("cpu:0",), on_cpu=True), 0), "cpu")
    export = torch.profiler.profile.export_chrome_trace

    def cut_off(profiler: Any, path: str) -> None:
        export(profiler, path)
        os.truncate(path, 100)

    with monkeypatch.context() as full:
        full.setattr(torch.profiler.profile, "export_chrome_trace", cut_off)
        with pytest.raises(StorageError, match=r"the trace of sync in .*: what the profiler wrote there is not whole(.|\n)*TMPDIR"):
            recorder.during("sync", lambda: 1)
    assert recorder.during("sync", lambda: 2) == 2
    assert len(recorder.recordings) == 1
