"""HTML as a code host shows it: without scripts, drawings in SVG and style sheets; each picture taken out, to be an output of its own.

GitHub takes style attributes out as well, so what is left has to read well without them; JupyterLab and GitLab keep them.
"""

import re
from dataclasses import dataclass
from html import escape
from html.parser import HTMLParser

_KEPT = """
    a abbr b blockquote br caption cite code col colgroup dd del dfn div dl dt em figcaption figure h1 h2 h3 h4 h5 h6 hr i img ins kbd li
    mark ol p pre q s samp small span strong sub sup table tbody td tfoot th thead tr tt u ul var
"""
_ATTRIBUTES = "align alt colspan height href rowspan scope span src start style title valign width"
_DROPPED = "button canvas iframe noscript object script select style svg template textarea video audio"
KEPT, ATTRIBUTES = frozenset(_KEPT.split()), frozenset(_ATTRIBUTES.split())
DROPPED = frozenset(_DROPPED.split())  # with all in them
EMPTY = frozenset(("br", "col", "hr", "img"))  # elements that have no end
_AS = {"details": "div", "summary": "b"}  # a picture does not stand in a fold any more
_DATA = re.compile(r"data:(image/(?:png|jpeg|gif));base64,([A-Za-z0-9+/=\s]+)$")
_SAFE = re.compile(r"(?:https?:|mailto:|#|data:image/(?:png|jpeg|gif);|[^:]*$)", re.IGNORECASE)


@dataclass(frozen=True)
class Picture:
    """A picture that stood in the HTML. ``data``: base64."""

    mime: str
    data: str
    alt: str


@dataclass(frozen=True)
class Parts:
    """HTML and pictures, in their order. ``lost``: what a code host shows nothing of and nothing stands for: "script", "svg"."""

    parts: tuple[str | Picture, ...]
    lost: tuple[str, ...]


def parts(html: str) -> Parts:
    """``html`` cut at its pictures; elements that are open there are closed before and opened again behind."""
    cutter = _Cutter()
    cutter.feed(html)
    cutter.close()
    cutter.cut()
    lost = tuple(name for name in ("script", "svg") if name in cutter.lost)
    return Parts(tuple(cutter.parts), lost)


class _Cutter(HTMLParser):
    """Writes down what may stay. A picture within a table stays where it is."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str | Picture] = []
        self.lost: set[str] = set()
        self._text: list[str] = []
        self._open: list[tuple[str, str]] = []  # elements: name, and how each begins
        self._dropping: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._dropping or tag in DROPPED:
            self.lost |= {tag} & {"script", "svg"}
            if tag not in EMPTY:
                self._dropping.append(tag)
            return
        tag = _AS.get(tag, tag)
        found = {name: value or "" for name, value in attrs}
        picture = _DATA.match(found.get("src", "")) if tag == "img" else None
        if picture and not any(name == "table" for name, _ in self._open):
            self._picture(Picture(picture[1], re.sub(r"\s", "", picture[2]), found.get("alt", "")))
        elif tag in KEPT:
            begin = f"<{tag}{_attributes(found)}>"
            self._text.append(begin)
            if tag not in EMPTY:
                self._open.append((tag, begin))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in EMPTY or not (self._dropping or tag in DROPPED):
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if self._dropping:
            if tag in self._dropping:
                while self._dropping.pop() != tag:
                    pass
            return
        tag = _AS.get(tag, tag)
        if tag in [name for name, _ in self._open]:
            while self._end() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if not self._dropping:
            self._text.append(escape(data, quote=False))

    def cut(self) -> None:
        """End the part that is under way; one without a word or a picture is none."""
        text = "".join((*self._text, *(f"</{name}>" for name, _ in reversed(self._open))))
        if re.sub(r"<(?!img\b)[^>]*>", "", text).strip():
            self.parts.append(text)
        self._text = [begin for _, begin in self._open]

    def _picture(self, picture: Picture) -> None:
        self.lost -= {"svg"}  # it stands behind the drawing for which it stands
        self.cut()
        self.parts.append(picture)

    def _end(self) -> str:
        name, _ = self._open.pop()
        self._text.append(f"</{name}>")
        return name


def _attributes(found: dict[str, str]) -> str:
    safe = {
        name: value for name, value in found.items() if name in ATTRIBUTES and (name not in ("href", "src") or _SAFE.match(value.strip()))
    }
    return "".join(f' {name}="{escape(value)}"' for name, value in safe.items())
