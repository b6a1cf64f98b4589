"""Traces made small and put together."""

from typing import Any

from workbench.telemetry import profile_trace
from workbench.telemetry.profile import Mark
from workbench.telemetry.profile_trace import joined, slim


def event(name: str, ts: float, dur: float, pid: Any = 7, tid: Any = 1, cat: str = "cpu_op", **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def thread(pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "ts": 3.0, "pid": pid, "tid": tid, "args": {"name": name}}


def test_a_slim_trace_keeps_threads_and_slices_and_of_collectives_what_they_say():
    mark = Mark("allreduce_", "actor.gradients", (0, 1), 8, 8)
    raw = [
        thread(7, 1, "thread 1"),
        event("aten::mm", 20, 5, Ev=3),
        event("outer", 10, 30),
        event("inner", 10, 4),
        event(str(mark), 12, 3, cat="user_annotation"),
        {"ph": "s", "name": "ac2g", "id": 1, "pid": 7, "tid": 1, "ts": 1},
        event("PyTorch Profiler (0)", 0, 99, pid="Spans", tid="PyTorch Profiler", cat="Trace"),
    ]
    small = slim({"traceEvents": raw, "baseTimeNanoseconds": 5})
    assert [one["name"] for one in small["traceEvents"]] == ["thread_name", "outer", "inner", "all_reduce · actor.gradients", "aten::mm"]
    assert "args" not in small["traceEvents"][4]
    assert small["traceEvents"][3]["args"] == {
        "op": "allreduce_",
        "group": "actor.gradients",
        "ranks": (0, 1),
        "bytes": 8,
        "given": 8,
        "peer": None,
    }
    assert (small["baseTimeNanoseconds"], small["leftOut"]) == (5, 0)


def test_of_too_many_slices_the_shortest_are_left_out_and_collectives_stay(monkeypatch):
    monkeypatch.setattr(profile_trace, "MOST_SLICES", 3)
    raw = [event(f"op{n}", n, n) for n in range(5)] + [event("gloo:send", 9, 0.1)]
    small = slim({"traceEvents": raw})
    assert [one["name"] for one in small["traceEvents"]] == ["op3", "op4", "gloo:send"]
    assert small["leftOut"] == 3


def test_joined_traces_are_processes_with_names_on_one_clock_from_zero():
    phase = {"cat": "user_annotation"}
    one = {
        "traceEvents": [
            thread(7, 1, "thread 1"),
            event("rollout", 100.0, 5, **phase),
            event("ncclDevKernel", 102.0, 1, pid=0, tid=20, cat="kernel"),
        ],
        "baseTimeNanoseconds": 1_000_000,
    }
    again = {"traceEvents": [thread(7, 1, "thread 1"), event("sync", 200.0, 5, **phase)], "baseTimeNanoseconds": 1_000_000}
    other = {"traceEvents": [event("rollout", 98.0, 5, pid=8, **phase)], "baseTimeNanoseconds": 1_004_000, "leftOut": 2}
    whole = joined(
        [("actor · rank 0 of 2 · local:0", one), ("actor · rank 1 of 2 · local:1", other), ("actor · rank 0 of 2 · local:0", again)]
    )
    named = {one["pid"]: one["args"]["name"] for one in whole["traceEvents"] if one["name"] == "process_name"}
    assert named == {1: "actor · rank 0 of 2 · local:0", 2: "actor · rank 0 of 2 · local:0 · GPU", 3: "actor · rank 1 of 2 · local:1"}
    # the other's base is 4 µs later: it begins at 98 + 4, 2 µs after the first
    timed = [(one["name"], one["pid"], one["ts"]) for one in whole["traceEvents"] if one["ph"] == "X"]
    assert timed == [("rollout", 1, 0.0), ("rollout", 3, 2.0), ("ncclDevKernel", 2, 2.0), ("sync", 1, 100.0)]
    assert [one["args"] for one in whole["traceEvents"] if one["name"] == "thread_name"] == [{"name": "thread 1"}]
    assert (whole["baseTimeNanoseconds"], whole["leftOut"]) == (1_100_000, 2)


def test_nothing_joined_is_an_empty_trace():
    assert joined([])["traceEvents"] == []
