"""A topology for programs: what ``workbench topo --json`` prints."""

from dataclasses import dataclass

from workbench.topology import Topology
from workbench.topology.devices import Numa


@dataclass(frozen=True)
class GpuLine:
    """One device. ``index``: its number; over several nodes its position among all."""

    index: int
    node: str
    name: str | None
    numa: Numa
    memory_gib: float | None


@dataclass(frozen=True)
class TopologyReport:
    """The whole machine. Islands, cliques and links name devices by ``index``; a link is (a, b, class) with a < b."""

    complete: bool
    gpus: tuple[GpuLine, ...]
    islands: tuple[tuple[int, ...], ...]
    cliques: tuple[tuple[int, ...], ...]
    links: tuple[tuple[int, int, str], ...]
    warnings: tuple[str, ...]


def report(topology: Topology) -> TopologyReport:
    """What there is to say of ``topology``."""
    several = len(topology.nodes) > 1
    number = {gpu.id: position if several else gpu.index for position, gpu in enumerate(topology.gpus)}
    pairs = [(number[link.a], number[link.b], link.name) for link in topology.links]
    return TopologyReport(
        complete=topology.complete,
        gpus=tuple(GpuLine(number[gpu.id], gpu.node, gpu.name, gpu.numa, gpu.memory_gib) for gpu in topology.gpus),
        islands=tuple(tuple(sorted(number[id] for id in island)) for island in topology.islands),
        cliques=tuple(tuple(sorted(number[id] for id in clique)) for clique in topology.cliques),
        links=tuple(sorted((min(a, b), max(a, b), name) for a, b, name in pairs)),
        warnings=topology.warnings,
    )
