"""One node as a box: its NUMA areas with network cards and switches, its GPUs with what they do, the links below them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from workbench.topology.devices import GPU
from workbench.topology.drawing.casting import Casting
from workbench.topology.drawing.fabric import fabric, width_of
from workbench.topology.drawing.grid import LANE, Area, Row, Sizes, is_even, islands, pairs
from workbench.topology.drawing.pcie import Near, draw_pcie, nearest, pcie, pcie_height
from workbench.topology.drawing.scene import Item, Line, Rect, Text, cut, fit, text_width, wrap
from workbench.topology.drawing.tile import bars, memory, tile
from workbench.topology.links import Link, LinkKind
from workbench.topology.topology import Topology

HEAD, LABEL, FOOT = 26.0, 19.0, 15.0  # pixels: a node's title, an area's label, a line at the foot


@dataclass(frozen=True)
class Node:
    """One node and where it stands. ``rows`` lie within ``x`` and ``x + width``."""

    topology: Topology
    casting: Casting
    name: str
    rows: tuple[Row, ...]
    sizes: Sizes
    x: float
    width: float

    @cached_property
    def gpus(self) -> tuple[GPU, ...]:
        """Its GPUs."""
        return tuple(gpu for gpu in self.topology.gpus if gpu.node == self.name)

    @cached_property
    def links(self) -> tuple[Link, ...]:
        """The links between two of its GPUs."""
        ids = {gpu.id for gpu in self.gpus}
        return tuple(link for link in self.topology.links if link.a in ids and link.b in ids)

    @cached_property
    def islands(self) -> tuple[tuple[str, ...], ...]:
        """Its GPUs that are linked directly."""
        return tuple(islands(self.topology, self.name))

    @cached_property
    def cards(self) -> tuple[Near, ...]:
        """Its network cards."""
        return nearest(self.topology, self.name)

    @cached_property
    def lines(self) -> list[list[str]]:
        """The lanes of its GPUs in as few lines as hold them; lanes of different GPUs share one."""
        return lanes(self.gpus, self.casting) or ([[]] if self.casting.chips else [])


def lanes(gpus: Sequence[GPU], casting: Casting) -> list[list[str]]:
    """The lanes that some GPUs have, in as few lines as hold them."""
    lines: list[tuple[list[str], set[str]]] = []
    for lane in casting.lanes:
        mine = {gpu.id for gpu in gpus if any(chip.lane == lane for chip in casting.chips.get(gpu.id, ()))}
        free = next((line for line in lines if not line[1] & mine), None)
        if free:
            free[0].append(lane)
            free[1].update(mine)
        elif mine:
            lines.append(([lane], mine))
    return [lane for lane, _ in lines]


def draw_node(node: Node, y: float) -> tuple[list[Item], float]:
    """All that is in the box of a node, from ``y`` down, and the height of the box."""
    items, begin = list(_head(node, y)), y
    y += HEAD
    for row in node.rows:
        drawn, height = _row(node, row, y)
        items += drawn
        y += height
    drawn, y = _feet(node, y + 4)
    return [*items, *drawn], y - begin + 6


def _head(node: Node, y: float) -> Iterator[Item]:
    """The name, where there are several nodes, and what its GPUs are."""
    x, width = node.x + node.sizes.pad + 2, node.width - 2 * node.sizes.pad - 4
    if len(node.topology.nodes) > 1:
        name = cut(node.name, width / 2, 12, bold=True)
        yield Text(x, y + 18, name, 12, bold=True)
        used = text_width(name, 12, bold=True) + 12
        yield Text(x + width, y + 18, cut(kinds(node.gpus), width - used, 10.5), 10.5, "muted", anchor="end")
    else:
        yield Text(x, y + 18, cut(kinds(node.gpus), width, 12, bold=True), 12, bold=True)


def kinds(gpus: Sequence[GPU]) -> str:
    """ "8 x NVIDIA A100-SXM4-80GB, 80 GiB"; several kinds joined by "+"."""
    if all(gpu.kind == "cpu" for gpu in gpus):
        return f"{len(gpus)} CPU slots, each stands for a GPU" if len(gpus) > 1 else "1 CPU slot, stands for a GPU"
    found = Counter((gpu.name, memory(gpu) if gpu.memory_gib is not None else None) for gpu in gpus)
    words = []
    for (name, size), count in found.items():
        unknown = " and ".join(word for word, known in (("type", name), ("memory", size)) if known is None)
        said = ", ".join(part for part in (name or "GPU", size) if part)
        words.append(f"{count} x {said}" + (f" ({unknown} not known)" if unknown else ""))
    return " + ".join(words)


def _row(node: Node, row: Row, y: float) -> tuple[list[Item], float]:
    """The areas, and from top to bottom: their labels, cards, brackets, tiles, links."""
    above = pcie(node.topology, row, node.cards)
    top = y + LABEL + pcie_height(above, row)
    height = node.sizes.head + LANE * len(node.lines) + (4 if node.lines else 0)
    bottom = top + height + node.sizes.area_pad
    items: list[Item] = []
    for area in row.areas:
        items += _area(node, area, y, bottom - y)
    items += draw_pcie(above, row, y + LABEL, top)
    below, depth = fabric(node.topology, row, node.islands, top + height)
    items += below
    for slot in row.slots:
        items += tile(slot, node.casting, node.sizes, top, height)
    items += bars(row, node.casting, node.lines, top + node.sizes.head)
    return items, max(bottom + 8, top + height + depth) - y


def _area(node: Node, area: Area, y: float, height: float) -> Iterator[Item]:
    yield Rect(area.x, y, area.width, height, "area", radius=6)
    label = fit(_area_words(node, area), area.width - 12, 10)
    yield Text(area.x + area.width / 2, y + 13.5, label, 10, "muted", anchor="middle")


def _area_words(node: Node, area: Area) -> tuple[str, ...]:
    if node.topology.is_cpu:
        return ("CPU of this machine", "CPU")
    gpu = area.slots[0].gpu
    number = ", ".join(map(str, gpu.numas))
    if not number:
        return (f"CPUs {gpu.cpus}", "CPUs", "") if gpu.cpus else ("CPUs not known", "CPUs ?", "?")
    cpus = (f"NUMA node {number} · CPUs {gpu.cpus}",) if gpu.cpus else ()
    return (*cpus, f"NUMA node {number}", f"NUMA {number}", number)


def _feet(node: Node, y: float) -> tuple[list[Item], float]:
    """What a picture can't show: how thick which links are, what lies between the others, what is far or not known."""
    items: list[Item] = []
    x, width = node.x + node.sizes.pad + 2, node.width - 2 * node.sizes.pad - 4
    samples = _samples(node)
    if samples:
        items += _sample_line(node, samples, x, y)
        y += FOOT + 2
    for sentence in (_others(node), _far(node), _denied(node), _unknown(node)):
        for line in wrap(sentence, width, 10.5):
            items.append(Text(x, y + 10, line, 10.5, "muted"))
            y += FOOT
    return items, y


