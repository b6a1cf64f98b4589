"""One GPU as a tile, the bars of what GPUs do, and the numbers of the notes that concern them."""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from workbench.topology.devices import GPU
from workbench.topology.drawing.casting import Casting, Chip, Held
from workbench.topology.drawing.grid import CHIP, LANE, Row, Sizes, Slot
from workbench.topology.drawing.scene import Circle, Item, Line, Rect, Text, fit, text_width

BADGE, BADGES = 8.0, 18.0  # pixels: radius of a number, and from one to the next
_VENDORS = re.compile(r"^(NVIDIA|AMD|Intel)\s+|\b(GeForce|Instinct|Tesla|Radeon)\s+")
_HATCH = 9.0
MEMORY = 5.0  # height of its bar


def gpu_name(gpu: GPU) -> str:
    """The type without its maker."""
    return _VENDORS.sub("", _VENDORS.sub("", gpu.name)) if gpu.name else "? type"


def memory(gpu: GPU) -> str:
    """Its memory, rounded."""
    return f"{gpu.memory_gib:.0f} GiB" if gpu.memory_gib is not None else "? GiB"


def tile(slot: Slot, casting: Casting, sizes: Sizes, y: float, height: float) -> Iterator[Item]:
    """The box with its title and numbers. Where others have roles and this one has none, it is dim and hatched."""
    gpu, idle = slot.gpu, bool(casting.chips) and not casting.chips.get(slot.gpu.id)
    is_slot = gpu.kind == "cpu"
    fill, stroke = ("node", "hair") if idle else ("tile", "edge")
    yield Rect(slot.x, y, slot.width, height, fill, stroke, 5, dashed=is_slot, hint=_hint(gpu))
    colour = "muted" if idle else "ink"
    kind = "CPU slot" if is_slot else "MIG" if gpu.mig else "GPU"
    numbers = casting.numbers(gpu.id)
    title = fit((f"{kind} {gpu.index}", str(gpu.index)), slot.width - 12 - BADGES * bool(numbers), 12, bold=True)
    yield Text(slot.x + 7, y + 17, title, 12, colour, bold=True)
    held = casting.memory.get(gpu.id) if gpu.kind == "gpu" else None
    words = fit(held_words(gpu, held) if held else tile_words(gpu), slot.width - 10, sizes.text) if sizes.head > 30 else ""
    if words:
        yield Text(slot.x + 7, y + 33, words, sizes.text, "muted", hint=held.text if held else "")
    if held and held.of:
        yield from _memory_bar(held, held.of, slot, y + 38)
    above, below = slot.width - 14 - text_width(title, 12, bold=True), slot.width - 14 - text_width(words, sizes.text)
    first = max(1, int(above / BADGES))
    if len(numbers) > first and words and below >= BADGES:  # the line of the memory has room too
        yield from badges(numbers[:first], casting, slot.right - 11, y + 12, above)
        yield from badges(numbers[first:], casting, slot.right - 11, y + 30, below)
    else:
        yield from badges(numbers, casting, slot.right - 11, y + 12, above)
    if idle and height > sizes.head + CHIP:
        yield from _hatch(slot, y + sizes.head, height - sizes.head - 5)


def tile_words(gpu: GPU) -> tuple[str, ...]:
    """Type and memory, the longest form first; nothing of a CPU slot."""
    if gpu.kind == "cpu":
        return ("stands for a GPU", "")
    if gpu.name is None and gpu.memory_gib is None:
        return ("?",)
    return f"{gpu_name(gpu)} · {memory(gpu)}", *([memory(gpu)] if gpu.memory_gib is not None else [gpu_name(gpu), "? GiB"])


def held_words(gpu: GPU, held: Held) -> tuple[str, ...]:
    """What it holds of its memory, the longest form first."""
    of = f"{held.of:.0f}" if held.of is not None else "?"
    short = f"{held.gib:.1f} of {of} GiB"
    return f"{gpu_name(gpu)} · {short}", short, f"{held.gib:.1f} of {of}", f"{held.gib:.1f}/{of}", f"{held.gib:.0f}/{of}"


