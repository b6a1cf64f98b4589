"""A timeline as a drawing: a track for each device, a box for each phase, the ends of the steps as lines through all of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from workbench.records import PHASES
from workbench.topology.drawing.scene import Item, Line, Rect, Scene, Text, cut, fit, text_width
from workbench.views.scales import scale
from workbench.views.text import duration

if TYPE_CHECKING:
    from workbench.views.timeline import Bar, Row, Timeline

WIDTH, LEFT, RIGHT = 900.0, 150.0, 832.0  # pixels: of the drawing, and where the tracks begin and end
MARGIN, TOP, PITCH, TRACK, FOOT = 16.0, 76.0, 40.0, 30.0, 34.0  # above the tracks, from one to the next, of one, below
NARROW = 7.0  # pixels: a box without room for an outline is filled
SOFT = {"values": "update_critic-soft", "advantages": "band", "sync": "band"}  # shades that words can stand on, of phases without their own


def draw(shown: "Timeline") -> Scene:
    """The picture of a timeline."""
    bottom = TOP + PITCH * len(shown.rows) - (PITCH - TRACK)
    items = [*_head(shown), *_axis(shown, bottom), *_ends(shown, bottom)]
    for at, row in enumerate(shown.rows):
        items += _row(shown, row, TOP + PITCH * at)
    said = "; ".join(f"{row.device} ({', '.join(row.roles)}) busy {shown.busy_fraction[row.device]:.0%}" for row in shown.rows)
    return Scene(WIDTH, bottom + FOOT, (Rect(0, 0, WIDTH, bottom + FOOT, "paper"), *items), f"Timeline of {shown.heading}", said)


def _x(shown: "Timeline", seconds: float) -> float:
    return LEFT + (RIGHT - LEFT) * min(1.0, seconds / shown.span)


def _head(shown: "Timeline") -> Iterator[Item]:
    """The heading, the colours of the phases that there are, the title of the column at the right."""
    yield Text(MARGIN, 24, cut(shown.heading, WIDTH - 2 * MARGIN, 13, bold=True), 13, bold=True)
    x, there = MARGIN, {bar.phase for row in shown.rows for bar in row.bars}
    for phase in (phase for phase in PHASES if phase in there):
        yield Rect(x, 37, 10, 10, phase, radius=2)
        yield Text(x + 15, 46, phase, 11, "muted")
        x += 15 + text_width(phase, 11) + 16
    yield Text(WIDTH - MARGIN, TOP - 8, "busy", 11, "muted", anchor="end")


def _axis(shown: "Timeline", bottom: float) -> Iterator[Item]:
    """Seconds, below the tracks."""
    for at, label in scale(0.0, shown.span, 6).ticks:
        if at <= shown.span:
            yield Line(_x(shown, at), bottom, _x(shown, at), bottom + 5, "hair")
            yield Text(_x(shown, at), bottom + 18, label if at else "0 s", 10.5, "muted", anchor="middle")


def _ends(shown: "Timeline", bottom: float) -> Iterator[Item]:
    """A line where each step was over, its name to the left where there is room."""
    before = LEFT
    for step, seconds in shown.ends.items():
        x = _x(shown, seconds)
        name = fit((f"step {step}", str(step)), x - before - 4, 11)
        yield Text((before + x) / 2, TOP - 8, name, 11, "muted", anchor="middle")
        yield Line(x, TOP - 18, x, bottom + 5, "wire", dashed=True)
        before = x


def _row(shown: "Timeline", row: "Row", y: float) -> Iterator[Item]:
    """Name and roles, the track over the time that the steps took, what was done in it, the share of it."""
    room = LEFT - MARGIN - 8
    yield Text(MARGIN, y + 12, cut(row.device, room, 12, bold=True), 12, bold=True, hint=row.device)
    roles = ", ".join(row.roles)
    short = fit((roles, roles.replace("reference", "ref")), room, 10) or cut(roles, room, 10)
    yield Text(MARGIN, y + 26, short, 10, "muted", hint=roles)
    yield Rect(LEFT, y, _x(shown, shown.seconds) - LEFT, TRACK, "area", hint=f"{row.device}: nothing to do")
    for bar in row.bars:
        yield from _bar(shown, bar, y)
    yield Text(WIDTH - MARGIN, y + 20, f"{shown.busy_fraction[row.device]:.0%}", 12, anchor="end")


def _bar(shown: "Timeline", bar: "Bar", y: float) -> Iterator[Item]:
    x, width = _x(shown, bar.begin), _x(shown, bar.end) - _x(shown, bar.begin)
    hint = f"{bar.phase} of step {bar.step}: {duration(bar.seconds)}"
    if width < NARROW:
        yield Rect(x, y, max(width, 1.0), TRACK, bar.phase, hint=hint)
        return
    yield Rect(x + 0.5, y + 0.5, width - 1, TRACK - 1, SOFT.get(bar.phase, f"{bar.phase}-soft"), bar.phase, radius=2, hint=hint)
    words = fit((f"{bar.phase} {bar.step}", str(bar.step)), width - 6, 10.5)
    yield Text(x + width / 2, y + 19, words, 10.5, anchor="middle", hint=hint)
