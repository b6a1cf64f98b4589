"""Chrome traces of ranks, made small, readable and one: what Perfetto (ui.perfetto.dev) and chrome://tracing open.

Times in them are microseconds of each machine's own wall clock, from the trace's ``baseTimeNanoseconds`` on: ranks of one machine lie true
to one another, those of several as true as their clocks.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from workbench.telemetry.profile import Mark, Trace, is_mark, is_told, kind

MOST_SLICES = 30_000  # of a rank's phase; more than that a browser opens slowly
BASE = "baseTimeNanoseconds"
Event = dict[str, Any]


def slim(trace: Trace) -> dict[str, Any]:
    """``trace`` with complete events and the names of threads alone. Only collectives keep their arguments.

    Where there are more than ``MOST_SLICES``, the shortest that are no collectives are left out, and ``leftOut`` says how many.
    """
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X" and isinstance(event.get("pid"), int)]
    told = [_readable(event) for event in events if is_told(event)]
    rest = sorted((event for event in events if not is_told(event)), key=lambda event: -float(event.get("dur", 0.0)))
    room = max(0, MOST_SLICES - len(told))
    threads = (event for event in trace["traceEvents"] if event.get("ph") == "M" and event.get("name") == "thread_name")
    names = [{key: value for key, value in event.items() if key != "ts"} for event in threads]
    kept = [*told, *({key: value for key, value in event.items() if key != "args"} for event in rest[:room])]
    return {"traceEvents": [*names, *_in_order(kept)], BASE: trace.get(BASE, 0), "leftOut": max(0, len(rest) - room)}


def _readable(event: Mapping[str, Any]) -> Event:
    """A mark of the listener under a name for people."""
    if not is_mark(event):
        return dict(event)
    said = Mark.read(event["name"])
    return {**event, "name": f"{kind(said.op)} · {said.group}", "args": asdict(said)}


def joined(tracks: Sequence[tuple[str, Trace]]) -> dict[str, Any]:
    """One trace of several: ``tracks`` are (the name of a process, a trace of it), several of one name are one process. Begins at 0."""
    base = min((int(trace.get(BASE, 0)) for _, trace in tracks), default=0)
    shifted = [(name, trace, (int(trace.get(BASE, 0)) - base) / 1000) for name, trace in tracks]
    starts = (float(event["ts"]) + shift for _, trace, shift in shifted for event in trace["traceEvents"] if event["ph"] == "X")
    first = min(starts, default=0.0)
    pids: dict[str, int] = {}
    events: list[Event] = []
    for name, trace, shift in shifted:
        host = next((event["pid"] for event in trace["traceEvents"] if event.get("cat") == "user_annotation"), None)
        for event in trace["traceEvents"]:
            part = name if event["pid"] == host or host is None else f"{name} · GPU"
            pid = pids.setdefault(part, len(pids) + 1)
            moved = {} if event["ph"] == "M" else {"ts": round(float(event["ts"]) + shift - first, 3)}
            events.append({**event, **moved, "pid": pid, "tid": _thread(event)})
    heads = [head for name, pid in pids.items() for head in _heads(name, pid)]
    unique = {json.dumps([event["pid"], event["tid"]]): event for event in events if event["ph"] == "M"}
    left = sum(int(trace.get("leftOut", 0)) for _, trace in tracks)
    timed = _in_order([event for event in events if event["ph"] == "X"])
    base_ns = base + round(first * 1000)
    return {"traceEvents": [*heads, *unique.values(), *timed], "displayTimeUnit": "ms", BASE: base_ns, "leftOut": left}


def _heads(name: str, pid: int) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}


def _thread(event: Mapping[str, Any]) -> int:
    tid = event.get("tid", 0)
    return tid if isinstance(tid, int) else 0


def _in_order(events: Iterable[Mapping[str, Any]]) -> list[Event]:
    """By begin; of two that begin together the longer one, which holds the other, first."""
    return [dict(event) for event in sorted(events, key=lambda event: (float(event["ts"]), -float(event.get("dur", 0.0))))]
