"""What a trace of torch.profiler says of collectives: which, over which group, how many bytes, how long.

A trace tells of one call in one of four ways:

- NCCL writes a range ``record_param_comms`` on the host, with the group, the numbers of elements and the type, and its kernel on the GPU
  carries the same "External id". A wait is a range of that name, too; it is none of ours.
- gloo writes nothing of the group. Where the recorder listened to the calls (runtime/listener.py; on CPUs it does), there is a range of its
  own around each, whose name tells (``Mark``); the work itself is a range ``gloo:all_reduce`` on a thread of the group's.
- gloo's calls that nobody listened to (beside NCCL, those of the "control" group) are bare ``c10d::`` operators: their group is ``UNTOLD``.
- vLLM calls NCCL's library past torch: there is a kernel and nothing else. Its bytes are None. On CPUs the ranks of an engine share memory
  by operators of its own, which the listener hears.

Seconds are those of the kernel where there is one, else of gloo's own range, else of the call on the host. All of them hold the wait for
the slowest rank.
"""

import math
import re
from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal
from urllib.parse import parse_qs, urlencode

Trace = Mapping[str, Any]  # a Chrome trace as torch.profiler exports it
Slice = Mapping[str, Any]  # one of its complete events: name, ts and dur in microseconds, pid, tid, args

