"""A table with a column for each run, in sections: as HTML that survives an untrusted notebook, and as aligned text."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from workbench.views.runs_palette import run_colour
from workbench.views.text import columns, shorten

PARTS = 3  # columns that a run takes: the percentiles; a single text takes them together
_CELL = "padding:2px 14px 2px 0;vertical-align:top;text-align:left;"
_LINE = "border-top:1px solid rgba(128,138,150,0.3);"
_WIDE = "white-space:pre;"  # many runs scroll rather than break


@dataclass(frozen=True)
class Head:
    """Above a column: which run, and what it is."""

    name: str
    subtitle: str


@dataclass(frozen=True)
class Section:
    """Rows of a label and, for each run, one text or as many as there are ``parts`` (one, or ``PARTS``)."""

    title: str
    rows: tuple[tuple[str, tuple[tuple[str, ...], ...]], ...]
    parts: tuple[str, ...] = ("",)


def table_html(heads: Sequence[Head], sections: Sequence[Section]) -> str:
    """The table in the colours of the page around it; a run's name stands beside its colour."""
    above = "".join(
        f'<th colspan="{PARTS}" style="{_CELL}padding-right:36px;font-weight:400"><span style="color:{run_colour(at)}">■</span> '
        f'<b title="{escape(head.name)}">{escape(shorten(head.name, 34))}</b>'
        f'<div style="opacity:0.72;font-size:11px">{escape(head.subtitle)}</div></th>'
        for at, head in enumerate(heads)
    )
    body = "".join(_section_html(section, len(heads)) for section in sections)
    return (
        '<div style="overflow-x:auto"><table style="border-collapse:collapse;font-size:12px;margin:0;font-variant-numeric:tabular-nums">'
        f'<tr><th style="{_CELL}"></th>{above}</tr>{body}</table></div>'
    )


def _section_html(section: Section, runs: int) -> str:
    """A heading, with the names of the parts; then the rows."""
    if len(section.parts) > 1:
        beside = "".join(_td(part, f"{_LINE}padding-top:8px;opacity:0.72;") for part in section.parts * runs)
    else:
        beside = f'<td colspan="{PARTS * runs}" style="{_LINE}"></td>'
    rows = [f'<tr><td style="{_CELL}{_LINE}padding-top:8px;font-weight:600">{escape(section.title)}</td>{beside}</tr>']
    for label, cells in section.rows:
        texts = "".join(_row_of_run(texts) for texts in cells)
        rows.append(f"<tr>{_td(label, f'{_WIDE}opacity:0.72;')}{texts}</tr>")
    return "".join(rows)


def _row_of_run(texts: Sequence[str]) -> str:
    gap = "padding-right:36px;"  # between two runs
    if len(texts) == 1:
        return _td(texts[0], _WIDE + gap, PARTS)
    return "".join(_td(text, _WIDE + (gap if at == PARTS - 1 else "")) for at, text in enumerate(texts))


def _td(text: str, style: str, span: int = 1) -> str:
    return f'<td{f" colspan={span}" if span > 1 else ""} style="{_CELL}{style}">{escape(text)}</td>'


def table_text(heads: Sequence[Head], sections: Sequence[Section]) -> str:
    """The same for a terminal; what has several lines stands on one."""
    empty = ("",) * len(heads)
    lines: list[tuple[str, ...]] = [("", *(shorten(head.name, 34) for head in heads)), ("", *(head.subtitle for head in heads))]
    for section in sections:
        parts = f", {' / '.join(section.parts)}" if len(section.parts) > 1 else ""
        lines += [("", *empty), (section.title + parts, *empty)]
        lines += [(f"  {label}", *map(_one_line, cells)) for label, cells in section.rows]
    return "\n".join(columns(lines, "<" * (len(heads) + 1)))


def _one_line(texts: Sequence[str]) -> str:
    return " / ".join(text.replace("\n", "; ") for text in texts if text)
