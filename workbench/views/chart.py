"""The panels of the curves as plain data: scales, ticks, lines. The widget and the figure draw the same description.

Four are in every run, two more where it has a critic. What else a run tells is folded away until it is asked for.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from workbench.records import PHASES, HeldOut, percentile
from workbench.views.history import History
from workbench.views.marks import Flag, Mark, flags, marks, strength
from workbench.views.scales import Axis, scale, spread, steps_axis
from workbench.views.text import duration, number, shorten, visible

Values = tuple[float | None, ...]


AT_ONCE = 1.02  # times as long as its step are phases of which some were at the same time; less may be rounding
LABEL_GAP = 0.117  # between two labels, of the height of a panel
NAME = 28  # characters of a part of the reward
EMPTY = Axis(0.0, 1.0, ((0.0, "0"),))  # of a panel that has nothing to show
LEAST_EXPLAINED = -1.0  # a critic that has learnt nothing yet may be far below: that would press all that follows flat


@dataclass(frozen=True)
class Line:
    """One quantity over the steps; ``colour`` is a name of the palette. ``faint`` lines are the background of a main one."""

    name: str
    colour: str
    values: Values
    faint: bool = False


@dataclass(frozen=True)
class Point:
    """A held-out evaluation: mean and standard error at a step."""

    step: int
    mean: float
    stderr: float


@dataclass(frozen=True)
class Label:
    """What stands to the right of a line's end: its name and last value, ``place`` of the way up the panel (0 to 1)."""

    name: str
    mark: str  # "line", "faint", "point" or "" for a sum
    colour: str
    place: float
    text: str


@dataclass(frozen=True)
class Panel:
    """One small chart. A "stack" draws its lines as parts of a bar per step; what is above the axis is cut, with a mark."""

    key: str
    title: str
    unit: str
    kind: str  # "lines" or "stack"
    axis: Axis
    lines: tuple[Line, ...]
    points: tuple[Point, ...] = ()
    note: str = ""
    labels: tuple[Label, ...] = ()  # first one for each line, in the same order


@dataclass(frozen=True)
class Chart:
    """Panels over a common x axis. Point ``i`` of a line stands for the steps ``first[i] .. last[i]``.

    ``marks`` are lines in every panel; ``flags`` stand above the first and say what they are.
    """

    axis: Axis
    first: tuple[int, ...]
    last: tuple[int, ...]
    panels: tuple[Panel, ...]
    marks: tuple[Mark, ...] = ()
    strength: float = 1.0  # of the lines of the marks
    flags: tuple[Flag, ...] = ()
    more: tuple[Panel, ...] = ()  # folded away
    fold: str = ""  # what stands on the fold; nothing where there is none


def chart(history: History) -> Chart:
    """The panels as they stand after the events so far."""
    buckets = history.series.buckets
    panels = (_reward(history), _kl(history), _length(history), _seconds(history), *_critic(history))
    more = tuple(_others(history))
    axis = steps_axis(history.step, history.total)
    found = marks(history.turns, history.restores, history.step)
    return Chart(
        axis=axis,
        first=tuple(bucket.first for bucket in buckets),
        last=tuple(bucket.last for bucket in buckets),
        panels=tuple(map(_labelled, panels)) if buckets else panels,
        marks=found,
        strength=strength(found),
        flags=flags(found, axis.high),
        more=tuple(map(_labelled, more)),
        fold=f"More curves: {', '.join(panel.title for panel in more)}" if more else "",
    )


def _reward(history: History) -> Panel:
    line = _line(history, "batch mean", "reward", "reward_mean")
    points = tuple(Point(p.step, _short(p.reward_mean), _short(p.stderr)) for _, p in sorted(history.held_out.items()) if _is_finite(p))
    seen = [*_known(line.values), *(p.mean - p.stderr for p in points), *(p.mean + p.stderr for p in points)]
    unit_range = all(-0.001 <= value <= 1.001 for value in seen)
    axis = Axis(0.0, 1.0, ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))) if unit_range else scale(min(seen), max(seen))
    # No unit: the words of the flags stand beside the title.
    return Panel("reward", "Reward", "", "lines", axis, (line,), points)


def _kl(history: History) -> Panel:
    line = _line(history, "estimate", "reference", "kl")
    seen = [0.0, *_known(line.values)]
    off = len(seen) > 3 and not any(seen)
    axis = scale(min(seen), max(seen)) if any(seen) else EMPTY
    return Panel("kl", "KL to reference", "nats per token", "lines", axis, (line,), note="reference is off" if off else "")


