"""Where the GPUs of a node stand: rows of NUMA areas with a slot for each GPU."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from workbench.topology.devices import GPU, Numa
from workbench.topology.topology import Topology


@dataclass(frozen=True)
class Sizes:
    """Lengths in pixels. ``head``: of a GPU's tile, above its chips."""

    pad: float
    area_gap: float
    area_pad: float
    tile_gap: float
    head: float
    text: float

    def inner(self, areas: int, tiles: int) -> float:
        """All that is no tile in a row of a node."""
        return 2 * self.pad + (areas - 1) * self.area_gap + 2 * areas * self.area_pad + (tiles - areas) * self.tile_gap

    @property
    def with_memory(self) -> "Sizes":
        """With room for the line of words and for the bar of the memory below it."""
        return replace(self, head=52)


WIDE = Sizes(pad=12, area_gap=10, area_pad=7, tile_gap=6, head=42, text=10.5)
COMPACT = Sizes(pad=8, area_gap=5, area_pad=4, tile_gap=4, head=24, text=10)
Groups = list[list[list[GPU]]]  # rows of areas of GPUs
IN_ROW, IN_MESH = 8, 16  # GPUs side by side; more where lines run between them
LANE, CHIP = 21.0, 18.0  # pixels: from one chip to the next, and its height


@dataclass(frozen=True)
class Slot:
    """The place of one GPU."""

    gpu: GPU
    x: float
    width: float

    @property
    def right(self) -> float:
        """Where it ends."""
        return self.x + self.width

    @property
    def middle(self) -> float:
        """Half way."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Area:
    """The GPUs near the CPUs of one NUMA node, side by side."""

    numa: Numa
    x: float
    width: float
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class Row:
    """Areas side by side."""

    areas: tuple[Area, ...]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """All slots from left to right."""
        return tuple(slot for area in self.areas for slot in area.slots)

    def span(self, ids: Sequence[str]) -> tuple[Slot, Slot] | None:
        """The first and the last slot of some devices; None where none of them is here."""
        found = [slot for slot in self.slots if slot.gpu.id in ids]
        return (found[0], found[-1]) if found else None

    def is_together(self, ids: Sequence[str]) -> bool:
        """Whether some devices stand side by side here, nobody between them."""
        at = [position for position, slot in enumerate(self.slots) if slot.gpu.id in ids]
        return len(at) == len(ids) and at == list(range(at[0], at[0] + len(at)))


def grouped(topology: Topology, node: str) -> Groups:
    """The GPUs of a node: rows of areas of GPUs near the same CPUs. An area that is too large for a row is continued in the next."""
    gpus = [gpu for gpu in topology.gpus if gpu.node == node]
    most = IN_MESH if has_mesh(topology, node) else IN_ROW
    rows: Groups = []
    for near in dict.fromkeys((gpu.numa, gpu.cpus) for gpu in gpus):
        members = sorted((gpu for gpu in gpus if (gpu.numa, gpu.cpus) == near), key=lambda gpu: gpu.index)
        for part in (members[at : at + most] for at in range(0, len(members), most)):
            if rows and sum(map(len, rows[-1])) + len(part) <= most:
                rows[-1].append(part)
            else:
                rows.append([part])
    return rows


def has_mesh(topology: Topology, node: str) -> bool:
    """Whether some GPUs of the node are linked, but not all alike, so that lines have to be drawn."""
    return any(not is_even(topology, members) for members in islands(topology, node))


def islands(topology: Topology, node: str) -> Iterator[tuple[str, ...]]:
    """The islands of two GPUs and more, as far as they are on the node."""
    here = {gpu.id for gpu in topology.gpus if gpu.node == node}
    for island in topology.islands:
        members = tuple(id for id in island if id in here)
        if len(members) > 1:
            yield members


def is_even(topology: Topology, members: Sequence[str]) -> bool:
    """Whether all members are linked with one another over the same number of links, as far as the source said it of most pairs."""
    inside = set(members)
    links = [link for link in topology.links if link.a in inside and link.b in inside]
    return len({link.name for link in links}) == 1 and 2 * len(links) >= pairs(members)


def pairs(members: Sequence[str]) -> int:
    """How many pairs there are among some devices."""
    return len(members) * (len(members) - 1) // 2


def place(groups: Groups, x: float, width: float, sizes: Sizes) -> tuple[Row, ...]:
    """The rows of a node whose box begins at ``x`` and is ``width`` wide; its widest row fills it."""
    tile = min((width - sizes.inner(len(row), sum(map(len, row)))) / sum(map(len, row)) for row in groups)
    return tuple(_row(row, x, tile, sizes) for row in groups)


def natural_width(groups: Groups, sizes: Sizes, tile: float) -> float:
    """How wide a node is whose tiles are ``tile`` wide."""
    return max(sizes.inner(len(row), sum(map(len, row))) + tile * sum(map(len, row)) for row in groups)


def _row(row: list[list[GPU]], x: float, tile: float, sizes: Sizes) -> Row:
    areas, left = [], x + sizes.pad
    for gpus in row:
        begin = left + sizes.area_pad
        slots = tuple(Slot(gpu, begin + at * (tile + sizes.tile_gap), tile) for at, gpu in enumerate(gpus))
        width = slots[-1].right + sizes.area_pad - left
        areas.append(Area(gpus[0].numa, left, width, slots))
        left += width + sizes.area_gap
    return Row(tuple(areas))
