"""The links between GPUs as they are drawn below them: all to all as one band, a mesh as bows, as thick as it has links."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from workbench.topology.drawing.grid import Row, Slot, is_even, pairs
from workbench.topology.drawing.scene import Arc, Item, Line, Rect, Text, fit
from workbench.topology.links import Link, LinkKind
from workbench.topology.topology import Topology

BAND, TRACK = 20.0, 27.0  # pixels: height of a band, and from one to the next
PORTS = 18  # NVLinks that the GPUs of today have at most; more to all others than this goes through switches
NEAREST, FARTHEST = 20.0, 92.0  # depth of bows, from a neighbour to the far end of a row
THIN, THICK = 1.4, 7.0
_STUB = 3.0


def fabric(topology: Topology, row: Row, members: Sequence[tuple[str, ...]], y: float) -> tuple[list[Item], float]:
    """The shapes of the islands ``members`` below tiles that end at ``y``, and how much room they take. ``y`` + 8 is free of tiles."""
    here = {slot.gpu.id for slot in row.slots}
    parts = [(island, tuple(id for id in island if id in here)) for island in members]
    even = [(island, part) for island, part in parts if part and is_even(topology, island)]
    uneven = [part for island, part in parts if len(part) > 1 and not is_even(topology, island)]
    items: list[Item] = []
    stubs: list[Item] = []
    depth = 0.0
    for (island, part), track in zip(even, tracks([_reach(row, part) for _, part in even]), strict=True):
        top = y + 16 + track * TRACK
        stubs += [Line(slot.middle, y, slot.middle, top, "wire", _STUB) for slot in row.slots if slot.gpu.id in part]
        items += _band(topology, row, island, part, top)
        depth = max(depth, 16 + track * TRACK + BAND)
    for part in uneven:
        drawn = mesh(topology, row, part, y)
        items += drawn
        depth = max([depth, *(arc.depth + arc.width for arc in drawn)])
    return [*stubs, *items], depth + 8 if depth else 0.0


def tracks(spans: Sequence[tuple[float, float]]) -> list[int]:
    """For each span (begin, end) the first track in which it overlaps none before it."""
    ends: list[float] = []
    found = [0] * len(spans)
    for at in sorted(range(len(spans)), key=lambda at: spans[at]):
        begin, end = spans[at]
        free = next((track for track, last in enumerate(ends) if last < begin), len(ends))
        ends[free:] = [end, *ends[free + 1 :]]
        found[at] = free
    return found


def _reach(row: Row, part: Sequence[str]) -> tuple[float, float]:
    ends = row.span(part)
    return (ends[0].x, ends[1].right) if ends else (0.0, 0.0)


def _band(topology: Topology, row: Row, island: Sequence[str], part: Sequence[str], y: float) -> Iterator[Item]:
    begin, end = _reach(row, part)
    links = [link for a, b in combinations(island, 2) if (link := topology.link(a, b))]
    options = _words(links, len(island), len(part))
    unknown = len(links) < pairs(island)
    yield Rect(begin, y, end - begin, BAND, "band", "wire", 4, dashed=unknown, hint=f"{options[0]} ({links[0].source})")
    yield Text((begin + end) / 2, y + 14, fit(options, end - begin - 10, 10.5), 10.5, anchor="middle")


def _words(links: Sequence[Link], count: int, here: int) -> tuple[str, ...]:
    """What a band says, the longest form first. More NVLinks than a GPU has ports must be switched."""
    link = links[0]
    if link.kind is LinkKind.XGMI:
        how = "Infinity Fabric, all to all" if count > 2 else "Infinity Fabric"
    elif count == 2:
        how = "NVLink"
    else:
        how = "NVSwitch, all to all" if link.lanes * (count - 1) > PORTS else "NVLink, all to all"
    missing = count * (count - 1) // 2 - len(links)
    how += f" but for {missing} pairs not known" if missing else ""
    more = f" with {count - here} more" if count > here else ""
    speeds = [one.gb_per_s for one in links if one.gb_per_s is not None]
    speed = f" · about {min(speeds):.0f} GB/s" if speeds else ""
    return f"{how}{more} · {link.name}{speed}", f"{how}{more} · {link.name}", f"{link.name}{speed}", link.name


def mesh(topology: Topology, row: Row, part: Sequence[str], y: float) -> list[Arc]:
    """A bow for each link, at ports of its own along the lower edges of the two tiles."""
    order = {slot.gpu.id: at for at, slot in enumerate(row.slots)}
    here = set(part)
    links = [link for link in topology.links if link.kind.is_fabric and link.a in here and link.b in here]
    ends: dict[str, list[Link]] = {id: [] for id in part}
    for link in links:
        ends[link.a].append(link)
        ends[link.b].append(link)
    ports = {(id, link): x for id in part for link, x in _ports(id, ends[id], row.slots[order[id]], order)}
    spans = {link: abs(order[link.a] - order[link.b]) for link in links}
    step = (FARTHEST - NEAREST) / max(3, max(spans.values(), default=1) - 1)
    lanes = sorted({link.lanes for link in links})
    thick_first = sorted(links, key=lambda one: -one.lanes)
    return [_bow(link, ports, y, NEAREST + step * (spans[link] - 1), width_of(link.lanes, lanes)) for link in thick_first]


def _ports(id: str, links: Sequence[Link], slot: Slot, order: dict[str, int]) -> Iterator[tuple[Link, float]]:
    """Where the bows of one GPU begin, so that its own do not cross: near to far to the left, then far to near to the right."""
    me = order[id]

    def rank(link: Link) -> tuple[bool, int]:
        other = order[link.b if link.a == id else link.a]
        return (other > me, me - other) if other < me else (True, me - other)

    step = min(18.0, slot.width / (len(links) + 1))
    first = slot.middle - step * (len(links) - 1) / 2
    for at, link in enumerate(sorted(links, key=rank)):
        yield link, first + at * step


def _bow(link: Link, ports: dict[tuple[str, Link], float], y: float, depth: float, width: float) -> Arc:
    speed = f", about {link.gb_per_s:g} GB/s ({link.source})" if link.gb_per_s is not None else ""
    hint = f"{link.a} - {link.b}: {link.name}{speed}"
    return Arc(ports[(link.a, link)], ports[(link.b, link)], y, depth, "wire", width, hint)


def width_of(lanes: int, all_lanes: Sequence[int]) -> float:
    """How thick a bow of ``lanes`` links is, beside those with other numbers: thin the fewest, thick the most."""
    few, many = min(all_lanes), max(all_lanes)
    return THIN if few == many else THIN + (min(THICK, THIN * many / few) - THIN) * (lanes - few) / (many - few)
