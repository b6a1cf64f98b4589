"""The machine as a drawing with room for what changes: the tiles of the GPUs without their heads, and where each tile and chip is.

The head of a tile (its name, how busy and how full it is) is drawn by the live view as it changes, and by the static twin once.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from workbench.mapping.devices import spans
from workbench.palette import ROLE_COLOUR
from workbench.roles import Role
from workbench.topology import GPU, Topology
from workbench.topology.drawing.casting import Aside, Casting, Chip, Held
from workbench.topology.drawing.grid import CHIP, WIDE
from workbench.topology.drawing.machine import draw
from workbench.topology.drawing.scene import Circle, Item, Rect, Scene, Text, fit

Placement = Mapping[str, Sequence[str]]
HEAD = WIDE.with_memory.head  # pixels of a tile, above its chips
SHORT = {"reference": "ref"}
NAME = 12.0  # size of its type


@dataclass(frozen=True)
class Tile:
    """The place of one device: its box, and the name that has room there."""

    device: str
    name: str
    x: float
    y: float
    width: float


@dataclass(frozen=True)
class Place:
    """The place of one role on one device, or on neighbours that are drawn as one bar."""

    role: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True)
class Machine:
    """The drawing without heads, and the places in it."""

    scene: Scene
    tiles: tuple[Tile, ...]
    places: tuple[Place, ...]


def machine(topology: Topology, placement: Placement) -> Machine:
    """``topology`` with the roles of ``placement`` on it. Of more GPUs than are drawn one by one there are no tiles."""
    scene = draw(topology, _casting(topology, placement))
    boxes = dict(_boxes(scene, topology))
    tiles = tuple(Tile(gpu.id, _name(gpu, boxes[gpu.id].width), *_corner(boxes[gpu.id])) for gpu in topology.gpus if gpu.id in boxes)
    items = tuple(item for item in scene.items if not any(_in_head(item, box) for box in boxes.values()))
    return Machine(replace(scene, items=items), tiles, tuple(_places(scene)))


def bare(placement: Placement) -> Topology:
    """The devices that a run names, where nobody said what machine they are in."""
    names = dict.fromkeys(device for devices in placement.values() for device in devices)
    parts = [(node, int(number)) for node, _, number in (name.rpartition(":") for name in names) if node != "driver" and number.isdecimal()]
    gpus = tuple(GPU(number, node) for node, number in parts if node != "cpu")
    slots = tuple(GPU(number, name="CPU slot", kind="cpu") for node, number in parts if node == "cpu")
    return Topology("the devices of this run", gpus or slots)


def _casting(topology: Topology, placement: Placement) -> Casting:
    """Each role on its devices; beside the machine what is not on it. The memory is named so that its room is kept."""
    chips: dict[str, tuple[Chip, ...]] = {}
    beside: dict[str, list[tuple[str, str]]] = {}
    for name in (name for name in Role if name in placement):
        colour, devices = ROLE_COLOUR[name], placement[name]
        for device in (device for device in devices if topology.find(device)):
            chip = Chip(name, colour, (name, SHORT.get(name, ""), name[:2], ""), f"{name} {device}", hint=f"{name} on {device}")
            chips[device] = (*chips.get(device, ()), chip)
        for device in (device for device in devices if not topology.find(device)):
            title = "CPU of the driver" if device.startswith(("cpu:", "driver:")) else "not on this machine"
            beside.setdefault(title, []).append((colour, name))
        if not devices:
            beside.setdefault("service", []).append((colour, name))
    said = "; ".join(f"{role} on {spans(tuple(devices)) if devices else 'a service'}" for role, devices in placement.items())
    asides = tuple(Aside(title, tuple(dict.fromkeys(there))) for title, there in beside.items())
    room = {device: Held(0.0, None) for device in topology.ids}
    return Casting(chips or {"": ()}, lanes=tuple(Role), asides=asides, description=said, memory=room)


def _boxes(scene: Scene, topology: Topology) -> Iterator[tuple[str, Rect]]:
    """The box of each device: what a pointer is told of it begins with its name."""
    known = set(topology.ids)
    for item in scene.items:
        if isinstance(item, Rect) and (device := item.hint.split(" · ")[0]) in known:
            yield device, item


def _corner(box: Rect) -> tuple[float, float, float]:
    return box.x, box.y, box.width


def _name(gpu: GPU, width: float) -> str:
    kind = "CPU slot" if gpu.kind == "cpu" else "MIG" if gpu.mig else "GPU"
    return fit((f"{kind} {gpu.index}", str(gpu.index)), width - 12, NAME, bold=True)


def _in_head(item: Item, box: Rect) -> bool:
    """Whether a shape is within the head of a tile."""
    if isinstance(item, Text):
        return box.x <= item.x <= box.x + box.width and box.y <= item.y <= box.y + HEAD
    if isinstance(item, Circle):
        return False
    return (
        isinstance(item, Rect)
        and item is not box
        and box.x <= item.x
        and item.x + item.width <= box.x + box.width
        and box.y <= item.y
        and item.y + item.height <= box.y + HEAD
    )


def _places(scene: Scene) -> Iterator[Place]:
    """The bars of roles: the wide box of each, not the stripe at its left."""
    for item in scene.items:
        role, _, device = item.hint.partition(" on ") if isinstance(item, Rect) else ("", "", "")
        if isinstance(item, Rect) and device and role in list(Role) and item.height == CHIP:
            yield Place(role, item.x, item.y, item.width, item.height)
