"""What stands around a machine: the key above it, places beside it, and below it what is not known and the numbered notes."""

from collections.abc import Sequence

from workbench.topology.drawing.casting import Aside, Casting, Note
from workbench.topology.drawing.grid import CHIP
from workbench.topology.drawing.scene import Item, Rect, Text, cut, text_width, wrap
from workbench.topology.drawing.tile import BADGES, badge, badges

MOST_NOTES, MOST_SUMS = 20, 6
_LINE, _SMALL = 15.5, 14.0
_SEVERITIES = ("error", "warning", "info")


def key(casting: Casting, x: float, y: float, width: float) -> tuple[list[Item], float]:
    """The entries side by side, and where they end."""
    items: list[Item] = []
    column = min(220.0, width / max(1, len(casting.entries)))
    lowest = y
    for at, entry in enumerate(casting.entries):
        left, base = x + at * column, y + 12
        items.append(Rect(left, base - 10, 11, 11, entry.colour, radius=2))
        title = cut(entry.title, column - 30, 12, bold=True)
        hint = "; ".join(f"{word}: {meaning}" for word, meaning in entry.words.items())
        items.append(Text(left + 17, base, title, 12, bold=True, hint=hint))
        begin = left + 17 + text_width(title, 12, bold=True) + 12
        room = left + column - 8 - begin
        if entry.numbers and room > 0:
            shown = entry.numbers[: max(1, int(room / BADGES))]
            items += badges(entry.numbers, casting, begin + (len(shown) - 1) * BADGES, base - 4, room)
        for line in wrap(entry.text, column - 27, 10.5, 3):
            base += _SMALL
            items.append(Text(left + 17, base, line, 10.5, "muted", hint=hint))
        lowest = max(lowest, base)
    lines = wrap(" · ".join(f"{word}: {meaning}" for word, meaning in casting.words.items()), width, 10, 3)
    lowest += 5 if lines else 0
    for line in lines:
        lowest += _SMALL
        items.append(Text(x, lowest, line, 10, "muted"))
    return items, lowest + (12 if casting.entries else 0)


def asides(places: Sequence[Aside], x: float, y: float, width: float) -> tuple[list[Item], float]:
    """Boxes one below the other, and where they end."""
    items: list[Item] = []
    for aside in places:
        drawn, end = _aside(aside, x, y, width)
        items += [Rect(x, y, width, end - y, "node", "hair", 6), *drawn]
        y = end + 10
    return items, y - (10 if places else 0)


def asides_in_a_row(places: Sequence[Aside], x: float, y: float, width: float) -> tuple[list[Item], float]:
    """Boxes side by side, and where they end."""
    items: list[Item] = []
    column = min(260.0, (width + 10) / max(1, len(places))) - 10
    parts = [_aside(aside, x + at * (column + 10), y, column) for at, aside in enumerate(places)]
    end = max((end for _, end in parts), default=y)
    for at, (drawn, _) in enumerate(parts):
        items += [Rect(x + at * (column + 10), y, column, end - y, "node", "hair", 6), *drawn]
    return items, end


def _aside(aside: Aside, x: float, y: float, width: float) -> tuple[list[Item], float]:
    items: list[Item] = []
    base = y + 5
    for line in wrap(aside.title, width - 18, 10.5, 3):
        base += _SMALL
        items.append(Text(x + 9, base, line, 10.5, "muted"))
    base += 8
    for colour, label in aside.chips:
        items += [Rect(x + 8, base, width - 16, CHIP, f"{colour}-soft", colour, 3), Rect(x + 8, base, 4, CHIP, colour)]
        items.append(Text(x + 10 + (width - 16) / 2, base + 12.5, cut(label, width - 28, 10), 10, anchor="middle"))
        base += CHIP + 4
    return items, base + 5


def unknown(warnings: Sequence[str], x: float, y: float, width: float) -> tuple[list[Item], float]:
    """What a source did not say, each behind a "?"."""
    items: list[Item] = []
    for warning in warnings:
        items += badge("?", "info", x + 9, y + 9, warning)
        for line in wrap(warning, width - 36, 11, 3):
            items.append(Text(x + 28, y + 13, line, 11, "muted"))
            y += _LINE
        y += 5
    return items, y


def draw_notes(casting: Casting, x: float, y: float, width: float) -> tuple[list[Item], float]:
    """How many there are of each severity, then one after the other; of many the first. Then what each device holds."""
    notes = casting.notes or ()
    count = _count(notes) or ("No findings" if casting.unchecked else "No findings: nothing is wrong with this map")
    items: list[Item] = [Text(x, y + 14, count, 13, bold=True)]
    begin = x + text_width(count, 13, bold=True) + 10
    items.append(Text(begin, y + 14, cut(casting.unchecked, x + width - begin, 11), 11, "muted"))
    y += 28
    for note in notes[:MOST_NOTES]:
        drawn, y = _note(note, x, y, width)
        items += drawn
    if len(notes) > MOST_NOTES:
        items.append(Text(x + 28, y + 12, f"and {len(notes) - MOST_NOTES} more", 11, "muted"))
        y += 20
    sums, y = _sums(casting.sums, x, y, width)
    return [*items, *sums], y


def _sums(sums: Sequence[str], x: float, y: float, width: float) -> tuple[list[Item], float]:
    """What devices hold, as text; of many kinds the first."""
    if not sums:
        return [], y
    items: list[Item] = [Text(x, y + 12, "Memory held at least, before activations and KV cache", 11.5, bold=True)]
    y += 14
    shown = [*sums[:MOST_SUMS], *([f"and {len(sums) - MOST_SUMS} more"] if len(sums) > MOST_SUMS else [])]
    for line in [line for one in shown for line in wrap(_short(one, width / 2), width - 28, 11, 2)]:
        y += _LINE
        items.append(Text(x + 28, y, line, 11, "muted"))
    return items, y + 13


def _short(line: str, width: float) -> str:
    """ "devices: what they hold" with no more devices than leave room for what is said of them."""
    devices, colon, rest = line.partition(": ")
    return f"{cut(devices, width, 11)}{colon}{rest}"


def _count(notes: Sequence[Note]) -> str:
    counts = [(sum(note.severity == severity for note in notes), severity) for severity in _SEVERITIES]
    words = [f"{count} {severity}{'s' if count > 1 and severity != 'info' else ''}" for count, severity in counts if count]
    return ", ".join(words)


def _note(note: Note, x: float, y: float, width: float) -> tuple[list[Item], float]:
    items = list(badge(str(note.number), note.severity, x + 9, y + 9))
    items.append(Text(x + 28, y + 13, cut(note.title, width - 120, 11.5, bold=True), 11.5, bold=True))
    items.append(Text(x + width, y + 13, note.severity, 10.5, "muted", anchor="end"))
    y += 13
    for text, colour in ((note.text, "ink"), (f"Fix: {note.fix}" if note.fix else "", "muted")):
        for line in wrap(text, width - 36, 11, 5):
            y += _LINE
            items.append(Text(x + 28, y, line, 11, colour))
    return items, y + 13
