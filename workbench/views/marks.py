"""What changed while a run ran, as marks in its curves: a knob that was turned, a restore.

A mark is a thin line in every panel. Its words stand on a *flag* above the first panel: it begins at its line and goes to the
right, in the lowest of three rows where it covers nothing. Where they don't all fit the nearest neighbours share one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from workbench.records import Knob, Restored
from workbench.views.dials import exact
from workbench.views.text import shorten

# In characters of a flag's type: how wide a panel's plot is, with the space to its right, and from where on each row is free.
PLOT, WIDTH = 44, 64
FREE = (0, 0, 9)  # the highest is the title's
LONGEST = 40
_MOST = 9  # flags that can fit at all
_BOLD = 8  # lines; more are fainter
_GAP = 1.5


@dataclass(frozen=True)
class Turn:
    """A knob turned at step ``first``; on a schedule at every step up to ``last``."""

    name: str
    first: int
    last: int
    old: Any
    new: Any

    @property
    def text(self) -> str:
        """The name, and from what to what."""
        return f"{self.name} {_short(self.old)} → {_short(self.new)}"


def _short(value: Any) -> str:
    """As one would write it, of a computed value four digits. A pair: 0.2, 0.28."""
    if isinstance(value, tuple | list):
        return ", ".join(map(_short, value))
    return exact(float(f"{value:.4g}")) if isinstance(value, float) else exact(value)


@dataclass(frozen=True)
class Mark:
    """What changed from step ``first`` on (a restore stands between two steps), on a schedule until ``last``."""

    first: float
    last: float
    texts: tuple[str, ...]

    @property
    def text(self) -> str:
        """All of it in one line."""
        return ", ".join(self.texts)


@dataclass(frozen=True)
class Flag:
    """Words above the first panel, from the line at ``step`` on; ``row`` counts up from the plot.

    ``shift``: how far it stands to the left of its line, of the plot's width; 0 where it has its room.
    """

    step: float
    row: int
    text: str
    shift: float = 0.0


def when(mark: Mark) -> str:
    """The steps of a mark in words."""
    if mark.first != int(mark.first):
        return f"after step {int(mark.first)}"
    return f"step {mark.first:g}" if mark.first == mark.last else f"steps {mark.first:g}–{mark.last:g}"


def add(turns: Sequence[Turn], knob: Knob, limit: int) -> list[Turn]:
    """``turns`` with one more, the latest ``limit`` of them.

    Turned again before a step used it, or at the step that follows (a schedule), it is the same turn; turned back unused it is none.
    """
    known = next((turn for turn in reversed(turns) if turn.name == knob.name), None)
    if known is None or known.last < knob.step - 1:
        return [*turns, Turn(knob.name, knob.step, knob.step, knob.old, knob.new)][-limit:]
    longer = replace(known, last=knob.step, new=knob.new)
    if longer.old != longer.new:
        return [*(turn for turn in turns if turn is not known), longer]
    if longer.first == longer.last:
        return [turn for turn in turns if turn is not known]
    return [*turns, Turn(knob.name, knob.step, knob.step, knob.old, knob.new)][-limit:]  # back after it was used: a turn of its own


def marks(turns: Iterable[Turn], restores: Iterable[Restored], done: int) -> tuple[Mark, ...]:
    """What acted in the ``done`` steps so far, in their order."""
    texts: dict[tuple[float, float], list[str]] = {}
    for turn in turns:
        if turn.first <= done:
            texts.setdefault((turn.first, min(turn.last, done)), []).append(turn.text)
    for past in restores:
        texts.setdefault((past.step + 0.5, past.step + 0.5), []).append("restored")
    return tuple(Mark(first, last, tuple(said)) for (first, last), said in sorted(texts.items()))


def strength(found: Sequence[Mark]) -> float:
    """How strongly the lines are drawn, 0 to 1: many together are no louder than a few."""
    return round(min(1.0, _BOLD / max(1, len(found))), 2)


def flags(found: Sequence[Mark], high: float) -> tuple[Flag, ...]:
    """The words of all marks on an axis from 0 to ``high``; none covers another, nor the line of another."""
    groups: list[tuple[Mark, ...]] = [(replace(mark, texts=(text,)),) for mark in found for text in mark.texts]
    while True:
        placed = _placed(groups, high) if len(groups) <= _MOST else None
        if placed is not None:
            return tuple(reversed(placed))
        spans = [after[-1].last - before[0].first for before, after in pairwise(groups)]
        at = spans.index(min(spans))
        groups[at : at + 2] = [groups[at] + groups[at + 1]]


def _words(group: Sequence[Mark]) -> str:
    """One mark's own words; of several how many, as short as can be: their lines show where."""
    if len(group) == 1:
        schedule = "" if group[0].first == group[0].last else f", {when(group[0])}"
        return shorten(group[0].text, LONGEST - len(schedule)) + schedule
    return f"{len(group)} changes"


@dataclass(frozen=True)
class _Box:
    """A flag in characters: its line at ``line``, its words from ``begin`` to ``end``."""

    line: float
    begin: float
    end: float
    row: int


def _placed(groups: Sequence[Sequence[Mark]], high: float) -> list[Flag] | None:
    """Flags from right to left, each in its lowest free row; None where one has none."""
    boxes: list[_Box] = []
    found: list[Flag] = []
    for group in reversed(groups):
        text = _words(group)
        line = group[0].first / high * PLOT
        begin = min(line, WIDTH - len(text))
        box = next((box for row in range(len(FREE)) if _is_free(box := _Box(line, begin, begin + len(text), row), boxes)), None)
        if box is None:
            return None
        boxes.append(box)
        found.append(Flag(group[0].first, box.row, text, round((line - begin) / PLOT, 3)))
    return found


def _is_free(box: _Box, boxes: Sequence[_Box]) -> bool:
    """No words on other words, and no line, which goes up to the row of its flag, through the words of another."""
    return box.begin >= FREE[box.row] and not any(
        (box.row == other.row and box.begin < other.end + _GAP and other.begin < box.end + _GAP)
        or (box.row < other.row and box.begin < other.line < box.end + _GAP)
        or (box.row > other.row and other.begin < box.line < other.end + _GAP)
        for other in boxes
    )