def _memory_bar(held: Held, of: float, slot: Slot, y: float) -> Iterator[Item]:
    """How full it is at least; where it holds too much, all of it in the colour of errors."""
    width = slot.width - 14
    yield Rect(slot.x + 7, y, width, MEMORY, "band", radius=2, hint=held.text)
    yield Rect(slot.x + 7, y, max(1.0, width * min(1.0, held.gib / of)), MEMORY, "error" if held.over else "wire", radius=2, hint=held.text)


def _hint(gpu: GPU) -> str:
    facts = (gpu.id, gpu.name, memory(gpu), gpu.pci_bus, gpu.uuid, gpu.cpus and f"CPUs {gpu.cpus}")
    return " · ".join(fact for fact in facts if fact)


def _hatch(slot: Slot, y: float, height: float) -> Iterator[Item]:
    """Slanted lines within the tile, around the words."""
    words = fit(("mapped to nothing", "no role", "–"), slot.width - 16, 10)
    left, right, bottom = slot.x + 5, slot.right - 5, y + height
    begin = left - height
    for at in range(1, int((right - begin) / _HATCH) + 1):
        x = begin + at * _HATCH  # where it meets the lower edge; it rises to the right
        low, high = max(0.0, left - x), min(height, right - x)
        if high - low > 1:
            yield Line(x + low, bottom - low, x + high, bottom - high, "hair", 1)
    width, middle = text_width(words, 10) + 8, y + height / 2
    yield Rect(slot.middle - width / 2, middle - 8, width, 16, "node")
    yield Text(slot.middle, middle + 3.5, words, 10, "muted", anchor="middle")


def badges(numbers: Sequence[int], casting: Casting, right: float, y: float, width: float) -> Iterator[Item]:
    """Numbers of notes from ``right`` to the left, as many as ``width`` has room for; the last tells of more with "…"."""
    room = max(1, int(width / BADGES))
    shown = list(numbers) if len(numbers) <= room else list(numbers[:room])
    for at, number in enumerate(reversed(shown)):
        more = len(numbers) > room and at == 0
        hint = f"findings {', '.join(map(str, numbers))}"
        yield from badge("…" if more else str(number), casting.severities.get(number, "info"), right - at * BADGES, y, hint)


def badge(text: str, severity: str, x: float, y: float, hint: str = "") -> Iterator[Item]:
    """A number: on a disc for an error, in a thick ring for a warning, in a thin one for what is good to know."""
    if severity == "error":
        yield Circle(x, y, BADGE, "error", hint=hint)
    else:
        yield Circle(x, y, BADGE - 0.5, "tile", "ink" if severity == "warning" else "edge", 1.8 if severity == "warning" else 1, hint=hint)
    yield Text(x, y + 3.4, text, 9.5, "paper" if severity == "error" else "ink", bold=True, anchor="middle")


def bars(row: Row, casting: Casting, lines: Sequence[Sequence[str]], y: float) -> Iterator[Item]:
    """The chips of a row, line by line from ``y`` down; neighbours of one group as one bar. ``lines``: the lanes in each."""
    for at, lanes in enumerate(lines):
        chips = [next((chip for chip in casting.chips.get(slot.gpu.id, ()) if chip.lane in lanes), None) for slot in row.slots]
        pairs = list(zip(row.slots, chips, strict=True))
        for _, members in groupby(pairs, key=lambda pair: pair[1] and pair[1].group):
            run = list(members)
            first, chip, last = run[0][0], run[0][1], run[-1][0]
            if chip is not None:
                yield from bar(chip, first.x + 4, y + at * LANE, last.right - first.x - 8)


def bar(chip: Chip, x: float, y: float, width: float) -> Iterator[Item]:
    """One chip: a soft shade with a full stripe of its colour, and its label."""
    yield Rect(x, y, width, CHIP, "tile" if chip.hollow else f"{chip.colour}-soft", chip.colour, 3, dashed=chip.hollow, hint=chip.hint)
    yield Rect(x, y, 4, CHIP, chip.colour)
    label = fit(chip.texts, width - 8, 10)
    yield Text(x + 4 + (width - 4) / 2, y + 12.5, label, 10, anchor="middle")
