"""The load of the last minutes as a drawing: a track for each device and for each role, filled as far as it was busy."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from workbench.palette import ROLE_COLOUR
from workbench.roles import Role
from workbench.topology.drawing.scene import Item, Line, Rect, Scene, Text, cut, text_width

if TYPE_CHECKING:
    from workbench.views.load import Course, Courses

WIDTH, LEFT, RIGHT = 900.0, 170.0, 740.0  # pixels: of the drawing, and where the tracks begin and end
MARGIN, TOP, PITCH, TRACK, FOOT, BETWEEN = 16.0, 66.0, 36.0, 28.0, 30.0, 26.0
STEP = 10  # percent: what differs by less is drawn as one, as a picture of many shapes takes long


def draw(shown: "Courses") -> Scene:
    """The picture of the last minutes."""
    roles = [row for row in shown.roles if any(row.busy)]
    middle = TOP + PITCH * len(shown.devices)
    bottom = middle + (BETWEEN + PITCH * len(roles) if roles else 0)
    items = [*_head(shown), *_axis(shown, bottom)]
    for at, row in enumerate(shown.devices):
        items += _device(row, TOP + PITCH * at)
    if roles:
        items.append(Text(MARGIN, middle + 16, "By role: its devices, while its phases run", 11, "muted"))
    for at, role in enumerate(roles):
        y = middle + BETWEEN + PITCH * at
        items += [Text(MARGIN, y + 18, role.role, 12, bold=True), *_track(role.busy, [role.role] * len(role.busy), y)]
    said = "; ".join(f"{row.device} ({', '.join(row.roles)}) busy {row.now[0]}, memory {row.now[1]}" for row in shown.devices)
    paper = Rect(0, 0, WIDTH, bottom + FOOT, "paper")
    return Scene(WIDTH, bottom + FOOT, (paper, *items), f"Load of {shown.title}", said)


def _head(shown: "Courses") -> Iterator[Item]:
    yield Text(MARGIN, 24, cut(shown.title, WIDTH - 2 * MARGIN, 13, bold=True), 13, bold=True)
    x, there = MARGIN, {who for row in shown.devices for who in row.who}
    for role in (role for role in Role if role in there):
        yield Rect(x, 37, 10, 10, ROLE_COLOUR[role], radius=2)
        yield Text(x + 15, 46, role, 11, "muted")
        x += 15 + text_width(role, 11) + 16
    yield Rect(x, 37, 10, 10, "wire", radius=2)
    yield Text(x + 15, 46, "busy, no role alone", 11, "muted")
    x += 15 + text_width("busy, no role alone", 11) + 16
    yield Line(x, 42, x + 16, 42, "ink", 1.5)
    yield Text(x + 21, 46, "memory", 11, "muted")


def _axis(shown: "Courses", bottom: float) -> Iterator[Item]:
    """Minutes before now; of less than two minutes every tenth second."""
    seconds = shown.seconds * len(shown.devices[0].busy)
    step, unit = (60, "min") if seconds >= 120 else (10, "s")
    for ago in range(0, int(seconds) + 1, step):
        x = RIGHT - (RIGHT - LEFT) * ago / seconds
        yield Text(x, bottom + 12, f"{-ago // (60 if unit == 'min' else 1)} {unit}" if ago else "now", 10.5, "muted", anchor="middle")


def _device(row: "Course", y: float) -> Iterator[Item]:
    room = LEFT - MARGIN - 8
    yield Text(MARGIN, y + 12, cut(row.device, room, 12, bold=True), 12, bold=True, hint=row.device)
    yield Text(MARGIN, y + 25, cut(", ".join(row.roles), room, 10), 10, "muted")
    yield from _track(row.busy, row.who, y)
    yield from _line(row.full, y)
    yield Text(RIGHT + 46, y + 18, row.now[0], 12, anchor="end")
    yield Text(WIDTH - MARGIN, y + 18, cut(row.now[1], WIDTH - MARGIN - RIGHT - 56, 11), 11, "muted", anchor="end")


def _track(busy: Sequence[int | None], who: Sequence[str], y: float) -> Iterator[Item]:
    """Bars as high as it was busy, in the colour of who worked; stretches that are alike as one."""
    yield Rect(LEFT, y, RIGHT - LEFT, TRACK, "area")
    wide, at = (RIGHT - LEFT) / max(1, len(busy)), 0
    levels = [0 if value is None else max(1, min(100, round(value / STEP) * STEP)) if value else 0 for value in busy]
    for (level, role), members in groupby(zip(levels, who, strict=True)):
        count = len(list(members))
        if level:
            high = TRACK * level / 100
            colour = ROLE_COLOUR[Role(role)] if role else "wire"
            yield Rect(LEFT + wide * at, y + TRACK - high, wide * count, high, colour, hint=f"{level}% {role}".strip())
        at += count


def _line(full: Sequence[int | None], y: float) -> Iterator[Item]:
    """How full the memory was, a line; stretches that are alike as one."""
    wide, at = (RIGHT - LEFT) / max(1, len(full)), 0
    for value, members in groupby(full):
        count = len(list(members))
        if value is not None:
            level = y + TRACK * (1 - min(100, value) / 100)
            yield Line(LEFT + wide * at, level, LEFT + wide * (at + count), level, "ink", 1.5)
        at += count
