"""Traces by hand: gloo with a listener, NCCL with its records and kernels, and what tells less."""

from typing import Any

import pytest

from workbench.telemetry.profile import ENGINE, UNTOLD, Call, Mark, calls, is_told, kind

WORLD = {
    "backend": "nccl",
    "world_size": 4,
    "pg_config": [
        {"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1, 2, 3]},
        {"pg_name": "3", "pg_desc": "actor.gradients", "ranks": [1, 3]},
    ],
}


def event(name: str, ts: float, dur: float, tid: int = 1, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def trace(*events: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"traceEvents": list(events), "distributedInfo": WORLD, **more}


def gloo(name: str, ts: float, dur: float, dims: list[int], type_: str = "float") -> dict[str, Any]:
    shapes = {"Input Dims": [dims], "Input type": [type_]}
    return event(f"gloo:{name}", ts, dur, tid=9, cat="user_annotation", **shapes)


def record(name: str, id_: int, ts: float, given: int, taken: int, **more: Any) -> dict[str, Any]:
    args = {
        "External id": id_,
        "Collective name": name,
        "In msg nelems": given,
        "Out msg nelems": taken,
        "dtype": "BFloat16",
        "Group size": 2,
        "Process Group Name": "3",
        "Process Group Description": "actor.gradients",
        "Process Group Ranks": "[1, 3]",
    }
    return event("record_param_comms", ts, 5.0, **(args | more))


def kernel(name: str, id_: int | None, ts: float, dur: float) -> dict[str, Any]:
    args = {} if id_ is None else {"External id": id_}
    return {**event(f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)", ts, dur, tid=20, cat="kernel", **args), "pid": 0}


def of(call: Call) -> tuple[Any, ...]:
    return call.collective, call.group, call.ranks, call.bytes, call.peer, round(call.seconds * 1e6, 3), call.timed


# ------------------------------------------------------------ gloo


def test_a_mark_survives_as_the_name_of_a_range():
    mark = Mark("recv_", 'odd "group"; &=%\\', (0, 2), 8, 4, peer=2)
    assert Mark.read(str(mark)) == mark
    assert Mark.read(str(Mark("barrier", "g", (0, 1), 0, 0))).peer is None
    assert not set('"\\') & set(str(mark))  # the profiler writes names into its JSON as they are


def test_gloo_takes_the_group_from_the_mark_and_the_seconds_from_its_own_range():
    mark = str(Mark("allreduce_", "actor.gradients", (0, 1), 4000, 4000))
    found = calls(trace(event(mark, 10, 30, cat="user_annotation"), event("c10d::allreduce_", 12, 20), gloo("all_reduce", 15, 70, [1000])))
    assert [of(call) for call in found] == [("all_reduce", "actor.gradients", (0, 1), 4000, None, 70, "gloo")]


def test_ranges_are_those_of_the_same_kind_and_size_in_order():
    marks = [
        event(str(Mark("allreduce_", group, (0, 1), size, size)), at, 2) for group, size, at in (("a", 40, 0), ("b", 80, 5), ("a", 40, 10))
    ]
    # of b's the thread is quicker than that of the first of a
    ranges = [gloo("all_reduce", 6, 3, [20]), gloo("all_reduce", 7, 4, [10]), gloo("all_reduce", 12, 5, [10])]
    assert [(call.group, round(call.seconds * 1e6)) for call in calls(trace(*marks, *ranges))] == [("a", 4), ("b", 3), ("a", 5)]


def test_gloo_scatters_a_sum_by_an_all_reduce():
    mark = event(str(Mark("_reduce_scatter_base_", "actor.shards", (0, 1), 8000, 8000)), 0, 2)
    (call,) = calls(trace(mark, gloo("all_reduce", 1, 9, [2000])))
    assert of(call) == ("reduce_scatter", "actor.shards", (0, 1), 8000, None, 9, "gloo")


def test_without_a_range_of_gloos_the_seconds_are_the_hosts():
    mark = event(str(Mark("monitored_barrier_", "actor.control", (0, 1), 0, 0)), 0, 50)
    inside = [gloo("recv", 5, 10, [1], "int"), gloo("send", 20, 1, [1], "int")]  # how it is done; no calls of ours
    assert [of(call) for call in calls(trace(mark, *inside))] == [("monitored_barrier", "actor.control", (0, 1), 0, None, 50, "host")]


def test_an_operator_that_nobody_listened_to_has_no_group():
    """The "control" group of a world with NCCL: of a gather the rank's own 21 bytes are written, and there are four ranks."""
    found = calls(trace(event("c10d::allgather_", 0, 4, **{"Input Dims": [[], [[21]]]}), gloo("all_gather", 2, 8, [21], "unsigned char")))
    assert [of(call) for call in found] == [("all_gather", UNTOLD, (), 84, None, 8, "gloo")]


# ------------------------------------------------------------ NCCL


def test_nccl_takes_bytes_and_group_from_the_record_and_the_seconds_from_the_kernel():
    found = calls(
        trace(
            event("c10d::allreduce_", 9, 8),
            record("allreduce", 5, 10, 100, 100),
            record("wait", 6, 16, 0, 0),
            record("_allgather_base", 8, 20, 100, 200),
            kernel("AllReduce_Sum_bf16_RING_LL", 5, 40, 30),
            kernel("AllGather_RING_LL", 8, 80, 12),
        )
    )
    assert [of(call) for call in found] == [
        ("all_reduce", "actor.gradients", (1, 3), 200, None, 30, "kernel"),
        ("all_gather", "actor.gradients", (1, 3), 400, None, 12, "kernel"),
    ]


def test_a_group_whose_ranks_are_cut_short_is_looked_up():
    short = {"Process Group Ranks": "[0, 1, ..., 63]"}
    assert [call.ranks for call in calls(trace(record("allreduce", 1, 0, 1, 1, **short)))] == [(1, 3)]
    unknown = {"Process Group Name": "77", "Process Group Description": "", **short}
    (call,) = calls(trace(record("allreduce", 1, 0, 1, 1, **unknown)))
    assert (call.group, call.ranks, call.timed) == ("group 77", (), "host")


def test_a_batch_of_sends_shares_one_kernel_that_no_record_is_linked_to():
    found = calls(
        trace(
            record("send", 1, 10, 50, 50, **{"dtype": "Byte", "Dst Rank": 3}),
            record("recv", 2, 20, 60, 60, **{"dtype": "Byte", "Rank": 0}),
            kernel("SendRecv", None, 40, 25),
            record("send", 3, 70, 8, 8, **{"dtype": "Byte", "Dst Rank": 1}),
            kernel("SendRecv", None, 90, 7),
        )
    )
    assert [of(call) for call in found] == [
        ("send", "actor.gradients", (1, 3), 50, 3, 25, "kernel"),
        ("recv", "actor.gradients", (1, 3), 60, 1, 0, "kernel"),  # its peer is written as a place in the group
        ("send", "actor.gradients", (1, 3), 8, 1, 7, "kernel"),
    ]


def test_what_is_launched_past_torch_is_counted_and_its_bytes_are_not_known():
    (call,) = calls(trace(kernel("ReduceScatter_Sum_bf16_RING_LL", 3, 0, 4)))
    assert of(call) == ("reduce_scatter", ENGINE, (), None, None, 4, "kernel")


def test_a_trace_of_one_process_has_none():
    assert (
        calls({"traceEvents": [event("aten::mm", 0, 1), {"ph": "X", "name": "PyTorch Profiler (0)", "pid": "Spans", "ts": 0, "dur": 1}]})
        == ()
    )


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("c10d::_allgather_base_", "all_gather"),
        ("c10d::allgather_into_tensor_coalesced_", "all_gather"),
        ("_c10d_functional::all_gather_into_tensor_out", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("alltoall_base_", "all_to_all"),
        ("recv_", "recv"),
        ("broadcast_", "broadcast"),
    ],
)
def test_names_of_collectives(name, collective):
    assert kind(name) == collective


def test_what_tells_of_collectives_is_kept():
    told = [kernel("AllReduce", 1, 0, 1), record("allreduce", 1, 0, 1, 1), gloo("send", 0, 1, [1]), event("c10d::barrier", 0, 1)]
    assert [is_told(one) for one in (*told, event("aten::mm", 0, 1))] == [True] * 4 + [False]
