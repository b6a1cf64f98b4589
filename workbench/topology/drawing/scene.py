"""A drawing as plain data: a handful of shapes with named colours, which ``svg`` and ``png`` put on a page.

Lengths are pixels at full width, y grows downwards. Colours are names of ``workbench.palette.THEMES``. Widths of texts are estimates
from a few classes of letters, after DejaVu Sans, which is wider than most; so what fits here fits everywhere.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

Anchor = Literal["start", "middle", "end"]
# Widths of letters in ems, for DejaVu Sans; all others are as wide as a digit, those beyond Latin as wide as high.
_CLASSES = (("ijl'|", 0.28), ("ft.,:;()[]I /!-r\\", 0.4), ("mW@%M", 0.98), ("wGOQDCNHUAXTKY#+=<>~_", 0.8))
_DIGIT, _BOLD, _NARROWEST = 0.64, 1.13, 0.28


class _Widths(dict[str, float]):
    """Letter -> ems."""

    def __missing__(self, letter: str) -> float:
        return _DIGIT if ord(letter) < 0x1100 else 1.0


_WIDTHS = _Widths({letter: width for letters, width in _CLASSES for letter in letters})


@dataclass(frozen=True)
class Rect:
    """A box. ``fill`` and ``stroke``: names of colours, "" for none. ``hint``: what a pointer that rests on it is told."""

    x: float
    y: float
    width: float
    height: float
    fill: str = ""
    stroke: str = ""
    radius: float = 0.0
    line: float = 1.0
    dashed: bool = False
    hint: str = ""


@dataclass(frozen=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Arc:
    """A bow that hangs ``depth`` below the height ``y``, from ``x1`` to ``x2``."""

    x1: float
    x2: float
    y: float
    depth: float
    colour: str
    width: float = 1.0
    hint: str = ""

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """The four points of a cubic Bezier curve, whose middle is three quarters of the way down to its inner points."""
        low = self.y + self.depth * 4 / 3
        return (self.x1, self.y), (self.x1, low), (self.x2, low), (self.x2, self.y)


@dataclass(frozen=True)
class Circle:
    """A disc, or a ring where ``stroke`` is given."""

    x: float
    y: float
    radius: float
    fill: str
    stroke: str = ""
    line: float = 1.0
    hint: str = ""


@dataclass(frozen=True)
class Text:
    """One line of text; ``y`` is its base line, ``x`` its begin, middle or end. ``hint``: as of a box."""

    x: float
    y: float
    text: str
    size: float = 11.0
    colour: str = "ink"
    bold: bool = False
    anchor: Anchor = "start"
    hint: str = ""

    @property
    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom, by the estimate of its width."""
        width = text_width(self.text, self.size, self.bold)
        left = self.x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return left, self.y - 0.76 * self.size, left + width, self.y + 0.24 * self.size


Item = Rect | Line | Arc | Circle | Text


@dataclass(frozen=True)
class Scene:
    """A drawing: what lies later lies above. ``title`` and ``description``: for those who can't see it."""

    width: float
    height: float
    items: tuple[Item, ...]
    title: str = ""
    description: str = ""


def printable(text: str) -> str:
    """``text`` with spaces for what no page can show."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def text_width(text: str, size: float, bold: bool = False) -> float:
    """About how wide a line is, in pixels."""
    return sum(map(_WIDTHS.__getitem__, text)) * size * (_BOLD if bold else 1.0)


def fit(options: Sequence[str], width: float, size: float, bold: bool = False) -> str:
    """The first of ``options``, the longest first, that is no wider than ``width``; "" where none is."""
    return next((text for text in options if text_width(text, size, bold) <= width), "")


def cut(text: str, width: float, size: float, bold: bool = False) -> str:
    """``text``, or its beginning with "…" where it is wider than ``width``."""
    if text_width(text, size, bold) <= width:
        return text
    room = width / size / (_BOLD if bold else 1.0) - _WIDTHS["…"]
    end = bisect_right(list(accumulate(map(_WIDTHS.__getitem__, text))), room + 1e-9)
    return text[:end].rstrip() + "…" if end else ""


def wrap(text: str, width: float, size: float, most: int = 4) -> tuple[str, ...]:
    """``text`` in lines no wider than ``width``, broken at spaces, long words within too; of more than ``most`` lines the last is cut."""
    letters = (most + 1) * (int(width / (_NARROWEST * size)) + 1)  # more can't be shown
    lines = list(_lines(" ".join(text.split())[:letters].split(), width, size))
    kept = lines[:most]
    if len(lines) > most:
        kept[-1] = cut(f"{kept[-1]}…", width, size)
    return tuple(kept)


def _lines(words: list[str], width: float, size: float) -> Iterator[str]:
    line = ""
    for before, word in [piece for whole in words for piece in _pieces(whole, width, size)]:
        joined = f"{line}{before}{word}" if line else word
        if text_width(joined, size) <= width:
            line = joined
            continue
        if line:
            yield line
        while text_width(word, size) > width:
            most = min(len(word), int(width / (_NARROWEST * size)) + 1)
            end = next((n for n in range(most, 1, -1) if text_width(word[:n], size) <= width), 1)
            yield word[:end]
            word = word[end:]
        line = word
    if line:
        yield line


def _pieces(word: str, width: float, size: float) -> Iterator[tuple[str, str]]:
    """What stands before a piece, and the piece: a whole word, or of one wider than a line parts as an address or a list has them."""
    parts = [word] if text_width(word, size) <= width else re.findall(r"(?:\w+://)?[^/.:,]*[/.:,]+|[^/.:,]+$", word)
    for at, part in enumerate(parts):
        yield "" if at else " ", part
