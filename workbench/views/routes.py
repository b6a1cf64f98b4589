"""The ways that data of a role take through a machine: among its own devices, and to the roles that it gives something to."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from workbench.topology import Topology
from workbench.topology.topology import Path

GIVES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "actor": (("rollout", "weights"),),
    "rollout": (("reward", "completions"), ("reference", "completions"), ("critic", "completions"), ("actor", "completions")),
    "reward": (("critic", "rewards"), ("actor", "rewards")),
    "reference": (("actor", "log-probabilities"),),
    "critic": (("actor", "advantages"),),
}
AMONG = "among its devices"


def routes(topology: Topology, placement: Mapping[str, Sequence[str]], role: str) -> tuple[tuple[str, str], ...]:
    """What goes where, and over which way, the slowest there is: ("weights to rollout", "local:0 - local:4 (about 250 GB/s: ...)")."""
    return tuple(_routes(topology, placement, role))


def _routes(topology: Topology, placement: Mapping[str, Sequence[str]], role: str) -> Iterator[tuple[str, str]]:
    mine = placement.get(role, ())
    if len(mine) > 1:
        yield AMONG, _slowest(topology, list(combinations(mine, 2)))
    for other, what in GIVES.get(role, ()):
        if other in placement:
            yield f"{what} to {other}", _way(topology, mine, placement[other])


def _way(topology: Topology, mine: Sequence[str], theirs: Sequence[str]) -> str:
    if not mine or not theirs:
        return "over HTTP: one of them is a service"
    if set(mine) == set(theirs):
        return "the same devices: nothing crosses a link"
    return _slowest(topology, [(a, b) for a, b in product(mine, theirs) if a != b])


def _slowest(topology: Topology, pairs: Sequence[tuple[str, str]]) -> str:
    ways = [way for a, b in pairs if topology.find(a) and topology.find(b) and (way := topology.path(a, b))]
    if not ways:
        beside = any(topology.find(device) is None for pair in pairs for device in pair)
        return "through the driver's memory" if beside else "what lies between them is not known"
    return str(min(ways, key=_speed))


def _speed(way: Path) -> float:
    return way.gb_per_s if way.gb_per_s is not None else 0.0
