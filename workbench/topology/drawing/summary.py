"""Many GPUs in few shapes: a card for all nodes that are alike, with a bar for what their GPUs do, as far as it reaches.

Nobody can read a thousand tiles. Each step here goes once through the GPUs or through the links.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from workbench.topology.devices import GPU
from workbench.topology.drawing.casting import Casting, Chip
from workbench.topology.drawing.grid import CHIP, LANE, pairs
from workbench.topology.drawing.node import kinds, lanes
from workbench.topology.drawing.scene import Item, Rect, Text, cut, fit
from workbench.topology.drawing.tile import badges, bar
from workbench.topology.links import LinkKind, kind_of
from workbench.topology.topology import Topology

MOST_TILES = 64  # GPUs; more are drawn as cards
MOST_CARDS, IN_ROW = 32, 4
MOST_RUNS = 24  # bars in a line; more would be too narrow to be seen
GAP, PAD, HEAD, LINE = 10.0, 10.0, 24.0, 14.0


@dataclass(frozen=True)
class Run:
    """A bar over neighbours: from which GPU of the node to which, as numbers from 0, and how many of these do it."""

    begin: int
    end: int
    count: int
    chip: Chip


@dataclass(frozen=True)
class Card:
    """What is to be said of a node, its name apart. ``lines``: of bars; ``numbers``: of the notes that concern some GPU of it."""

    size: int
    words: tuple[str, ...]
    lines: tuple[tuple[Run, ...], ...]
    numbers: tuple[int, ...]

    @property
    def height(self) -> float:
        """In pixels, with one line for each of its words."""
        return HEAD + LINE * len(self.words) + LANE * len(self.lines) + PAD


def draw_cards(topology: Topology, casting: Casting, x: float, y: float, width: float) -> tuple[list[Item], float]:
    """Cards side by side, and where they end. Nodes of which the same is to be said have one."""
    alike: dict[Card, list[str]] = {}
    for node, card in _cards(topology, casting):
        alike.setdefault(card, []).append(node)
    shown = list(alike.items())[:MOST_CARDS]
    columns = min(IN_ROW, len(shown))
    each = (width - GAP * (columns - 1)) / columns
    items: list[Item] = []
    for row in (shown[at : at + columns] for at in range(0, len(shown), columns)):
        height = max(card.height for card, _ in row)
        for at, (card, nodes) in enumerate(row):
            left = x + at * (each + GAP)
            items.append(Rect(left, y, each, height, "node", "edge", 9, hint=", ".join(nodes[:100])))
            items += _draw(card, _titles(topology, nodes, card.size), casting, left + PAD, y, each - 2 * PAD)
        y += height + GAP
    rest = [node for nodes in list(alike.values())[MOST_CARDS:] for node in nodes]
    if rest:
        items.append(Text(x, y + 10, cut(f"and {len(rest)} more nodes: {', '.join(rest[:20])}", width, 11), 11, "muted"))
        y += 24
    return items, y


def _cards(topology: Topology, casting: Casting) -> Iterator[tuple[str, Card]]:
    gpus: dict[str, list[GPU]] = {}
    for gpu in topology.gpus:
        gpus.setdefault(gpu.node, []).append(gpu)
    links, islands = _names(topology), _islands(topology)
    for node, here in gpus.items():
        chips = [casting.chips.get(gpu.id, ()) for gpu in here]
        lines = tuple(tuple(_runs(chips, some)) for some in lanes(here, casting))
        idle = sum(not one for one in chips) if casting.chips else 0
        words = (kinds(here), *_wires(here, links.get(node, Counter()), islands.get(node, Counter())))
        words += (f"{idle} mapped to nothing",) if idle else ()
        numbers = sorted({number for gpu in here for number in casting.numbers(gpu.id)})
        yield node, Card(len(here), words, lines, tuple(numbers))


def _names(topology: Topology) -> dict[str, Counter[str]]:
    """Node -> how many links of which name there are within it."""
    node = {gpu.id: gpu.node for gpu in topology.gpus}
    found: dict[str, Counter[str]] = {}
    for (one, other, name), count in Counter((node.get(link.a), node.get(link.b), link.name) for link in topology.links).items():
        if one is not None and one == other:
            found.setdefault(one, Counter())[name] += count
    return found


def _islands(topology: Topology) -> dict[str, Counter[int]]:
    """Node -> how many islands of two GPUs and more there are, by their size on it."""
    node = {gpu.id: gpu.node for gpu in topology.gpus}
    found: dict[str, Counter[int]] = {}
    for island in topology.islands if topology.links else ():
        for name, size in Counter(node[id] for id in island).items():
            if size > 1:
                found.setdefault(name, Counter())[size] += 1
    return found


def _wires(gpus: Sequence[GPU], names: Mapping[str, int], islands: Mapping[int, int]) -> Iterator[str]:
    """What lies between the GPUs of a node, the direct links first."""
    total, known = pairs([gpu.id for gpu in gpus]), sum(names.values())
    direct = {name: count for name, count in names.items() if kind_of(name).is_fabric}
    said = ", ".join(sorted(direct)[:3])
    if direct and set(direct.values()) == {total}:
        yield f"all to all · {said}"
    elif direct:
        sizes = " and ".join(f"{count} of {size}" for size, count in sorted(islands.items(), reverse=True)[:3])
        yield f"islands: {sizes} · {said}"
    others = {kind_of(name) for name in names if name not in direct}
    if others:
        yield ("else " if direct else "no NVLink · ") + ", ".join(kind.value for kind in LinkKind if kind in others)
    if known < total and gpus[0].kind != "cpu":
        yield "? links not known" if not known else f"? {total - known} of {total} links not known"


def _runs(chips: Sequence[Sequence[Chip]], some: Sequence[str]) -> Iterator[Run]:
    """Neighbours that do the same as one bar; where they change too often, all as one."""
    mine = [(at, next((chip for chip in one if chip.lane in some), None)) for at, one in enumerate(chips)]
    parts = [list(part) for _, part in groupby(mine, key=lambda pair: pair[1] and (pair[1].lane, pair[1].hollow))]
    runs = [_run(part[0][0], part[-1][0] + 1, len(part), part[0][1]) for part in parts if part[0][1] is not None]
    if len(runs) > MOST_RUNS:
        runs = [_run(runs[0].begin, runs[-1].end, sum(run.count for run in runs), runs[0].chip)]
    yield from runs


def _run(begin: int, end: int, count: int, chip: Chip) -> Run:
    """The bar says on how many GPUs, and not which group of which node it is: other nodes may be alike."""
    of = f" of {end - begin}" if count < end - begin else ""
    said = f"{chip.lane} on {count}{of}"
    return Run(begin, end, count, Chip(chip.lane, chip.colour, (said, chip.lane, chip.texts[-1]), "", chip.hollow, said))


def _draw(card: Card, titles: Sequence[str], casting: Casting, x: float, y: float, width: float) -> Iterator[Item]:
    """The title and numbers, the words, the bars."""
    room = max(18.0, width / 3) if card.numbers else 0.0
    title = fit(titles, width - room, 12, bold=True) or cut(titles[-1], width - room, 12, bold=True)
    yield Text(x, y + 18, title, 12, bold=True)
    yield from badges(card.numbers, casting, x + width - 8, y + 13, room)
    y += HEAD
    for words in card.words:
        yield Text(x, y + 10, cut(words, width, 10), 10, "muted")
        y += LINE
    y += 4
    for line in card.lines:
        yield Rect(x, y, width, CHIP, "area", radius=3)
        for run in line:
            begin, end = x + width * run.begin / card.size, x + width * run.end / card.size
            yield from bar(run.chip, begin, y, max(4.0, end - begin))
        y += LANE


def _titles(topology: Topology, nodes: Sequence[str], size: int) -> tuple[str, ...]:
    """The longest first: "node1 ... node64: 64 alike"."""
    if len(topology.nodes) == 1:
        return (f"{'Slots' if topology.is_cpu else 'GPUs'} 0 to {size - 1}",)
    if len(nodes) == 1:
        return (nodes[0],)
    return f"{nodes[0]} ... {nodes[-1]}: {len(nodes)} alike", f"{nodes[0]} ... ({len(nodes)} alike)", f"{len(nodes)} nodes alike"
