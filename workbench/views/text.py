"""Text for people: model output made visible and safe, numbers short, tables that read well in a terminal."""

import math
import unicodedata
from collections.abc import Sequence
from html import escape

BLOCKS = "▁▂▃▄▅▆▇█"
NOTHING = "—"
_NAMED = {"\n": "↵", "\r": "␍", "\t": "⇥", "\u00a0": "⍽"}


def marks(text: str) -> list[tuple[str, bool]]:
    """``text`` as (piece, is_mark) pairs in which nothing is invisible.

    Marked are line ends, tabs, blanks at either end or in a row, control and format characters (a bidirectional override
    would reorder what is around it), lone surrogates. A single blank between words stays as it is.
    """
    pieces: list[tuple[str, bool]] = []
    for at, char in enumerate(text):
        mark = _mark(text, at, char)
        piece, is_mark = (char, False) if mark is None else (mark, True)
        if pieces and pieces[-1][1] == is_mark:
            pieces[-1] = (pieces[-1][0] + piece, is_mark)
        else:
            pieces.append((piece, is_mark))
    return pieces


def _mark(text: str, at: int, char: str) -> str | None:
    """What stands for the character at ``at``; None if it can be seen as it is."""
    if char == " ":
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        return None if before.strip() and after.strip() else "·"
    if char in _NAMED:
        return _NAMED[char]
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"):
        return f"\\x{ord(char):02x}" if ord(char) < 256 else f"\\u{ord(char):04x}"
    return None


def visible(text: str) -> str:
    """``text`` on one line with nothing invisible in it; for a terminal."""
    return "".join(piece for piece, _ in marks(text))


def shorten(text: str, limit: int) -> str:
    """The first ``limit`` characters; the last of them is "…" where something was left out."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def html_text(text: str, limit: int, *, breaks: bool = False) -> str:
    """``text`` escaped, marks dimmed, at most ``limit`` characters long; the whole text appears on hover.

    With ``breaks`` a line end also breaks the line (inside an element with ``white-space: pre-wrap``).
    """
    if text == "":
        return '<span style="opacity:0.6">(empty)</span>'
    end = "↵\n" if breaks else "↵"
    short = "".join(
        f'<span style="opacity:0.55">{escape(piece).replace("↵", end)}</span>' if is_mark else escape(piece)
        for piece, is_mark in marks(shorten(text, limit))
    )
    # What is hovered keeps its line ends; everything else that can't be seen is marked there too.
    whole = "\n".join(visible(line) for line in shorten(text, 4000).split("\n"))
    return f'<span title="{escape(whole)}">{short}</span>'


def number(value: float | None, unit: str = "") -> str:
    """A number with two or three digits that matter: 0.78, 12.3k, 1.2e-5; a dash for None and what is not finite."""
    if value is None or not math.isfinite(value):
        return NOTHING
    size = abs(value)
    tail = f" {unit}" if unit else ""
    if size >= 1e6:
        return f"{value / 1e6:.3g}M{tail}"
    if size >= 1e4:
        return f"{value / 1e3:.3g}k{tail}"
    if size >= 100 or value == int(value):
        return f"{value:.0f}{tail}"
    if size >= 10:
        return f"{value:.1f}{tail}"
    if size >= 0.1:
        return f"{value:.2f}{tail}"
    return f"{tidy(value)}{tail}"


def tidy(value: float) -> str:
    """A small number with two digits: 0.0051, and from 0.001 down 1.2e-5."""
    if abs(value) >= 1e-3:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def duration(seconds: float | None) -> str:
    """A time as people say it: 4.2 ms, 0.48 s, 52 s, 3 min 05 s, 2 h 10 min."""
    if seconds is None or not math.isfinite(seconds):
        return NOTHING
    if seconds < 0.1:
        return f"{seconds * 1e3:.2g} ms" if seconds > 0 else "0 s"
    if seconds < 10:
        return f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: float | None) -> str:
    """Bytes as 512 B, 3.2 KiB, 1.5 GiB."""
    if count is None:
        return NOTHING
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"


def spark(values: Sequence[float | None], width: int = 32) -> str:
    """The course of ``values`` in ``width`` blocks, low to high; a blank where there is nothing."""
    if not values:
        return ""
    count = min(width, len(values))
    groups = [[v for v in values[i * len(values) // count : (i + 1) * len(values) // count] if v is not None] for i in range(count)]
    means = [sum(group) / len(group) if group else None for group in groups]
    known = [value for value in means if value is not None]
    if not known:
        return " " * count
    low, span = min(known), max(known) - min(known)
    return "".join(" " if value is None else BLOCKS[round((value - low) / span * 7) if span else 3] for value in means)


def columns(rows: Sequence[Sequence[str]], align: str) -> list[str]:
    """Rows as aligned lines; ``align`` has one "<" or ">" per column. The last column is not padded."""
    widths = [max(len(row[at]) for row in rows) for at in range(len(align))]
    return ["  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, align, widths, strict=True)).rstrip() for row in rows]
