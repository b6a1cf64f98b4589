"""The curves as a PNG, drawn by matplotlib from the same description as the live view. Imports matplotlib only to draw."""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from workbench.palette import GRID, INK, LIGHT, MUTED, PAPER
from workbench.views.chart import Chart, Panel
from workbench.views.scales import Axis
from workbench.views.text import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDTH_IN, HEIGHT_IN, DPI = 9.6, 5.6, 150  # the height of two rows of panels
# Inches: the frame of one panel within its cell. To the right stand the names and last values of its lines.
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.46, 1.38, 0.6, 0.34
_ROWS = (5, 15, 26)  # points above a plot: of the flags; the highest is the title's
FAINT = 0.65
_DASH = (0, (2, 3))
_HALO = {"boxstyle": "square,pad=0.1", "facecolor": PAPER, "linewidth": 0}


def png(chart: Chart, panels: Sequence[Panel] | None = None) -> bytes:
    """``panels`` (the chart's own) two by two on white paper, ``WIDTH_IN * DPI`` by ``HEIGHT_IN / 2 * DPI`` pixels a row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    panels = chart.panels if panels is None else panels
    rows = -(-len(panels) // 2)
    cell_width, cell_height = WIDTH_IN / 2, HEIGHT_IN / 2
    tall = rows * cell_height
    figure = Figure(figsize=(WIDTH_IN, tall), dpi=DPI, facecolor=PAPER)
    FigureCanvasAgg(figure)
    for at, panel in enumerate(panels):
        left = at % 2 * cell_width + _LEFT
        bottom = (rows - 1 - at // 2) * cell_height + _BOTTOM
        width, height = cell_width - _LEFT - _RIGHT, cell_height - _TOP - _BOTTOM
        axes = figure.add_axes((left / WIDTH_IN, bottom / tall, width / WIDTH_IN, height / tall))
        _draw(axes, chart, panel)
    raw, out = BytesIO(), BytesIO()
    figure.savefig(raw, format="png", dpi=DPI)
    # Some forty colours and their mixtures: a palette makes the file, which is saved in the notebook, three times smaller.
    image = Image.open(raw).convert("RGB")
    image.quantize(96, dither=Image.Dither.NONE).save(out, format="png", optimize=True)
    return out.getvalue()


def _draw(axes: "Axes", chart: Chart, panel: Panel) -> None:
    _frame(axes, chart.axis, panel)
    middles = [(first + last) / 2 for first, last in zip(chart.first, chart.last, strict=True)]
    if panel.kind == "stack":
        _stack(axes, chart, panel, middles)
    else:
        _lines(axes, panel, middles)
    _labels(axes, panel)
    _marks(axes, chart)
    if panel is chart.panels[0]:
        _flags(axes, chart)
    for point in panel.points:
        axes.errorbar(
            point.step, point.mean, point.stderr, fmt="o", ms=5, color=INK, mfc=PAPER, mew=1.2, elinewidth=1, zorder=5, clip_on=False
        )


def _frame(axes: "Axes", steps: Axis, panel: Panel) -> None:
    axes.set_xlim(steps.low, steps.high)
    axes.set_ylim(panel.axis.low, panel.axis.high)
    axes.set_xticks([at for at, _ in steps.ticks], [label for _, label in steps.ticks])
    axes.set_yticks([at for at, _ in panel.axis.ticks], [label for _, label in panel.axis.ticks])
    axes.tick_params(length=0, labelsize=7.5, labelcolor=MUTED, pad=4)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color("#c3c9d0")
    title = axes.annotate(panel.title, (0, 1), (0, _ROWS[2]), "axes fraction", "offset points", fontsize=9, fontweight="bold", color=INK)
    unit = panel.unit + (f" · {panel.note}" if panel.note else "")
    axes.annotate(unit, (1, 1), (6, _ROWS[2]), (title, "axes fraction"), "offset points", fontsize=7.5, color=MUTED)
    axes.annotate("step", (1, 0), (18, -10), "axes fraction", "offset points", fontsize=7.5, color=MUTED)


def _lines(axes: "Axes", panel: Panel, middles: list[float]) -> None:
    for line in panel.lines:
        values = [float("nan") if value is None else value for value in line.values]
        marker: dict[str, Any] = {"marker": "o", "ms": 3} if len(values) == 1 else {}
        width, alpha = (0.9, FAINT) if line.faint else (1.6, 1.0)
        axes.plot(middles, values, color=LIGHT[line.colour], linewidth=width, alpha=alpha, **marker)


def _stack(axes: "Axes", chart: Chart, panel: Panel, middles: list[float]) -> None:
    """A bar per step; what is cut at the top says how high it is."""
    share = 0.86 if len(middles) <= 100 else 1.0  # no gaps between hairlines
    widths = [(last - first) + share for first, last in zip(chart.first, chart.last, strict=True)]
    bottom = [0.0] * len(middles)
    for line in panel.lines:
        values = [value or 0.0 for value in line.values]
        axes.bar(middles, values, widths, bottom, color=LIGHT[line.colour], linewidth=0)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    for middle, top in zip(middles, bottom, strict=True):
        if top > panel.axis.high:
            axes.annotate(
                f"▲ {number(top)} s", (middle, 1), (5, -8), ("data", "axes fraction"), "offset points", fontsize=7, color=MUTED, bbox=_HALO
            )


def _marks(axes: "Axes", chart: Chart) -> None:
    """What changed while it ran: a thin line, on a schedule a band."""
    for mark in chart.marks:
        axes.axvline(mark.first, color=MUTED, linewidth=0.7, alpha=0.75 * chart.strength, linestyle=_DASH, zorder=1)
        if mark.last > mark.first:
            axes.axvspan(mark.first, mark.last, color=MUTED, alpha=0.1, linewidth=0, zorder=0)


def _flags(axes: "Axes", chart: Chart) -> None:
    """The words of the marks; a line leads up to each."""
    for flag in chart.flags:
        height = _ROWS[flag.row]
        leader = {"arrowstyle": "-", "color": MUTED, "linewidth": 0.7, "alpha": 0.75, "linestyle": _DASH, "shrinkA": 0, "shrinkB": 0}
        top = ("data", "axes fraction")
        axes.annotate("", (flag.step, 1), (0, height + 5), top, "offset points", arrowprops=leader, annotation_clip=False)
        begin = flag.step - flag.shift * chart.axis.high
        offset = (0 if flag.shift else 2.5, height)
        axes.annotate(flag.text, (begin, 1), offset, top, "offset points", fontsize=7, color=MUTED, annotation_clip=False)


def _labels(axes: "Axes", panel: Panel) -> None:
    """Names and last values to the right of where the lines end."""
    style: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "center", "fontsize": 7.5}
    for label in panel.labels:
        place = (1, label.place)
        if label.mark:
            colour = LIGHT[label.colour] if label.colour else INK
            mark = "○" if label.mark == "point" else "■"
            axes.annotate(mark, place, (9, 0), color=colour, alpha=FAINT if label.mark == "faint" else 1.0, **style)
        axes.annotate(label.name, place, (18, 0), color=MUTED, **style)
        axes.annotate(label.text, place, (92, 0), color=INK, ha="right", **style)