def _samples(node: Node) -> list[Link]:
    """One link of each number of lanes that the bows have."""
    uneven = {id for island in node.islands if not is_even(node.topology, island) for id in island}
    direct = [link for link in node.links if link.kind.is_fabric and link.a in uneven]
    return list({link.lanes: link for link in sorted(direct, key=lambda one: one.lanes)}.values())


def _sample_line(node: Node, samples: Sequence[Link], x: float, y: float) -> Iterator[Item]:
    lanes = [link.lanes for link in samples]
    for link in samples:
        speed = f", about {link.gb_per_s:g} GB/s" if link.gb_per_s is not None else ""
        text = f"{link.name}{speed}"
        yield Line(x, y + 6, x + 26, y + 6, "wire", width_of(link.lanes, lanes))
        yield Text(x + 32, y + 10, text, 10.5, "muted")
        x += 32 + text_width(text, 10.5) + 18


def _others(node: Node) -> str:
    """The pairs without a direct link."""
    speeds: dict[LinkKind, float | None] = {}
    for link in node.links:
        if not link.kind.is_fabric:
            known = speeds.get(link.kind, link.gb_per_s)
            speeds[link.kind] = known if known is None or link.gb_per_s is None else min(known, link.gb_per_s)
    words = [f"{kind}, about {speed:g} GB/s" if speed else str(kind) for kind in LinkKind if kind in speeds for speed in (speeds[kind],)]
    direct = any(link.kind.is_fabric for link in node.links)
    return ("Between the other pairs: " if direct else "Between GPUs: ") + "; ".join(words) if words else ""


def _far(node: Node) -> str:
    names = [card.device or card.name for near in node.cards if not near.gpus for card in near.cards]
    verb = "is" if len(names) == 1 else "are"
    return f"{', '.join(names)} {verb} far from every GPU (SYS)" if names else ""


def _denied(node: Node) -> str:
    said = [link for link in node.links if link.p2p is not None]
    denied = [link for link in said if link.p2p is False]
    who = "no two GPUs may" if len(denied) == len(node.links) else f"{len(denied)} of {len(node.links)} pairs may not"
    return f"Peer to peer: {who} read each other's memory" if denied else ""


def _unknown(node: Node) -> str:
    total = pairs([gpu.id for gpu in node.gpus])
    missing = total - len(node.links)
    if node.topology.is_cpu or not missing:
        return ""
    return "? What lies between the GPUs is not known" if missing == total else f"? {missing} of {total} links between GPUs are not known"
