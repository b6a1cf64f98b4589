"""What stands behind the cells of a GPU's row: the CPUs and the NUMA node near it.

``nvidia-smi topo -m`` writes CPU affinity, tab, NUMA affinity, tab, an empty cell, tab, GPU NUMA ID. Each may be empty, headers do not
stand over their values, and tabs are often lost. A number whose column can't be told is no NUMA node: None.
"""

import re
from dataclasses import dataclass

from workbench.topology.devices import Numa
from workbench.topology.reading.cells import LOST, SELF, is_class, numbers
from workbench.topology.reading.matrix import Row

TAB = 8
MOST_NODES = 1024  # of Linux
MOST_NODES_NEAR = 64  # one GPU; more are the CPUs


@dataclass(frozen=True)
class Affinity:
    """What one row says. ``cells``: how many cells it has, empty ones counted, for telling a row that was cut from a whole one.
    ``unread``: what stands there and is neither a NUMA node nor N/A.
    """

    cpus: str | None = None
    numa: Numa = None
    cells: int = 0
    unread: str = ""


@dataclass(frozen=True)
class _Table:
    """The tails of all rows of a matrix, as cells. ``exact``: whether empty cells are seen; ``columns``: of the header, or by guess."""

    rows: tuple[tuple[str, ...], ...]
    exact: tuple[bool, ...]
    columns: frozenset[str]
    gpus: int
    at_end: bool
    ended: bool

    @property
    def widest(self) -> int:
        """The most values (not counting empty cells) in one row."""
        return max((len([cell for cell in row if cell]) for row in self.rows), default=0)


def read_affinities(rows: tuple[Row, ...], columns: frozenset[str] | None, gpus: int, at_end: bool, ended: bool) -> tuple[Affinity, ...]:
    """One for each of ``rows``, the rows of GPUs. ``columns``: what the header names; None without a header.

    ``gpus``: how many rows there should be. ``at_end``: the last row is the last line of the text, and may have lost its last words;
    ``ended``: False where it may have broken off inside its last word.
    """
    split = [_exact(row) for row in rows]
    most = 4 if columns is None or "gpu numa" in columns else 2
    cells = [_shifted(exact, most) if exact is not None else tuple(row.tail.split()) for exact, row in zip(split, rows, strict=True)]
    guess = frozenset(["cpu", "numa", "gpu numa"][: max(1, max((len(row) for row in cells), default=0))])
    table = _Table(tuple(cells), tuple(exact is not None for exact in split), guess if columns is None else columns, gpus, at_end, ended)
    return tuple(_affinity(table, number) if _is_told(row) else Affinity(unread=row.text[-40:]) for number, row in enumerate(rows))


def _is_told(row: Row) -> bool:
    """Whether it is told where the cells end; "NV999" may be NV9 and a CPU."""
    last = row.cells[-1].word
    return bool(last) and LOST not in row.tail and not (re.match(r"NV\d", last) and not is_class(last))


def is_cut(affinities: tuple[Affinity, ...], columns: frozenset[str] | None, ended: bool) -> bool:
    """Whether the last row, where the text ends, has less than the others; the only row, less than its header names."""
    if not affinities:
        return False
    if len(affinities) == 1:
        return bool(columns) and not ended and affinities[0].cells < len(columns or ())
    return affinities[-1].cells < min(affinity.cells for affinity in affinities[:-1])


def _exact(row: Row) -> list[str] | None:
    """The tail's cells with the empty ones, by its tabs, or by where it stands if tabs were written as blanks; else None."""
    if "\t" in row.tail:
        first, *rest = row.tail.split("\t")
        cells = [word for piece in rest for word in piece.split() or [""]]
        return first.split() + cells if first.strip() else cells
    return None if "\t" in row.text else _by_stops(row)


def _shifted(cells: list[str], most: int) -> tuple[str, ...]:
    """Without the empty cell that a tab too many makes before the first."""
    return tuple(cells[1:] if len(cells) > most and not cells[0] else cells)


