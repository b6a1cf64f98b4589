"""A titled table as plain data, and its two forms: HTML that survives an untrusted notebook, and aligned text."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from workbench.views.text import columns

Row = tuple[str, ...]
CELL = "padding:2px 18px 2px 0;vertical-align:top;"


@dataclass(frozen=True)
class Table:
    """``names`` heads the columns; ``align`` has a "<" or ">" for each."""

    title: str
    names: Row
    rows: tuple[Row, ...]
    align: str


def as_html(table: Table) -> str:
    """The table with inline styles only, in the colours of the page around it."""
    names = zip(table.names, table.align, strict=True) if any(table.names) else ()
    head = "".join(_cell("th", name, side, "font-weight:400;opacity:0.72;") for name, side in names)
    body = "".join(
        "<tr>" + "".join(_cell("td", text, side) for text, side in zip(row, table.align, strict=True)) + "</tr>" for row in table.rows
    )
    return (
        f'<div style="flex:1 1 320px"><div style="font-weight:600;margin-bottom:2px">{escape(table.title)}</div>'
        f'<table style="border-collapse:collapse;font-size:12px;margin:0">{f"<tr>{head}</tr>" if head else ""}{body}</table></div>'
    )


def _cell(tag: str, text: str, side: str, style: str = "") -> str:
    where = "right" if side == ">" else "left"
    return f'<{tag} style="{CELL}text-align:{where};{style}">{escape(text)}</{tag}>'


def as_text(table: Table) -> str:
    """The table as aligned lines, its title above."""
    lines: Sequence[str] = columns([table.names, *table.rows] if any(table.names) else table.rows, table.align)
    return "\n".join([table.title, *(f"  {line}" for line in lines)])
