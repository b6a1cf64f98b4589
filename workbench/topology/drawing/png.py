"""A scene as PNG, drawn by matplotlib without a display. Imports matplotlib only to draw."""

import warnings
from collections.abc import Mapping
from io import BytesIO
from typing import TYPE_CHECKING, Any

from workbench.palette import THEMES, mix
from workbench.topology.drawing.scene import Arc, Circle, Item, Line, Rect, Scene, Text, printable
from workbench.topology.drawing.svg import check_theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from PIL import Image

SCALE = 2  # pixels of the image to one of the scene
_UNITS = 100  # of the scene to an inch: a size in pixels is 0.72 of it in points
_DASH = (0, (4, 3))


def png(scene: Scene, theme: str = "light") -> bytes:
    """The drawing, ``SCALE`` times as large as the scene. ``theme``: "light" or "dark"; an image can follow no page."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from PIL import Image

    check_theme(theme, ("light", "dark"))
    colours = {"": "none", **THEMES[theme]}
    figure = Figure(figsize=(scene.width / _UNITS, scene.height / _UNITS), dpi=SCALE * _UNITS, facecolor=colours["paper"])
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set_xlim(0, scene.width)
    axes.set_ylim(scene.height, 0)
    for order, item in enumerate(scene.items):
        _draw(axes, item, colours, order)
    out = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # a letter that DejaVu lacks is drawn as a box
        canvas.draw()
    image = Image.frombuffer("RGBA", canvas.get_width_height(), canvas.buffer_rgba()).convert("RGB")
    image.quantize(palette=_palette(colours), dither=Image.Dither.NONE).save(out, format="png", optimize=True)
    return out.getvalue()


def _palette(colours: Mapping[str, str]) -> "Image.Image":
    """The theme's colours, exactly, and the mixtures at the edges of letters and lines. With it the file, which is saved in the notebook,
    is three times smaller."""
    from PIL import Image

    surfaces = [name for name in colours if name in ("paper", "node", "area", "tile", "band") or name.endswith("-soft")]
    edges = [("ink", surface) for surface in surfaces] + [(line, surface) for line in ("muted", "wire", "edge") for surface in surfaces[:4]]
    mixtures = [mix(colours[one], colours[other], share) for one, other in edges for share in (0.2, 0.4, 0.6, 0.8)]
    flat = [colour for colour in colours.values() if colour != "none"]
    palette = Image.new("P", (1, 1))
    palette.putpalette([int(colour[at : at + 2], 16) for colour in dict.fromkeys(flat + mixtures) for at in (1, 3, 5)])
    return palette


def _draw(axes: "Axes", item: Item, colours: dict[str, str], order: int) -> None:
    from matplotlib import patches

    if isinstance(item, Text):
        _words(axes, item, colours, order)
    elif isinstance(item, Line):
        style: dict[str, Any] = {"linestyle": _DASH} if item.dashed else {}
        ends = (item.x1, item.x2), (item.y1, item.y2)
        axes.plot(*ends, color=colours[item.colour], linewidth=_points(item.width), solid_capstyle="butt", zorder=order, **style)
    elif isinstance(item, Arc):
        axes.add_patch(_bow(item, colours, order))
    elif isinstance(item, Circle):
        style = {"facecolor": colours[item.fill], "edgecolor": colours[item.stroke], "linewidth": _points(item.line)}
        axes.add_patch(patches.Circle((item.x, item.y), item.radius, zorder=order, **style))
    else:
        _box(axes, item, colours, order)


def _box(axes: "Axes", item: Rect, colours: dict[str, str], order: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    shape = f"round,pad=0,rounding_size={item.radius}" if item.radius else "square,pad=0"
    style: dict[str, Any] = {"linestyle": _DASH} if item.dashed else {}
    style |= {"linewidth": _points(item.line) if item.stroke else 0, "zorder": order}
    box = FancyBboxPatch((item.x, item.y), item.width, item.height, shape, fc=colours[item.fill], ec=colours[item.stroke], **style)
    axes.add_patch(box)


def _bow(item: Arc, colours: dict[str, str], order: int) -> Any:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    path = Path(item.points, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
    return PathPatch(path, fc="none", ec=colours[item.colour], linewidth=_points(item.width), capstyle="butt", zorder=order)


def _words(axes: "Axes", item: Text, colours: dict[str, str], order: int) -> None:
    place = {"start": "left", "middle": "center", "end": "right"}[item.anchor]
    weight = "bold" if item.bold else "normal"
    style: dict[str, Any] = {"fontfamily": "DejaVu Sans", "fontsize": _points(item.size), "fontweight": weight, "parse_math": False}
    axes.text(item.x, item.y, printable(item.text), color=colours[item.colour], ha=place, va="baseline", zorder=order, **style)


def _points(pixels: float) -> float:
    return pixels * 72 / _UNITS