def _by_stops(row: Row) -> list[str] | None:
    """The same from tab stops: how many stops lie between the end of one cell and the begin of the next one."""
    if any((cell.start - (cell.word == SELF)) % TAB for cell in row.cells):
        return None
    last, cells = row.cells[-1], []
    end = last.end + (last.word == SELF)
    for found in re.finditer(r"\S+", row.tail):
        start = last.end + found.start()
        empty, off = divmod(start - (end // TAB + 1) * TAB, TAB)
        if off or not 0 <= empty <= 4:
            return None
        cells += [""] * empty + [found[0]]
        end = last.end + found.end()
    return cells


def _affinity(table: _Table, number: int) -> Affinity:
    cells, last = table.rows[number], table.at_end and number == len(table.rows) - 1
    values = [cell for cell in cells if cell]
    ends = bool(last and not table.ended and values)
    cpus = next(iter(cells), "")
    known = (
        numbers(cpus) is not None
        and (table.exact[number] or len(values) != 2 or values[1] != "N/A" or not cpus.isdecimal())  # that may be the NUMA node
        and not (ends and len(values) == 1)
        and (len(values) > 1 or table.exact[number] or table.columns == {"cpu"})
    )
    numa = _numa_cell(table, number, last)
    if numa and ends and cells[-1] == numa and len(values) < 3 and not _confirmed(table, cpus, numa):
        numa = ""
    near = cpus if known and (len(values) > 2 or cpus != numa or table.exact[number]) else None
    return Affinity(near, _numa(numa, cells, table), len(cells), "" if numa == "N/A" or _nodes(numa) else numa)


def _numa_cell(table: _Table, number: int, last: bool) -> str:
    """The text of the cell under NUMA Affinity, "" where there is none or where it can't be told."""
    cells = table.rows[number]
    if "numa" not in table.columns:
        return ""
    collapsed = all(cells) and len(cells) < 4 and "gpu numa" in table.columns
    if table.exact[number] and not collapsed:
        return _numa_of_exact(cells)
    if len(cells) == 3 or (len(cells) == 2 and "gpu numa" not in table.columns):
        return cells[1]
    # The tool writes N/A under GPU NUMA ID, so that a number and N/A are NUMA node and ID of a row without CPUs.
    if len(cells) == 2 and not last and table.widest == 3 and cells[0].isdecimal() and cells[1] == "N/A":
        return cells[0]
    return ""


def _numa_of_exact(cells: tuple[str, ...]) -> str:
    if len(cells) < 2:
        return ""
    if not cells[0] and not cells[1].isdecimal() and not (len(cells) == 4 and not cells[2]):
        return ""  # a list behind an empty cell may be the CPUs
    return cells[1]


def _confirmed(table: _Table, cpus: str, numa: str) -> bool:
    """Whether the others bear out the last word of a text that may have been cut: "0" of "0-1", "1" of "12"."""
    if "gpu numa" in table.columns or len(table.rows) < table.gpus:
        return False
    peers = [row[1] for row in table.rows[:-1] if len(row) == 2 and row[0] == cpus]
    if peers:
        return all(peer == numa for peer in peers)
    return all(len(row) == 2 and len(row[1]) == 1 for row in table.rows[:-1])


def _numa(text: str, cells: tuple[str, ...], table: _Table) -> Numa:
    """ "0" -> 0, "0-1" -> (0, 1). Where the GPU's memory is a NUMA node itself (a number under GPU NUMA ID) the first is the CPU's."""
    found = _nodes(text)
    if not found:
        return None
    if len(found) == 1 or "gpu numa" not in table.columns:
        return found[0] if len(found) == 1 else found
    own = cells[-1] if len(cells) > 2 and cells[-1] != text else ""
    if own.isdecimal():
        return found[0]
    return found if own else None  # cut before the ID: no one knows which


def _nodes(text: str) -> tuple[int, ...] | None:
    """The NUMA nodes of a list; None where it is none, or where no machine has such."""
    found = numbers(text)
    return found if found and len(found) <= MOST_NODES_NEAR and max(found) < MOST_NODES else None
