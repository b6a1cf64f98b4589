"""What the ranks recorded of their collectives, put together: by role, phase, group and collective; and by the links that it went over.

How a library carries a collective out is not in a trace. Bytes on links are those of the plainest way: reductions and gathers go round a
ring of the group's ranks in their order, a broadcast along it, all-to-all and what goes to or from a root straight. NCCL may take a tree,
or let the switch add up; gloo halves and doubles. Sends are what they are.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from workbench.mapping.devices import node_of
from workbench.records import LinkTraffic, PhaseProfile, Traffic
from workbench.telemetry.profile import Call, Trace
from workbench.topology import Topology

ON_RING = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0}  # times that (n - 1) / n of the bytes leave each rank
ALONG = ("broadcast", "reduce")
Key = tuple[str, str, str, str]  # role, phase, group, collective


@dataclass(frozen=True)
class Recording:
    """One phase of one rank in a profiled step. ``world``: the devices of the ranks that ``calls`` name; ``seconds``: of the work."""

    role: str
    phase: str
    rank: int
    device: str
    world: tuple[str, ...]
    seconds: float
    calls: tuple[Call, ...]
    trace: Trace = field(repr=False, default_factory=dict)


@dataclass(frozen=True)
class Told:
    """A record of the event stream, and its envelope."""

    role: str
    phase: str
    record: PhaseProfile | Traffic


def phases(step: int, recordings: Sequence[Recording]) -> tuple[Told, ...]:
    """How long each rank of each role worked in each phase, and was in collectives meanwhile."""
    found: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
    for one in recordings:
        ranks = found.setdefault((one.role, one.phase), {})
        work, inside = ranks.get(one.device, (0.0, 0.0))
        ranks[one.device] = work + one.seconds, inside + sum(call.seconds for call in one.calls)
    return tuple(
        Told(role, phase, PhaseProfile(step, list(ranks), [work for work, _ in ranks.values()], [inside for _, inside in ranks.values()]))
        for (role, phase), ranks in found.items()
    )


def traffic(step: int, recordings: Sequence[Recording]) -> tuple[Told, ...]:
    """The collectives of all ranks: one record for each role, phase, group and collective, the most bytes first within a phase."""
    found: dict[Key, dict[str, list[Call]]] = {}
    worlds: dict[Key, tuple[str, ...]] = {}
    for one in recordings:
        for call in one.calls:
            key = (one.role, one.phase, call.group, call.collective)
            found.setdefault(key, {}).setdefault(one.device, []).append(call)
            worlds[key] = one.world
    told = [Told(key[0], key[1], _traffic(step, key, ranks, worlds[key])) for key, ranks in found.items()]
    order = list(dict.fromkeys((one.role, one.phase) for one in recordings))
    return tuple(sorted(told, key=lambda one: (order.index((one.role, one.phase)), -_most(one.record))))


def _traffic(step: int, key: Key, ranks: dict[str, list[Call]], world: Sequence[str]) -> Traffic:
    members = {tuple(_devices(call, world)): None for calls in ranks.values() for call in calls}
    every = [call for calls in ranks.values() for call in calls]
    return Traffic(
        step=step,
        collective=key[3],
        group=key[2],
        members=[list(group) for group in members if group],
        devices=list(ranks),
        count=[len(calls) for calls in ranks.values()],
        bytes=[None if any(call.bytes is None for call in calls) else sum(call.bytes or 0 for call in calls) for calls in ranks.values()],
        seconds=[sum(call.seconds for call in calls) for calls in ranks.values()],
        timed=" and ".join(dict.fromkeys(call.timed for call in every)),
    )


def _most(record: PhaseProfile | Traffic) -> int:
    return max((count or 0 for count in record.bytes), default=0) if isinstance(record, Traffic) else 0


def _devices(call: Call, world: Sequence[str]) -> list[str]:
    return [world[rank] for rank in call.ranks if rank < len(world)]


# ------------------------------------------------------------ over links


def links(step: int, recordings: Sequence[Recording], topology: Topology | None) -> tuple[LinkTraffic, ...]:
    """Bytes between each two devices, and what lies between them; the most first. ``topology``: None where the machine is not known."""
    sent: Counter[tuple[str, str]] = Counter()
    for one in recordings:
        for call in one.calls:
            for device, count in _sent(call, one):
                sent[one.device, device] += count
    order = list(dict.fromkeys(device for one in recordings for device in one.world))
    pairs = dict.fromkeys(tuple(sorted(pair, key=order.index)) for pair, count in sent.items() if count)
    found = [LinkTraffic(step, a, b, sent[a, b], sent[b, a], *between(topology, a, b)) for a, b in pairs]
    return tuple(sorted(found, key=lambda link: -(link.there + link.back)))


def _sent(call: Call, by: Recording) -> Iterator[tuple[str, int]]:
    """Where the bytes of a call go that leave this rank: device, bytes."""
    size, mine = len(call.ranks), by.rank
    if size < 2 or not call.bytes or mine not in call.ranks:
        return
    after = call.ranks[(call.ranks.index(mine) + 1) % size]
    if call.collective in ON_RING:
        yield by.world[after], round(ON_RING[call.collective] * (size - 1) / size * call.bytes)
    elif call.collective in ALONG:
        root = call.ranks[0] if call.peer is None else call.peer
        if (call.collective == "broadcast" and after != root) or (call.collective == "reduce" and mine != root):
            yield by.world[after], call.bytes
    elif call.collective == "send" and call.peer is not None:
        yield by.world[call.peer], call.bytes
    elif call.collective == "all_to_all":
        yield from ((by.world[rank], call.bytes // size) for rank in call.ranks if rank != mine)
    elif call.collective == "gather" and call.peer not in (None, mine):
        yield by.world[call.peer or 0], call.given
    elif call.collective == "scatter" and call.peer == mine:
        yield from ((by.world[rank], call.bytes // size) for rank in call.ranks if rank != mine)


def between(topology: Topology | None, a: str, b: str) -> tuple[str, float | None]:
    """What lies between two devices, in words, and how fast that is in GB/s, one direction; None where not known."""
    way = topology.path(a, b) if topology is not None and topology.find(a) and topology.find(b) else None
    if way is not None:
        link = topology.link(a, b) if topology is not None else None
        return f"{link.name if link else way.kind}: {way.kind.words}", way.gb_per_s
    if a.startswith("cpu:") and b.startswith("cpu:"):
        return "slots of one CPU: shared memory", None
    return ("the network" if node_of(a) != node_of(b) else "not known"), None
