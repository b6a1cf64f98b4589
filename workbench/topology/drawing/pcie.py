"""What is drawn above the GPUs: network cards near them, and brackets over those behind one PCIe switch."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from workbench.topology.devices import NIC
from workbench.topology.drawing.fabric import tracks
from workbench.topology.drawing.grid import Row
from workbench.topology.drawing.scene import Item, Line, Rect, Text, fit, text_width
from workbench.topology.links import LinkKind
from workbench.topology.topology import Topology

CARD, CARDS, BRACKET = 15.0, 19.0, 15.0  # pixels: height of a card, from one track of cards to the next, height of a bracket
SWITCHED = (LinkKind.PIX, LinkKind.PXB)
_GAP = 4.0
Group = tuple[str, ...]


@dataclass(frozen=True)
class Near:
    """Network cards, the GPUs that they are nearest to, and by what."""

    kind: LinkKind
    gpus: Group
    cards: tuple[NIC, ...]


@dataclass(frozen=True)
class Pcie:
    """What stands above one row. ``brackets``: (class, GPUs), those of PXB over those of PIX."""

    brackets: tuple[tuple[LinkKind, Group], ...]
    cards: tuple[Near, ...]


def nearest(topology: Topology, node: str) -> tuple[Near, ...]:
    """The cards of a node by the GPUs that each is nearest to. Over SYS all are far, which SYS says."""
    here = {gpu.id for gpu in topology.gpus if gpu.node == node}
    found: dict[tuple[LinkKind, Group], list[NIC]] = {}
    kinds = list(LinkKind)
    ways: dict[str, list[tuple[LinkKind, str]]] = {}
    for link in topology.nic_links:
        for card, gpu in ((link.a, link.b), (link.b, link.a)):
            if gpu in here:
                ways.setdefault(card, []).append((link.kind, gpu))
    for nic in topology.nics:
        if nic.node == node:
            links = ways.get(nic.id, [])
            best = min((kind for kind, _ in links), key=kinds.index, default=LinkKind.SYS)
            near = tuple(id for id in topology.ids if (best, id) in links)
            found.setdefault((best, near if best is not LinkKind.SYS else ()), []).append(nic)
    return tuple(Near(kind, gpus, tuple(cards)) for (kind, gpus), cards in found.items())


def pcie(topology: Topology, row: Row, near: Sequence[Near]) -> Pcie:
    """What of it concerns one row."""
    cards = tuple(one for one in near if one.gpus and one.gpus[0] in {slot.gpu.id for slot in row.slots})
    single = _groups(topology, row, near, (LinkKind.PIX,))
    several = [group for group in _groups(topology, row, near, SWITCHED) if group not in single]
    shown = [(LinkKind.PXB, group) for group in several] + [(LinkKind.PIX, group) for group in single]
    return Pcie(tuple((kind, group) for kind, group in shown if len(group) > 1 and row.is_together(group)), cards)


def _groups(topology: Topology, row: Row, near: Sequence[Near], kinds: Sequence[LinkKind]) -> list[Group]:
    """GPUs of the row that ``kinds`` join: by what lies between them, or by a card that is so near to all of them."""
    ids = [slot.gpu.id for slot in row.slots]
    joined = [{link.a, link.b} for link in topology.links if link.kind in kinds and link.a in ids and link.b in ids]
    joined += [set(one.gpus) & set(ids) for one in near if one.kind in kinds]
    groups: list[set[str]] = []
    for some in joined:
        touching = [group for group in groups if group & some]
        groups = [group for group in groups if not group & some] + [some.union(*touching)]
    return sorted((tuple(id for id in ids if id in group) for group in groups if group), key=lambda group: ids.index(group[0]))


def pcie_height(part: Pcie, row: Row) -> float:
    """Pixels above the tiles."""
    levels = len({kind for kind, _ in part.brackets})
    rows = max(tracks(_spans(part, row)), default=-1) + 1
    return rows * CARDS + levels * BRACKET + (4 if rows or levels else 0)


def _spans(part: Pcie, row: Row) -> list[tuple[float, float]]:
    ends = [row.span(one.gpus) for one in part.cards]
    return [(first.x, last.right) for first, last in filter(None, ends)]


def draw_pcie(part: Pcie, row: Row, y: float, bottom: float) -> Iterator[Item]:
    """The shapes, from ``y`` down to the tiles at ``bottom``."""
    spans = _spans(part, row)
    at = tracks(spans)
    for one, (begin, end), track in zip(part.cards, spans, at, strict=True):
        if len(one.gpus) == 1:  # no bracket says whose it is
            yield Line((begin + end) / 2, y + track * CARDS + CARD, (begin + end) / 2, bottom, "wire", 1.2)
        yield from _cards(one, begin, end, y + track * CARDS)
    y += (max(at, default=-1) + 1) * CARDS
    for kind in (LinkKind.PXB, LinkKind.PIX):
        groups = [group for level, group in part.brackets if level is kind]
        for group in groups:
            ends = row.span(group)
            if ends:
                yield from _bracket(kind, ends[0].x + 2, ends[1].right - 2, y)
        y += BRACKET if groups else 0


def _cards(near: Near, begin: float, end: float, y: float) -> Iterator[Item]:
    """Side by side over the middle of their GPUs; where there is no room, as one with their number."""
    short = [nic.device or nic.name for nic in near.cards]
    far = "" if near.kind in SWITCHED and len(near.gpus) > 1 else f" {near.kind}"
    names = [name + far for name in short]
    if near.kind in SWITCHED and _wide(names) > end - begin:
        names = short
    widths = [text_width(name, 10) + 8 for name in names]
    if _wide(names) > end - begin:
        count = len(names)
        words = (f"{count} network cards{far}", f"{count} NICs{far}", f"{count} NICs", "NICs", str(count)) if count > 1 else ("NIC",)
        names, widths = [fit(words, end - begin - 6, 10)], [end - begin]
    hint = f"{', '.join(short)}: {near.kind.words} away from {', '.join(near.gpus)}"
    x = (begin + end - sum(widths) - _GAP * (len(names) - 1)) / 2
    for name, width in zip(names, widths, strict=True):
        yield Rect(x, y, width, CARD, "node", "edge", 3, hint=hint)
        yield Text(x + width / 2, y + 11, name, 10, "muted", anchor="middle")
        x += width + _GAP


def _wide(names: Sequence[str]) -> float:
    return sum(text_width(name, 10) + 8 for name in names) + _GAP * (len(names) - 1)


def _bracket(kind: LinkKind, begin: float, end: float, y: float) -> Iterator[Item]:
    middle, width = (begin + end) / 2, text_width(kind, 10) + 6
    height = y + 7
    for x, towards in ((begin, -1), (end, 1)):
        yield Line(x, height, x, height + 6, "wire", 1.2)
        yield Line(x, height, middle + towards * width / 2, height, "wire", 1.2)
    yield Text(middle, height + 3.5, kind.value, 10, "muted", anchor="middle")
