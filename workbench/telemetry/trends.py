"""Small statistics of a few steps, robust or with their noise. Plain floats; nothing here raises on values that are not finite, or huge."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from workbench.records import mean


@dataclass(frozen=True)
class Change:
    """By how much something has changed, and the standard error of that."""

    size: float
    noise: float

    def exceeds(self, errors: float) -> bool:
        """Whether it rose by more than so many standard errors. Without any noise every rise does."""
        return self.size > errors * self.noise

    def at_least(self, noise: float) -> "Change":
        """The same, with no less noise than ``noise``."""
        return Change(self.size, max(self.noise, noise))


def deviation(values: Sequence[float]) -> float:
    """The standard deviation, from the median distance to the median (of a normal distribution 1.48 times it): odd ones don't count."""
    if not values:
        return math.nan
    centre = median(values)
    return 1.48 * median(abs(value - centre) for value in values)


def rise(before: Sequence[float], after: Sequence[float]) -> Change:
    """The difference of two means; the noise is Welch's, from what the values of each side scatter (at least two on each)."""
    return Change(mean(after) - mean(before), (_variance(before) / len(before) + _variance(after) / len(after)) ** 0.5)


def ends(values: Sequence[float]) -> Change:
    """The last third of ``values`` (at least six) against the first."""
    third = len(values) // 3
    return rise(values[:third], values[-third:])


def jump(values: Sequence[float], floor: float = 0.0) -> Change:
    """The jump in the middle of an even number of values (at least four) beside a line that goes on: what is no trend.

    Least squares of value = level + slope·t + jump·[second half], where each half has k values: the slope is that within the
    halves, the jump is what the difference of their means is beyond slope·k. ``floor``: the least deviation of a value.
    """
    k = len(values) // 2
    halves = (values[:k], values[k:])
    times = [t - (k - 1) / 2 for t in range(k)]
    centred = [[value - mean(half) for value in half] for half in halves]
    square = 2 * sum(t * t for t in times)
    slope = sum(t * value for half in centred for t, value in zip(times, half, strict=True)) / square
    errors = [value - slope * t for half in centred for t, value in zip(times, half, strict=True)]
    residual = max((sum(error * error for error in errors) / (2 * k - 3)) ** 0.5, floor)
    return Change(mean(halves[1]) - mean(halves[0]) - slope * k, residual * (2 / k + k * k / square) ** 0.5)


def rank_correlation(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's: the correlation of the ranks, equal values sharing theirs; 0 where one of them is constant."""
    a, b = _ranks(left), _ranks(right)
    middle = (len(a) - 1) / 2
    together = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    alone = (sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b)) ** 0.5
    return together / alone if alone else 0.0


def _variance(values: Sequence[float]) -> float:
    """Of a sample."""
    middle = mean(values)
    return sum((value - middle) * (value - middle) for value in values) / (len(values) - 1)


def _ranks(values: Sequence[float]) -> list[float]:
    """0 for the smallest; the mean of their places for equal ones."""
    places: dict[float, list[int]] = {}
    for place, value in enumerate(sorted(values)):
        places.setdefault(value, []).append(place)
    return [mean(places[value]) for value in values]
