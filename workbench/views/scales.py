"""Axes with few round ticks, and labels that never cover each other. Numbers in, numbers out."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from workbench.views.text import number


@dataclass(frozen=True)
class Axis:
    """``low .. high`` and the few ticks on it, each with its label."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]


def scale(low: float, high: float, count: int = 3) -> Axis:
    """An axis that holds ``low .. high``, with about ``count`` intervals of 1, 2 or 5 times a power of ten."""
    span = high - low or abs(high) or 1.0
    if -0.03 * span < low < 0 < high:
        low = 0.0  # an estimate that dips below zero by a hair needs no room of its own
    raw = span / count
    power = math.floor(math.log10(raw))
    step = next(factor * 10.0**power for factor in (1, 2, 5, 10) if factor * 10.0**power >= raw * 0.999)
    begin, end = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    end = max(end, begin + 1)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    ticks = tuple((float(f"{at * step:.10g}"), _tick_label(at * step, digits)) for at in range(begin, end + 1))
    return Axis(ticks[0][0], ticks[-1][0], ticks)


def _tick_label(value: float, digits: int) -> str:
    """As many digits as the step has; a number of five characters at most where it would be longer."""
    return f"{value:.{digits}f}" if value and abs(value) < 1e4 and digits <= 3 else number(value)


def steps_axis(done: int, total: int) -> Axis:
    """Steps from 0 on. It grows in a few leaps, so that the picture stands still most of the time, and ends at ``total``."""
    high = next(leap for leap in _leaps() if leap >= max(done, 1))
    # Where the leap comes some way to the known end the end itself is better; and a run that goes on beyond its plan is shown whole.
    if total >= done and total and high >= 0.35 * total:
        high = total
    step = scale(0, high, 4).ticks[1][0]
    whole = max(1, round(step))
    ticks = tuple(range(0, high + 1, whole))
    if ticks[-1] != high and high - ticks[-1] < 0.45 * whole and len(ticks) > 1:
        ticks = ticks[:-1]
    ends = ticks if ticks[-1] == high else (*ticks, high)
    return Axis(0, high + 0.5, tuple((at, number(at)) for at in ends))


def _leaps() -> Iterator[int]:
    power = 10
    while True:
        yield from (power, power * 5 // 2, power * 5)
        power *= 10


def spread(places: list[float], gap: float) -> list[float]:
    """The nearest places in 0 .. 1, in the same order from below, that are ``gap`` apart (or evenly spaced, where they don't fit)."""
    order = sorted(range(len(places)), key=lambda at: places[at])
    gap = min(gap, 1 / max(1, len(places) - 1))
    moved = [min(1.0, max(0.0, place)) for place in places]
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + gap)
    ceiling = 1.0
    for at in reversed(order):
        moved[at] = min(moved[at], ceiling)
        ceiling = moved[at] - gap
    return moved
