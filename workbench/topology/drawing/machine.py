"""A machine as a drawing, from top to bottom: title, key, nodes and what is beside them, what is not known, the numbered notes."""

from workbench.topology.drawing.casting import Casting
from workbench.topology.drawing.grid import COMPACT, WIDE, Groups, Sizes, grouped, natural_width, place
from workbench.topology.drawing.node import Node, draw_node
from workbench.topology.drawing.notes import asides, asides_in_a_row, draw_notes, key, unknown
from workbench.topology.drawing.scene import Item, Line, Rect, Scene, Text, cut, fit
from workbench.topology.drawing.summary import MOST_TILES, draw_cards
from workbench.topology.links import LinkKind
from workbench.topology.topology import Topology

WIDTH, MARGIN = 900.0, 20.0  # pixels; a cell of JupyterLab is about as wide
INNER = WIDTH - 2 * MARGIN
SIDE, WIDEST_SIDE, GAP = 138.0, 240.0, 12.0
LARGEST, NARROWEST = 150.0, 430.0  # the widest tile of a node that need not fill the page; the narrowest node
NETWORK = 22.0
Part = tuple[list[Item], float]  # shapes, and where they end


def draw(topology: Topology, casting: Casting | None = None) -> Scene:
    """``topology`` with what is on it. ``casting`` left out: the machine alone."""
    casting = casting or Casting()
    title, y = _title(topology)
    entries, y = key(casting, MARGIN, y, INNER)
    machine, y = _machine(topology, casting, y)
    gaps, y = unknown(topology.warnings, MARGIN, y, INNER)
    notes, y = draw_notes(casting, MARGIN, y, INNER) if casting.notes is not None else ([], y)
    paper = Rect(0, 0, WIDTH, y + 8, "paper", radius=8)
    items = (paper, *title, *entries, *machine, *gaps, *notes)
    meanings = "".join(f"; {word}: {meaning}" for word, meaning in casting.words.items())
    return Scene(WIDTH, y + 8, items, topology.name, (casting.description or _summary(topology)) + meanings)


def _title(topology: Topology) -> Part:
    name = cut(topology.name, INNER / 2, 15, bold=True)
    size = fit((_summary(topology), f"{len(topology.gpus)} GPUs"), INNER / 2 - 20, 11)
    return [Text(MARGIN, 31, name, 15, bold=True), Text(WIDTH - MARGIN, 31, size, 11, "muted", anchor="end")], 46


def _summary(topology: Topology) -> str:
    """ "16 GPUs, 2 nodes, 24 network cards", and whether that is all."""
    what = "CPU slot" if topology.is_cpu else "GPU"
    counts = [(len(topology.gpus), what), (len(topology.nodes), "node"), (len(topology.nics), "network card")]
    words = [f"{count} {name}{'' if count == 1 else 's'}" for count, name in counts if name == what or count > (name == "node")]
    return ", ".join(words) + ("" if topology.complete else " · incomplete")


def _machine(topology: Topology, casting: Casting, y: float) -> Part:
    """Nodes one below the other with what is beside them; many, or small ones, in two columns with that below them.

    More GPUs than a person can read are summed up.
    """
    if not topology.gpus:
        return [Text(MARGIN, y + 14, "There are no GPUs", 12, "muted")], y + 30
    if len(topology.gpus) > MOST_TILES:
        drawn, end = draw_cards(topology, casting, MARGIN, y, INNER)
        below, end = _below(topology, casting, end - GAP)
        return [*drawn, *below], end
    nodes = {node: grouped(topology, node) for node in topology.nodes}
    largest = max(sum(map(len, row)) for rows in nodes.values() for row in rows)
    if len(nodes) > 3 or (len(nodes) > 1 and largest <= 4):
        return _columns(topology, casting, nodes, y)
    return _stack(topology, casting, nodes, y)


def _stack(topology: Topology, casting: Casting, nodes: dict[str, Groups], y: float) -> Part:
    room = INNER - (SIDE + GAP if casting.asides else 0)
    width = min(room, max(NARROWEST, *(natural_width(groups, WIDE, LARGEST) for groups in nodes.values())))
    sizes = _sizes(WIDE, casting)
    items: list[Item] = []
    top = y
    for at, (name, groups) in enumerate(nodes.items()):
        if at:
            items += [Line(x, y, x, y + NETWORK + 2 * GAP, "wire", 2) for x in (MARGIN + width / 3, MARGIN + width * 2 / 3)]
            items += _network(topology, width, y)
            y += NETWORK + 2 * GAP
        drawn, height = draw_node(Node(topology, casting, name, place(groups, MARGIN, width, sizes), sizes, MARGIN, width), y)
        items += [Rect(MARGIN, y, width, height, "node", "edge", 9), *drawn]
        y += height
    beside, end = asides(casting.asides, MARGIN + width + GAP, top, min(WIDEST_SIDE, INNER - width - GAP))
    return [*items, *beside], max(y, end) + 14


def _columns(topology: Topology, casting: Casting, nodes: dict[str, Groups], y: float) -> Part:
    width = (INNER - GAP) / 2
    is_wide = all(sum(map(len, row)) <= 4 for groups in nodes.values() for row in groups)
    sizes = _sizes(WIDE if is_wide else COMPACT, casting)
    items: list[Item] = []
    names = list(nodes)
    for pair in (names[at : at + 2] for at in range(0, len(names), 2)):
        left = [(name, MARGIN + at * (width + GAP)) for at, name in enumerate(pair)]
        parts = [draw_node(Node(topology, casting, name, place(nodes[name], x, width, sizes), sizes, x, width), y) for name, x in left]
        height = max(height for _, height in parts)
        for (drawn, _), (_, x) in zip(parts, left, strict=True):
            items += [Rect(x, y, width, height, "node", "edge", 9), *drawn]
        y += height + GAP
    below, end = _below(topology, casting, y - GAP)
    return [*items, *below], end


def _sizes(sizes: Sizes, casting: Casting) -> Sizes:
    return sizes.with_memory if casting.memory else sizes


def _below(topology: Topology, casting: Casting, y: float) -> Part:
    """What lies between nodes, and the places beside them, below nodes that end at ``y``."""
    network = _network(topology, INNER, y) if len(topology.nodes) > 1 else []
    y += NETWORK + 2 * GAP if network else GAP
    beside, end = asides_in_a_row(casting.asides, MARGIN, y, INNER)
    return [*network, *beside], end + 14


def _network(topology: Topology, width: float, y: float) -> list[Item]:
    """A band below what ends at ``y``: what lies between nodes."""
    middle, top = MARGIN + width / 2, y + GAP
    node = {gpu.id: gpu.node for gpu in topology.gpus}
    links = [link for link in topology.links if node[link.a] != node[link.b]]
    names = list(dict.fromkeys(link.name for link in links))
    speeds = [link.gb_per_s for link in links if link.gb_per_s is not None]
    speed = f" · about {min(speeds):g} GB/s a GPU, one direction" if speeds else " · speed not known"
    what = "network" if names == [LinkKind.NETWORK.value] else f"between nodes: {', '.join(names)}" if names else "? between nodes"
    hint = links[0].source if links else ""
    text = fit((what + speed, what), width - 20, 10.5)
    return [Rect(MARGIN, top, width, NETWORK, "band", "wire", 4, hint=hint), Text(middle, top + 15, text, 10.5, anchor="middle")]
