"""Runs beside each other as a figure: reward, KL, time per phase, speed and memory. Imports matplotlib only to draw."""

import math
from collections.abc import Callable, Iterable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from workbench.palette import GRID, INK, MUTED, PAPER
from workbench.records import PHASES
from workbench.views.chart import EMPTY, LEAST_EXPLAINED
from workbench.views.figure import DPI, HEIGHT_IN, WIDTH_IN
from workbench.views.runs_palette import run_colour, run_dash
from workbench.views.scales import Axis, scale, steps_axis
from workbench.views.text import duration, number, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from workbench.views.compare import Curve, RunRow

    Values = Callable[[Curve], Sequence[float | None]]

_BASE = "#c3c9d0"
_LEGEND = 0.36  # inches a line of names takes
_CRITIC_IN = 2.7  # inches a row of two panels takes
_PER_LINE = 4
_LABELLED = 4  # runs; the numbers of more would cover each other, and the table has them


def draw(rows: "Sequence[RunRow]") -> "Figure":
    """Four panels on white paper, two more where a run has a critic; the names above them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    legend = _LEGEND * -(-len(rows) // _PER_LINE)
    of_critic = [_value_loss, _explained] if any(row.curve.value_loss for row in rows) else []
    below = _CRITIC_IN if of_critic else 0.0
    height = HEIGHT_IN + legend + below
    figure = Figure(figsize=(WIDTH_IN, height), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    _names(figure, rows, height)
    boxes = [(0.5, 3.2 + below, 3.85, 1.9), (5.3, 3.2 + below, 3.85, 1.9), (1.15, 0.35, 3.2, 2.0), (6.05, 0.35, 2.5, 2.0)]
    boxes += [(0.5, 3.2, 3.85, 1.9), (5.3, 3.2, 3.85, 1.9)][: len(of_critic)]
    for (left, bottom, width, tall), panel in zip(boxes, [_reward, _kl, _phases, _cost, *of_critic], strict=True):
        axes = figure.add_axes((left / WIDTH_IN, bottom / height, width / WIDTH_IN, tall / height))
        panel(axes, rows)
    return figure


def png(figure: "Figure") -> bytes:
    """The figure as a PNG with a palette, which is a third as large."""
    from PIL import Image

    raw, out = BytesIO(), BytesIO()
    figure.savefig(raw, format="png", dpi=DPI)
    Image.open(raw).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(out, format="png", optimize=True)
    return out.getvalue()


def _names(figure: "Figure", rows: "Sequence[RunRow]", height: float) -> None:
    for at, row in enumerate(rows):
        line, place = divmod(at, _PER_LINE)
        x, y = (0.5 + place * 2.25) / WIDTH_IN, 1 - (0.24 + line * _LEGEND) / height
        figure.text(x, y, "■", color=run_colour(at), fontsize=9, va="center")
        figure.text(x + 0.16 / WIDTH_IN, y, shorten(row.name, 30), color=INK, fontsize=8, va="center")


def _reward(axes: "Axes", rows: "Sequence[RunRow]") -> None:
    curves = [row.curve for row in rows]
    points = [p for curve in curves for p in curve.held_out]
    seen = [*_known(value for curve in curves for value in curve.reward)]
    seen += [value for point in points for value in (point.reward_mean - point.stderr, point.reward_mean + point.stderr)]
    unit = all(-0.001 <= value <= 1.001 for value in seen)
    axis = Axis(0.0, 1.0, ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))) if unit else scale(min(seen), max(seen))
    _over_steps(axes, curves, lambda curve: curve.reward, axis)
    turned = "; ◆ a knob turned" if any(curve.turned for curve in curves) else ""
    _title(axes, "Reward", f"mean per step; ○ held out, ± standard error{turned}")
    for at, curve in enumerate(curves):
        for point in curve.held_out:
            style: dict[str, Any] = {"fmt": "o", "ms": 5, "mew": 1.3, "elinewidth": 1, "zorder": 5, "clip_on": False}
            axes.errorbar(point.step, point.reward_mean, point.stderr, color=run_colour(at), mfc=PAPER, **style)


def _kl(axes: "Axes", rows: "Sequence[RunRow]") -> None:
    _from_zero(axes, rows, lambda curve: curve.kl)
    _title(axes, "KL to reference", "nats per token")


def _value_loss(axes: "Axes", rows: "Sequence[RunRow]") -> None:
    _from_zero(axes, rows, lambda curve: curve.value_loss)
    _title(axes, "Value loss", "half the squared error of a value, mean over tokens")


def _explained(axes: "Axes", rows: "Sequence[RunRow]") -> None:
    _from_zero(axes, rows, lambda curve: curve.explained_variance, LEAST_EXPLAINED)
    _title(axes, "Explained variance", "of the returns; 1: all, 0: no better than their mean")


def _from_zero(axes: "Axes", rows: "Sequence[RunRow]", values: "Values", least: float = -math.inf) -> None:
    """Over an axis that holds 0; what is below ``least`` is cut."""
    curves = [row.curve for row in rows]
    seen = [0.0, *_known(value for curve in curves for value in values(curve))]
    _over_steps(axes, curves, values, scale(max(least, min(seen)), max(seen)) if any(seen) else EMPTY)


def _over_steps(axes: "Axes", curves: "Sequence[Curve]", values: "Values", axis: Axis) -> None:
    last = max((curve.step[-1] for curve in curves if curve.step), default=1)
    steps = steps_axis(round(last), round(last))
    _plain(axes)
    axes.set_xlim(steps.low, steps.high)
    axes.set_ylim(axis.low, axis.high)
    axes.set_xticks([at for at, _ in steps.ticks], [label for _, label in steps.ticks])
    axes.set_yticks([at for at, _ in axis.ticks], [label for _, label in axis.ticks])
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.spines["bottom"].set_color(_BASE)
    axes.annotate("step", (1, 0), (10, -10), "axes fraction", "offset points", fontsize=7.5, color=MUTED)
    for at, curve in enumerate(curves):
        if not values(curve):
            continue
        heights = [float("nan") if value is None else value for value in values(curve)]
        marker = "o" if len(heights) == 1 else None
        axes.plot(curve.step, heights, color=run_colour(at), linestyle=run_dash(at), linewidth=1.5, marker=marker, ms=3)
        for point in curve.turned:
            axes.plot(curve.step[point], heights[point], "D", color=run_colour(at), ms=3.6, mec=PAPER, mew=0.6, zorder=4)


def _phases(axes: "Axes", rows: "Sequence[RunRow]") -> None:
    """A dot at the median, a thick line to the 95th percentile, a thin one to the 99th. Phases are far apart: a logarithmic axis."""
    phases = [phase for phase in PHASES if any(phase in row.phase_seconds for row in rows)]
    _plain(axes)
    _title(axes, "Time per phase", "seconds: ● p50  ━ p95  ─ p99")
    found = [row.phase_seconds[phase] for row in rows for phase in phases if phase in row.phase_seconds]
    positive = [value for seconds in found for value in (seconds.p50, seconds.p99) if value > 0]
    axes.set_ylim(max(1, len(phases)) - 0.5, -0.5)
    axes.set_yticks(range(len(phases)), phases)
    if not positive:
        axes.set_xticks([])
        return
    axes.set_xscale("log")
    axes.set_xlim(min(positive) * 0.7, max(positive) * 1.4)
    ticks = [10.0**power for power in range(-5, 5) if min(positive) * 0.7 <= 10.0**power <= max(positive) * 1.4]
    axes.set_xticks(ticks, [duration(tick).replace(".00", "") for tick in ticks])
    axes.minorticks_off()
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    for at, row in enumerate(rows):
        for place, phase in enumerate(phases):
            seconds = row.phase_seconds.get(phase)
            if seconds is None or seconds.p50 <= 0:
                continue
            y, colour = place + _offset(at, len(rows)), run_colour(at)
            axes.plot((seconds.p50, seconds.p95), (y, y), color=colour, linewidth=2.4, solid_capstyle="butt")
            axes.plot((seconds.p95, seconds.p99), (y, y), color=colour, linewidth=0.9, solid_capstyle="butt")
            axes.plot(seconds.p50, y, "o", color=colour, ms=max(2.0, 5 - 0.5 * len(rows)))


def _cost(axes: "Axes", rows: "Sequence[RunRow]") -> None:
    """Three groups of bars, each against the largest of its own."""
    groups = {
        "rollout\ntokens/s": [row.rollout_tokens_per_second for row in rows],
        "training\ntokens/s": [row.train_tokens_per_second for row in rows],
        "peak memory\nGiB": [row.peak_memory_gib for row in rows],
    }
    _plain(axes)
    _title(axes, "Speed and memory", "each against the largest of its kind")
    axes.set_xlim(0, 1)
    axes.set_ylim(len(groups) - 0.5, -0.5)
    axes.set_xticks([])
    axes.set_yticks(range(len(groups)), groups)
    for place, values in enumerate(groups.values()):
        largest = max(_known(values), default=0.0) or 1.0
        for at, value in enumerate(values):
            y = place + _offset(at, len(rows))
            axes.barh(y, (value or 0.0) / largest, height=0.62 / len(rows), color=run_colour(at), linewidth=0)
            if len(rows) <= _LABELLED:
                style: dict[str, Any] = {"textcoords": "offset points", "va": "center", "fontsize": 7.5, "annotation_clip": False}
                axes.annotate(number(value), ((value or 0.0) / largest, y), (5, 0), color=INK, **style)


def _offset(at: int, count: int) -> float:
    """Where in its group, of height 1 around 0, the mark of run ``at`` stands."""
    return (at + 0.5) / count * 0.7 - 0.35


def _plain(axes: "Axes") -> None:
    axes.tick_params(length=0, labelsize=7.5, labelcolor=MUTED, pad=4)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.spines["bottom"].set_visible(True)
    axes.spines["bottom"].set_color(PAPER)


def _title(axes: "Axes", title: str, unit: str) -> None:
    axes.annotate(title, (0, 1), (0, 17), "axes fraction", "offset points", fontsize=9, fontweight="bold", color=INK)
    axes.annotate(unit, (0, 1), (0, 7), "axes fraction", "offset points", fontsize=7.5, color=MUTED)


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
