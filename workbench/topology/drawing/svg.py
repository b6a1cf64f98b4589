"""A scene as SVG: for a light page, for a dark one, or one that follows the page it stands in."""

from collections.abc import Callable, Mapping
from hashlib import sha256
from html import escape
from typing import Literal

from workbench.errors import ConfigError
from workbench.palette import THEMES
from workbench.topology.drawing.scene import Arc, Circle, Item, Line, Rect, Scene, Text, printable

Theme = Literal["light", "dark", "auto"]
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif"
_NAME = "wb-machine"
Paint = Callable[[str], str]


def check_theme(theme: str, known: tuple[str, ...] = ("light", "dark", "auto")) -> None:
    """Raise ConfigError where ``theme`` is none."""
    if theme not in known:
        raise ConfigError(f"theme {theme!r}", f"the themes are {', '.join(known)}", f"write {known[0]!r}")


def svg(scene: Scene, theme: Theme = "auto") -> str:
    """The drawing as one ``<svg>`` element, at most as wide as its page. "auto" follows JupyterLab's theme, else that of the system."""
    check_theme(theme)
    body = "".join(_element(item, _variable if theme == "auto" else THEMES[theme].__getitem__) for item in scene.items)
    id = f"{_NAME}-{sha256((theme + _text(scene.title) + body).encode()).hexdigest()[:10]}"  # two drawings of one page differ
    style = f"<style>{_rules(id)}</style>" if theme == "auto" else ""
    width, height = _number(scene.width), _number(scene.height)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" style="max-width:100%;height:auto;display:block"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{id}" class="{_NAME}" {size} font-family="{FONT}" '
        f'role="img" aria-labelledby="{id}-title {id}-desc">'
        f'<title id="{id}-title">{_text(scene.title)}</title><desc id="{id}-desc">{_text(scene.description)}</desc>{style}{body}</svg>'
    )


def _rules(id: str) -> str:
    """Light; dark where the system says so; and what JupyterLab says, which has the last word."""
    light, dark = (_variables(THEMES[name]) for name in ("light", "dark"))
    lab = "".join(f'body[data-jp-theme-light="{said}"] #{id}{{{colours}}}' for said, colours in (("true", light), ("false", dark)))
    return f"#{id}{{{light}}}@media (prefers-color-scheme:dark){{#{id}{{{dark}}}}}{lab}"


def _variables(colours: Mapping[str, str]) -> str:
    return "".join(f"--wb-{name.replace('_', '-')}:{colour};" for name, colour in colours.items())


def _variable(name: str) -> str:
    return f"var(--wb-{name.replace('_', '-')})"


def _element(item: Item, paint: Paint) -> str:
    if isinstance(item, Text):
        return _words(item, paint)
    if isinstance(item, Line):
        ends = f'x1="{_number(item.x1)}" y1="{_number(item.y1)}" x2="{_number(item.x2)}" y2="{_number(item.y2)}"'
        return f"<line {ends} {_style(paint, '', item.colour, item.width, item.dashed)}/>"
    if isinstance(item, Arc):
        first, *rest = (f"{_number(x)} {_number(y)}" for x, y in item.points)
        return _hinted("path", f'd="M{first}C{" ".join(rest)}" {_style(paint, "", item.colour, item.width)}', item.hint)
    if isinstance(item, Circle):
        shape = f'cx="{_number(item.x)}" cy="{_number(item.y)}" r="{_number(item.radius)}"'
        return _hinted("circle", f"{shape} {_style(paint, item.fill, item.stroke, item.line)}", item.hint)
    return _box(item, paint)


def _box(item: Rect, paint: Paint) -> str:
    shape = f'x="{_number(item.x)}" y="{_number(item.y)}" width="{_number(item.width)}" height="{_number(item.height)}"'
    shape += f' rx="{_number(item.radius)}"' if item.radius else ""
    return _hinted("rect", f"{shape} {_style(paint, item.fill, item.stroke, item.line, item.dashed)}", item.hint)


def _words(item: Text, paint: Paint) -> str:
    anchor = f' text-anchor="{item.anchor}"' if item.anchor != "start" else ""
    weight = ' font-weight="600"' if item.bold else ""
    title = f"<title>{_text(item.hint)}</title>" if item.hint else ""
    place = f'x="{_number(item.x)}" y="{_number(item.y)}" font-size="{_number(item.size)}"'
    return f'<text {place}{anchor}{weight} style="fill:{paint(item.colour)}">{title}{_text(item.text)}</text>'


def _style(paint: Paint, fill: str, stroke: str, width: float, dashed: bool = False) -> str:
    parts = [f"fill:{paint(fill) if fill else 'none'}"]
    if stroke:
        parts.append(f"stroke:{paint(stroke)};stroke-width:{_number(width)}")
    if dashed:
        parts.append("stroke-dasharray:4 3")
    return f'style="{";".join(parts)}"'


def _hinted(tag: str, attributes: str, hint: str) -> str:
    return f"<{tag} {attributes}><title>{_text(hint)}</title></{tag}>" if hint else f"<{tag} {attributes}/>"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _text(text: str) -> str:
    """Escaped; without what XML can't hold."""
    return escape(printable(text))
