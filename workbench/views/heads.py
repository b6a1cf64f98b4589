"""The heads of the tiles for the static twin: name, how busy, how full. ``topology.js`` draws the same, live."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from workbench.palette import ROLE_COLOUR
from workbench.roles import Role
from workbench.topology.drawing.scene import Item, Rect, Scene, Text, cut, fit
from workbench.views.loads import Use
from workbench.views.machine import NAME, Machine, Place, Tile
from workbench.views.text import NOTHING

PAD, BAR, SIZE = 7.0, 7.0, 10.0  # pixels: beside the bars, their height, the type of the numbers
BUSY, FULL = 31.0, 46.0  # base lines of the two numbers, from the top of the tile
ROOMY, WIDE, TIGHT = 140.0, 76.0, 32.0  # a tile with room for long numbers; what the numbers get then, and else


def with_heads(found: Machine, uses: Mapping[str, Use], status: str, at_work: Collection[str] = ()) -> Scene:
    """The whole drawing as it is at one moment. ``status``: stands beside the title; ``at_work``: roles that are marked."""
    scene = found.scene
    title, summary = (item for item in scene.items[1:3] if isinstance(item, Text))
    left, right = title.box[2] + 14, summary.box[0] - 14
    heads = [item for tile in found.tiles for item in head(tile, uses.get(tile.device))]
    marks = [item for place in found.places if place.role in at_work for item in _mark(place)]
    said = Text(left, title.y, cut(status, right - left, 11), 11, "muted", hint=status)
    return replace(scene, items=(*scene.items, said, *heads, *marks), description=f"{status}; {scene.description}")


def _mark(place: Place) -> Iterator[Item]:
    """At work: a thick outline and a sign, also for those who can't tell the colours apart."""
    yield Rect(place.x, place.y, place.width, place.height, "", "ink", 3, 2, hint=f"{place.role} is at work")
    yield Text(place.x + 8, place.y + 13, "▶", 9)


def head(tile: Tile, use: Use | None) -> Iterator[Item]:
    """One device: its name, and two bars with their numbers; a dash where nothing was sampled."""
    column = WIDE if tile.width >= ROOMY else TIGHT
    room, x = tile.width - 2 * PAD - column, tile.x + PAD
    yield Text(x, tile.y + 17, tile.name, NAME, bold=True)
    use = use or Use(tile.device)
    sampled = use.busy is not None or use.memory_gib is not None or bool(use.why)
    hint = f"{tile.device}: {', '.join(filter(None, (use.why, use.facts))) or 'how busy, and how full'}"
    yield from _row(tile, BUSY, room, use.busy, (_percent(use.busy) if sampled else NOTHING,), hint)
    yield from _row(tile, FULL, room, None, memory_words(use) if sampled else (NOTHING,), hint)
    yield from _filled(use, x, tile.y + FULL - BAR, room)


def _row(tile: Tile, y: float, room: float, share: float | None, words: tuple[str, ...], hint: str) -> Iterator[Item]:
    x, top = tile.x + PAD, tile.y + y - BAR
    yield Rect(x, top, room, BAR, "band", radius=2, hint=hint)
    if share:
        yield Rect(x, top, max(1.0, room * min(1.0, share)), BAR, "wire", radius=2, hint=hint)
    text = fit(words, tile.width - 2 * PAD - room + 2, SIZE) or words[-1]
    yield Text(tile.x + tile.width - PAD, tile.y + y, text, SIZE, anchor="end", hint=hint)


def _percent(share: float | None) -> str:
    return "n/a" if share is None else f"{share:.0%}"


def memory_words(use: Use) -> tuple[str, ...]:
    """What it holds, the longest form first."""
    if use.memory_gib is None:
        return ("n/a",)
    if use.total_gib is None:
        return f"{use.memory_gib:.1f} GiB", f"{use.memory_gib:.0f} G"
    return f"{use.memory_gib:.1f} of {use.total_gib:.0f} GiB", f"{use.memory_gib:.0f}/{use.total_gib:.0f}", f"{use.memory_gib:.0f}"


def _filled(use: Use, x: float, y: float, room: float) -> Iterator[Item]:
    """The memory bar: a part for each process in the colour of its first role, the rest grey."""
    if use.memory_gib is None or not use.total_gib:
        return
    known = [(ROLE_COLOUR[Role(names.split(", ")[0])], gib) for names, gib in use.roles.items() if names and gib]
    rest = max(0.0, use.memory_gib - sum(gib for _, gib in known))
    for colour, gib in (*known, ("wire", rest)):
        width = room * min(1.0, gib / use.total_gib)
        if width >= 1:
            yield Rect(x, y, width - 0.5, BAR, colour, hint=f"{gib:.1f} GiB")
        x += width
