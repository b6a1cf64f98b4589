"""What a panel of knobs shows, as plain data: each knob's ladder of values, what is in use and what comes next.

A slider moves over a *ladder*, tidy values from low to high, so that every stop is a number that one would write: 1e-4,
1.2e-4, 1.5e-4; 8, 12, 16, 24. Values between the stops, or outside, are typed or set by code.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol

from workbench.records import Knob
from workbench.views.tables import Table

Value = float | tuple[float, ...] | list[float]
Ladder = tuple[float, ...]
UNITS = {
    "learning_rate": "before warm-up and decay",
    "temperature": "of sampling",
    "prompts": "a step",
    "max_tokens": "a completion, at most",
    "group_size": "completions a prompt",
    "kl": "weight of the KL term",
    "clip": "ratio within 1 ± this",
    "clip.0": "ratio at least 1 − this",
    "clip.1": "ratio at most 1 + this",
}
_MANTISSAS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)


class Knobs(Protocol):
    """What is asked of ``run.knobs``."""

    @property
    def names(self) -> tuple[str, ...]:
        """The knobs that this run has."""
        ...

    @property
    def pending(self) -> Mapping[str, tuple[Value, Value]]:
        """What no step has used yet: name -> (in use, wanted)."""
        ...

    def get(self, name: str) -> Value:
        """What the next step will use."""
        ...

    def set(self, **values: object) -> None:
        """Turn several at once, all or none. Raises ConfigError on a value that can't work."""
        ...


@dataclass(frozen=True)
class Row:
    """One slider: a knob, or a part of one (``clip.0`` and ``clip.1`` of a pair). Sentences are complete."""

    key: str
    label: str
    unit: str
    ladder: Ladder
    value: float  # that the next step will use
    text: str  # the same, to be read and edited
    used: str  # what the last step used
    mark: float | None  # the same as a number, where it is another one than ``value``
    since: int | None  # the step from which it has its value; None: from the start
    note: str  # when it acts


def rows(knobs: Knobs, ladders: Mapping[str, Ladder], since: Mapping[str, int]) -> tuple[Row, ...]:
    """A row for every number to turn. ``ladders`` by key, as they were before: kept while the value is within. ``since``: ``turned_at``."""
    pending = knobs.pending
    found = []
    for name in knobs.names:
        value = knobs.get(name)
        before = pending[name][0] if name in pending else value
        found += [_row(name, key, part, used, ladders.get(key, ()), since.get(name)) for key, part, used in _parts(name, value, before)]
    return tuple(found)


def _parts(name: str, value: Value, before: Value) -> list[tuple[str, float, Value]]:
    """(key, value, value in use) of a knob's numbers: two of a pair."""
    if not isinstance(value, tuple | list):
        return [(name, value, before)]
    befores = before if isinstance(before, tuple | list) else (before,) * len(value)
    return [(f"{name}.{at}", part, used) for at, (part, used) in enumerate(zip(value, befores, strict=True))]


def _row(name: str, key: str, value: float, used: Value, ladder: Ladder, since: int | None) -> Row:
    label = name if key == name else f"{name} {('low', 'high')[int(key[-1])]}"
    if used == value:
        mark, note = None, "in use" if since is None else f"in use since step {since}"
    else:
        mark, note = None if isinstance(used, tuple | list) else used, f"at the next step; now {exact(used)}"
    return Row(key, label, UNITS.get(key, ""), fitting(ladder, name, value), value, exact(value), exact(used), mark, since, note)


def wanted(knobs: Knobs, key: str, value: object) -> tuple[str, object]:
    """(name, value) to set for what was entered at ``key``: a number of a pair stands for the pair."""
    name, _, part = key.partition(".")
    old = knobs.get(name)
    if part and isinstance(old, tuple | list):
        return name, tuple(value if at == int(part) else other for at, other in enumerate(old))
    if isinstance(old, float) and isinstance(value, int) and not isinstance(value, bool):
        return name, float(value)  # a browser writes 1.0 as 1
    return name, value


def turned_at(turns: Iterable[Knob]) -> dict[str, int]:
    """The step from which each knob that was turned has its value. Turned back before a step used it is not turned."""
    ends: dict[tuple[str, int], tuple[Value, Value]] = {}
    for turn in turns:
        first = ends.get((turn.name, turn.step), (turn.old, turn.new))[0]
        ends[turn.name, turn.step] = (first, turn.new)
    return {name: step for (name, step), (old, new) in ends.items() if old != new}


# ---------------------------------------------------------------- ladders


def fitting(ladder: Ladder, name: str, value: float) -> Ladder:
    """``ladder`` while ``value`` is within it, else a new one around ``value``: a slider's ends stay where they are while it moves."""
    if ladder and ladder[0] <= value <= ladder[-1]:
        return ladder
    made = _ladder(name, value)
    return made if made[0] <= value <= made[-1] else tuple(sorted({*made, value}))


def _ladder(name: str, value: float) -> Ladder:
    match name:
        case "learning_rate":
            return decades(value / 30, value * 30)
        case "kl":
            return (0.0, *decades(1e-4, max(1.0, value)))
        case "temperature":
            return even(0.1, 2.0, 0.05)
        case "clip":
            return even(0.01, 0.9, 0.01)
        case "group_size":
            return counts(2, max(64, 4 * value))
        case "prompts":
            return counts(1, max(128, 4 * value))
        case _:  # max_tokens, and any other count
            return counts(min(8, value), max(256, 8 * value))


def decades(low: float, high: float) -> Ladder:
    """Ten tidy values a decade within [low, high], both above 0."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    stops = (float(f"{mantissa}e{exponent}") for exponent in exponents for mantissa in _MANTISSAS)
    return tuple(stop for stop in stops if low <= stop <= high)


def counts(low: float, high: float) -> Ladder:
    """Powers of two, and one and a half of each, within [low, high]: 1, 2, 3, 4, 6, 8, 12, 16."""
    powers = [2**k for k in range(math.ceil(math.log2(high)) + 1)]
    return tuple(stop for stop in sorted({*powers, *(power * 3 // 2 for power in powers)}) if low <= stop <= high)


def even(low: float, high: float, step: float) -> Ladder:
    """Values ``step`` apart, both ends included."""
    return tuple(round(low + at * step, 10) for at in range(round((high - low) / step) + 1))


# ---------------------------------------------------------------- words


def table(found: Iterable[Row], state: str) -> Table:
    """The knobs for where no widget runs."""
    names = ("knob", "in use", "at the next step", "changed at", "")
    lines = [
        (row.label, row.used, "" if row.used == row.text else row.text, "" if row.since is None else f"step {row.since}", row.unit)
        for row in found
    ]
    return Table(f"Knobs · run {state}", names, tuple(lines), "<>><<")


def exact(value: Value) -> str:
    """A number as one would write it, no digit lost: 3e-4, 0.05, 32. A pair: 0.2, 0.28."""
    if isinstance(value, tuple | list):
        return ", ".join(map(exact, value))
    if 0 < abs(value) < 0.01:
        return f"{Decimal(repr(value)):e}"
    return repr(value).removesuffix(".0")