UNTOLD = "(gloo, not told which)"
ENGINE = "(engine, past torch)"
SIZES = {  # bytes of one element, by what c10 or NCCL's records call its type
    **{"double": 8, "long": 8, "long int": 8, "float": 4, "int": 4, "half": 2, "c10::half": 2, "bfloat16": 2, "c10::bfloat16": 2},
    **{"short": 2, "char": 1, "signed char": 1, "byte": 1, "unsigned char": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1},
}
KINDS = {  # operators and records -> the collective
    **{"allreduce": "all_reduce", "allgather": "all_gather", "allgather_base": "all_gather", "allgather_into_tensor": "all_gather"},
    **{"reduce_scatter_base": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter", "all_gather_into_tensor": "all_gather"},
    **{"alltoall": "all_to_all", "alltoall_base": "all_to_all", "all_to_all_single": "all_to_all", "all_to_allv": "all_to_all"},
    **{"allreduce_sparse": "all_reduce", "recv_any_source": "recv", "broadcast_oop": "broadcast", "reduce_oop": "reduce"},
}
BARRIERS = ("barrier", "monitored_barrier")  # they move a byte or none
NO_CALL = ("wait", "init", "end_coalescing", "start_coalescing", "wait_tensor", "_wrap_tensor_autograd")


@dataclass(frozen=True)
class Call:
    """One rank's call of one collective. ``bytes``: of the largest side of it: what is reduced, gathered, scattered, or sent.

    ``given``: of what this rank puts in. ``ranks``: of the group, in its world's numbers; () where not told. ``peer``: to whom, from whom,
    or the root, where there is one. ``begin``: microseconds on the trace's clock. ``timed``: what ``seconds`` are of.
    """

    collective: str
    group: str
    ranks: tuple[int, ...]
    bytes: int | None
    given: int
    peer: int | None
    begin: float
    seconds: float
    timed: Literal["kernel", "gloo", "host"] = "host"


@dataclass(frozen=True)
class Mark:
    """What the listener tells of a call, as the name of a range. ``op``: the operator; the rest as in ``Call``."""

    op: str
    group: str
    ranks: tuple[int, ...]
    bytes: int
    given: int
    peer: int | None = None

    def __str__(self) -> str:
        # not JSON: the profiler's own file is JSON, and a quote in a name breaks it
        return "comm?" + urlencode({name: value for name, value in asdict(self).items() if value is not None}, doseq=True)

    @classmethod
    def read(cls, name: str) -> "Mark":
        """The mark that ``str`` made ``name`` of."""
        said = parse_qs(name.partition("?")[2])
        numbers = {key: int(said[key][0]) for key in ("bytes", "given", "peer") if key in said}
        return cls(
            said["op"][0], said["group"][0], tuple(map(int, said.get("ranks", ()))), numbers["bytes"], numbers["given"], numbers.get("peer")
        )


def calls(trace: Trace) -> tuple[Call, ...]:
    """All calls of collectives in ``trace``, by begin."""
    slices = [event for event in trace["traceEvents"] if event.get("ph") == "X" and isinstance(event.get("pid"), int)]
    groups = _groups(trace)
    told = [
        *((event, _marked(event)) for event in slices if is_mark(event)),
        *((event, _recorded(event, groups)) for event in slices if event["name"] == "record_param_comms" and not _is_none(event)),
    ]
    ranges = sorted((event for event in slices if event["name"].startswith("gloo:")), key=_begin)
    alone = _alone([event for event in slices if _is_bare(event)], [event for event, _ in told])
    found = sorted([*told, *((event, _bare(event, ranges, _world(trace))) for event in alone)], key=lambda pair: _begin(pair[0]))
    timed = _by_kernel(found, [event for event in slices if is_kernel(event)])
    return tuple(_by_gloo(timed, ranges))


def is_mark(event: Slice) -> bool:
    """Whether the listener wrote it."""
    return str(event["name"]).startswith("comm?")


def is_kernel(event: Slice) -> bool:
    """Whether it is NCCL's, on a GPU."""
    return event.get("cat") == "kernel" and "nccl" in str(event["name"]).lower()


def is_told(event: Slice) -> bool:
    """Whether it tells of a collective in any of the ways."""
    name = str(event["name"])
    return is_mark(event) or is_kernel(event) or name == "record_param_comms" or name.startswith(("gloo:", "nccl:", "c10d::"))


def kind(name: str) -> str:
    """The collective that an operator or a record means: "_allgather_base_" is "all_gather"."""
    plain = name.partition("::")[2] or name
    plain = plain.strip("_").lower().removesuffix("_coalesced").removesuffix("_out").strip("_")
    return KINDS.get(plain, plain)


# ------------------------------------------------------------ what a call says of itself


def _marked(event: Slice) -> Call:
    said = Mark.read(event["name"])
    return Call(kind(said.op), said.group, said.ranks, said.bytes, said.given, said.peer, *_when(event))


def _recorded(event: Slice, groups: Mapping[str, tuple[int, ...]]) -> Call:
    """Of NCCL. Ranks of a large group are cut short where they are written; the list of groups beside the trace has all of them."""
    args = event["args"]
    name, described = str(args.get("Process Group Name", "")), str(args.get("Process Group Description", ""))
    ranks = groups.get(name) or _numbers(str(args.get("Process Group Ranks", "")))
    size = SIZES.get(str(args["dtype"]).lower(), 1)
    given, taken = int(args["In msg nelems"]) * size, int(args["Out msg nelems"]) * size
    what = kind(args["Collective name"])
    return Call(
        collective=what,
        group=named(described, name),
        ranks=ranks,
        bytes=0 if what in BARRIERS else max(given, taken),
        given=0 if what in BARRIERS else given,
        peer=_peer(what, args, ranks),
        begin=_when(event)[0],
        seconds=_when(event)[1],
    )


def named(described: str, name: str) -> str:
    """What a group is called: as it was described where it was made, else by torch's number."""
    return described if described not in ("", "undefined") else f"group {name}"


def _peer(what: str, args: Mapping[str, Any], ranks: Sequence[int]) -> int | None:
    """Of a send and a receive torch writes the other's rank in the world, or in the group; of a broadcast the root's in the group."""
    for key in ("Dst Rank", "Src Rank"):
        if key in args:
            return int(args[key])
    place = args.get("Rank")
    if what not in ("send", "recv", "broadcast", "reduce", "gather", "scatter") or place is None:
        return None
    return ranks[int(place)] if 0 <= int(place) < len(ranks) else None


def _bare(event: Slice, ranges: Sequence[Slice], world: int) -> Call:
    """Of an operator alone: bytes as gloo's own range has them, since a list of tensors is written without its type.

    Of a gather that is the rank's own part; all ranks' are taken to be like it.
    """
    what = kind(event["name"])
    mine = (range_ for range_ in ranges if range_["ts"] >= event["ts"] and range_["name"].removeprefix("gloo:") == what)
    given = 0 if what in BARRIERS else _size(next(mine, event))
    return Call(what, UNTOLD, (), given * world if what == "all_gather" else given, given, None, *_when(event))


def _size(event: Slice) -> int:
    """Bytes of the largest tensor that a range was given."""
    args = event.get("args", {})
    sizes = [SIZES.get(str(one).lower(), 0) for one in args.get("Input type", ())]
    pairs = zip(args.get("Input Dims", ()), sizes, strict=False)
    return max((math.prod(dims) * size for dims, size in pairs), default=0)  # no dims: one number


def _is_bare(event: Slice) -> bool:
    name = str(event["name"])
    return name.startswith("c10d::") and kind(name) not in NO_CALL


def _is_none(event: Slice) -> bool:
    """Whether a record is of no call: a wait, a beginning."""
    return kind(str(event.get("args", {}).get("Collective name", "wait"))) in NO_CALL


def _alone(events: Sequence[Slice], told: Sequence[Slice]) -> list[Slice]:
    """Those that overlap none of ``told`` on their thread, nor lie in one another: an operator in a mark, or around a record."""
    spans: dict[Any, list[tuple[float, float]]] = defaultdict(list)
    for event in sorted(told, key=_begin):
        spans[event["tid"]].append((_begin(event), _end(event)))
    kept: list[Slice] = []
    last: dict[Any, float] = {}  # thread -> the end of the last one kept
    for event in sorted(events, key=lambda event: (_begin(event), -_end(event))):
        mine = spans[event["tid"]]
        before = bisect_left(mine, (_end(event), 0.0)) - 1  # the last that begins before this one ends
        if (before < 0 or mine[before][1] <= _begin(event)) and _begin(event) >= last.get(event["tid"], 0.0):
            kept.append(event)
            last[event["tid"]] = _end(event)
    return kept


def _begin(event: Slice) -> float:
    return float(event["ts"])


def _end(event: Slice) -> float:
    return float(event["ts"]) + float(event.get("dur", 0.0))


def _when(event: Slice) -> tuple[float, float]:
    return float(event["ts"]), float(event.get("dur", 0.0)) / 1e6


def _world(trace: Trace) -> int:
    return int(trace.get("distributedInfo", {}).get("world_size", 1))


def _groups(trace: Trace) -> dict[str, tuple[int, ...]]:
    """torch's name of a group -> its ranks, as the profiler lists them beside the events."""
    listed = trace.get("distributedInfo", {}).get("pg_config", ())
    return {str(one["pg_name"]): tuple(one["ranks"]) for one in listed if isinstance(one, dict) and isinstance(one.get("ranks"), list)}


def _numbers(text: str) -> tuple[int, ...]:
    return () if "..." in text else tuple(int(number) for number in re.findall(r"\d+", text))


# ------------------------------------------------------------ how long it took


def _by_kernel(found: Sequence[tuple[Slice, Call]], kernels: Sequence[Slice]) -> list[Call]:
    """Calls with the seconds of their kernels.

    Sends and receives of one batch share a kernel that no record is linked to: the first of the batch gets its time, the others 0.
    """
    places = {_id(event): place for place, (event, _) in enumerate(found) if event["name"] == "record_param_comms"}
    timed, unlinked = [call for _, call in found], []
    seen: set[int] = set()
    for event in sorted(kernels, key=_begin):
        place = places.get(_id(event))
        if place is None:
            unlinked.append(event)
            continue
        before = timed[place].seconds if place in seen else 0.0
        timed[place] = replace(timed[place], seconds=before + _when(event)[1], timed="kernel")
        seen.add(place)
    batches = [place for place in places.values() if place not in seen and timed[place].collective in ("send", "recv")]
    past_torch = list(_batched(timed, batches, unlinked))
    return [*timed, *past_torch]


def _batched(timed: list[Call], batches: list[int], kernels: Sequence[Slice]) -> Iterator[Call]:
    """Give each batch its kernel; what is left over are kernels that were launched past torch."""
    for event in kernels:
        mine = [place for place in batches if timed[place].begin <= event["ts"]] if "SendRecv" in event["name"] else []
        if not mine:
            yield Call(_kernel_kind(event), ENGINE, (), None, 0, None, *_when(event), timed="kernel")
        for order, place in enumerate(mine):
            timed[place] = replace(timed[place], seconds=0.0 if order else _when(event)[1], timed="kernel")
            batches.remove(place)


def _kernel_kind(event: Slice) -> str:
    """ "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)" is an all_reduce."""
    found = re.search(r"(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv)", event["name"])
    return re.sub(r"(?<!^)(?=[A-Z])", "_", found[1]).lower() if found else "unknown"


def _id(event: Slice) -> int | None:
    found: int | None = event.get("args", {}).get("External id")
    return found


def _by_gloo(found: Sequence[Call], ranges: Sequence[Slice]) -> list[Call]:
    """Calls with the seconds of gloo's own ranges: the first of that kind and size that began after the call."""
    left: dict[tuple[str, int], deque[Slice]] = defaultdict(deque)
    for event in ranges:
        left[event["name"].removeprefix("gloo:"), _size(event)].append(event)
    timed = []
    for call in sorted(found, key=lambda call: call.begin):
        mine = None if call.timed == "kernel" else _next(call, left)
        timed.append(call if mine is None else replace(call, seconds=_when(mine)[1], timed="gloo"))
    return timed


def _next(call: Call, left: Mapping[tuple[str, int], deque[Slice]]) -> Slice | None:
    kinds = (call.collective, "all_reduce") if call.collective == "reduce_scatter" else (call.collective,)  # gloo has but the latter
    for queue in (left[kind, call.given] for kind in kinds):
        while queue and queue[0]["ts"] < call.begin:
            queue.popleft()  # of a call that made several
        if queue:
            return queue.popleft()
    return None
