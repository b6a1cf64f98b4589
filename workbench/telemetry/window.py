"""What a sign is looked for in, and what it says."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from workbench.records import Step
from workbench.telemetry.limits import Limits


@dataclass(frozen=True)
class Swap:
    """Something that rewards come from became another: the step after which, and what in words."""

    after: int
    what: str


@dataclass(frozen=True)
class Window:
    """A run as of its last step. Steps are oldest first."""

    steps: Sequence[Step]  # the latest, at least one
    begin: Sequence[Step] = ()  # the first, of the run or since its sampling was changed
    swaps: Sequence[Swap] = ()
    turned: Sequence[int] = ()  # the first steps with a knob's new value
    knobs: Mapping[str, Any] = field(default_factory=dict)  # name -> its value now

    def knob(self, name: str) -> float | None:
        """A knob that is a number; None where the run has none of that name, or an algorithm of one's own has something else there."""
        value = self.knobs.get(name)
        return value if isinstance(value, int | float) else None

    @property
    def last(self) -> Step:
        """The step that has just ended."""
        return self.steps[-1]


@dataclass(frozen=True)
class Sign:
    """What one rule sees in a window."""

    code: str
    since: int  # the first step concerned
    found: str
    fix: str


Rule = Callable[[Window, Limits], Sign | None]


def middle(steps: Sequence[Step], name: str) -> float:
    """The median of a field over at least one step; those that have no value or none that is finite are left out (all: nan)."""
    values = numbers(steps, name)
    return median(values) if values else math.nan


def numbers(steps: Sequence[Step], name: str) -> list[float]:
    """The finite values of a field."""
    values = (getattr(step, name) for step in steps)
    return [value for value in values if value is not None and math.isfinite(value)]


def first(steps: Sequence[Step], test: Callable[[Step], bool]) -> int:
    """The number of the first step that passes ``test``; of the last where none does."""
    return next((step.step for step in steps if test(step)), steps[-1].step)


def slower(window: Window) -> str:
    """Half the learning rate, as one writes it."""
    return f"run.knobs.learning_rate = {window.last.learning_rate / 2:.3g}"


def closer(window: Window, limits: Limits) -> str:
    """A stronger pull to the base, as one writes it; nothing where the algorithm has none."""
    now = window.knob("kl")
    return "" if now is None else f"run.knobs.kl = {max(2 * now, limits.kl_weight):.3g}"


def either(*fixes: str) -> str:
    """What may be done, those that are empty left out."""
    return ", or ".join(fix for fix in fixes if fix)