def _length(history: History) -> Panel:
    longest = _line(history, "longest", "rollout", "completion_tokens_max", faint=True)
    average = _line(history, "mean", "rollout", "completion_tokens_mean")
    buckets = history.series.buckets
    cut = buckets[-1]["truncated_fraction"] if buckets else None
    axis = scale(0.0, max([1.0, *_known(longest.values)])) if buckets else EMPTY
    return Panel(
        "length",
        "Completion length",
        "tokens",
        "lines",
        axis,
        (longest, average),
        note=f"{cut:.0%} cut at the limit" if cut and cut >= 0.005 else "",
    )


def _seconds(history: History) -> Panel:
    lines = tuple(_line(history, phase, phase, phase) for phase in PHASES)
    lines = tuple(line for line in lines if _known(line.values))
    totals = [sum(value or 0.0 for value in column) for column in zip(*(line.values for line in lines), strict=True)]
    axis = scale(0.0, _without_outliers(totals)) if any(totals) else EMPTY
    step = (history.series.column("seconds") or [None])[-1]
    beside = step is not None and totals and totals[-1] > AT_ONCE * step
    note = f"some at once: {duration(step)} a step" if beside else ""
    return Panel("seconds", "Time per step", "seconds by phase", "stack", axis, lines, note=note)


def _critic(history: History) -> tuple[Panel, ...]:
    """How well the values fit; there from the start where the run has a critic."""
    if not history.has_critic:
        return ()
    loss = _plain("value_loss", "Value loss", "per token", _line(history, "value loss", "update_critic", "value_loss"))
    line = _line(history, "critic", "update_critic", "explained_variance")
    seen = [0.0, *_known(line.values)]
    axis = scale(max(LEAST_EXPLAINED, min(seen)), max(seen)) if any(seen) else EMPTY
    note = f"below {LEAST_EXPLAINED:g} is cut" if min(seen) < LEAST_EXPLAINED else ""
    return loss, Panel("explained_variance", "Explained variance", "of the returns; 1: all", "lines", axis, (line,), note=note)


def _others(history: History) -> Iterator[Panel]:
    """What the reward tells of itself, and what moved: a weight that stays or nothing repeated needs no curve."""
    for name, column in history.series.parts.items():
        yield _plain(column, f"Reward: {visible(shorten(name, NAME))}", "", _line(history, "mean", "reward", column))
    gradient = _line(history, "norm", "update_critic", "critic_grad_norm")
    if _known(gradient.values):
        yield _plain("critic_grad_norm", "Critic's gradient", "before clipping", gradient)
    weight = _line(history, "weight", "reference", "kl_weight")
    if len(set(_known(weight.values))) > 1:
        yield _plain("kl_weight", "Weight of the KL", "", weight)
    repeated = _line(history, "share", "rollout", "repetition")
    if any(_known(repeated.values)):
        yield _plain("repetition", "Repetition", "4-grams that a completion had before", repeated)


def _plain(key: str, title: str, unit: str, line: Line) -> Panel:
    """One line over an axis that holds 0."""
    seen = [0.0, *_known(line.values)]
    return Panel(key, title, unit, "lines", scale(min(seen), max(seen)) if any(seen) else EMPTY, (line,))


def _labelled(panel: Panel) -> Panel:
    return replace(panel, labels=_labels(panel))


def _labels(panel: Panel) -> tuple[Label, ...]:
    """One label for each line, and for the sum of a stack or the last held-out point; none covers another."""
    ends = [line.values[-1] or 0.0 for line in panel.lines]
    below = [sum(ends[:at]) if panel.kind == "stack" else end / 2 for at, end in enumerate(ends)]
    heights = [low + end / 2 for low, end in zip(below, ends, strict=True)]
    named = [(line.name, "faint" if line.faint else "line", line.colour, line.values[-1]) for line in panel.lines]
    if panel.kind == "stack":
        named.append(("total", "", "", sum(ends)))
        heights.append(sum(ends))
    if panel.points:
        named.append(("held out", "point", "", panel.points[-1].mean))
        heights.append(panel.points[-1].mean)
    axis = panel.axis
    places = spread([(height - axis.low) / (axis.high - axis.low) for height in heights], LABEL_GAP)
    return tuple(
        Label(name, mark, colour, round(place, 3), number(value)) for (name, mark, colour, value), place in zip(named, places, strict=True)
    )


def _line(history: History, name: str, colour: str, column: str, *, faint: bool = False) -> Line:
    return Line(name, colour, tuple(None if v is None else _short(v) for v in history.series.column(column)), faint)


def _is_finite(point: HeldOut) -> bool:
    return math.isfinite(point.reward_mean) and math.isfinite(point.stderr)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _short(value: float) -> float:
    """Four significant digits: more can't be seen, and the state of a widget is saved in the notebook."""
    return float(f"{value:.4g}")


def _without_outliers(totals: Sequence[float]) -> float:
    """The largest total, unless a few (a warm-up, a hiccup) would press all others flat: then somewhat above the rest."""
    usual = percentile(totals, 90)
    return usual * 1.25 if max(totals) > 2.5 * usual > 0 else max(totals)
