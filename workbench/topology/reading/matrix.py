"""Matrices between devices in a text: which lines are header and rows, and which cell is between which two devices."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from workbench.errors import ConfigError
from workbench.topology.reading.cells import P2P, SELF, Cell, is_class, is_word, scan
from workbench.topology.reading.page import Page

# Names of network cards as drivers give them; where two names are glued together the second one begins here.
_CARD = r"NIC\d{1,4}(?!\d)|(?:mlx|roce|ibp|ibs|bnxt|hfi|efa|irdma|rdmap|qedr|cxgb|hns)[a-z]*_?\d"
_GLUE = re.compile(rf"(?<=\d)(?=GPU\d|{_CARD})")
_GPU = re.compile(r"(?<![A-Za-z0-9_])GPU\d")
_AFFINITY = re.compile(r"CPU(?!\d)|NUMA|Affinity|GPU\s{1,8}NUMA")
_DEVICE = re.compile(r"[A-Za-z][\w.\-]{0,40}\Z")
_LABEL = re.compile(r"(?<![A-Za-z0-9_])(?:GPU\d{1,4}(?!\d)|NIC\d{1,4}(?!\d)|mlx\d_\d{1,3}(?!\d)|[A-Za-z][\w.\-]{0,40})")
_COMMAND = re.compile(r"topo\s+(-\S+(?:\s+\w+)?)")
_OTHER_MATRICES = re.compile(r"-mp|-p2p\s+[anp]")  # PCIe under the NVLinks; atomics, NVLinks, properties

ASKED = "Topology.parse(text)"
SHORTEST = 4  # "GPU0"
MOST_GPUS, MOST_MATRICES, MOST_ROWS = 128, 64, 4096  # the largest machines have 72 GPUs


@dataclass(frozen=True)
class Header:
    """The names of the columns: devices, and which affinities follow (any of "cpu", "numa", "gpu numa")."""

    devices: tuple[str, ...]
    affinities: frozenset[str]

    @cached_property
    def known(self) -> frozenset[str]:
        """The devices, for asking fast."""
        return frozenset(self.devices)


@dataclass(frozen=True)
class Row:
    """A row: the device it is of, its cells, and its ``text`` from the label on, which holds the affinities. ``line``: its number."""

    label: str
    cells: tuple[Cell, ...]
    text: str
    line: int

    @property
    def tail(self) -> str:
        """What follows the cells."""
        return self.text[self.cells[-1].end :]

    @cached_property
    def diagonal(self) -> int | None:
        """Where its own X stands; None where there is not exactly one."""
        found = [position for position, cell in enumerate(self.cells) if cell.word == SELF]
        return found[0] if len(found) == 1 else None


@dataclass
class Matrix:
    """A header, if there is one, and the rows under it. ``command``: the `topo` option last named before it, "-p2p r"."""

    header: Header | None
    command: str
    rows: list[Row] = field(default_factory=list)
    labels: set[str] = field(default_factory=set)

    def add(self, row: Row) -> None:
        """Put ``row`` under the others."""
        self.rows.append(row)
        self.labels.add(row.label)

    @cached_property
    def words(self) -> set[str]:
        """What its cells say, X left out."""
        return {cell.word for row in self.rows for cell in row.cells} - {SELF}

    @property
    def is_p2p(self) -> bool:
        """Whether it says which GPUs may read each other's memory."""
        return any(word in P2P for word in self.words) and not self.is_links

    @property
    def is_links(self) -> bool:
        """Whether it says what lies between devices."""
        return any(is_class(word) for word in self.words)

    @property
    def is_other(self) -> bool:
        """Whether it is one that says neither."""
        return bool(_OTHER_MATRICES.match(self.command))


def is_gpu(name: str) -> bool:
    """Whether a column or row is a GPU's: "GPU12", not "GPU012"."""
    number = name[3:]
    plain = number.isascii() and number.isdecimal() and len(number) <= 4 and (number[0] != "0" or number == "0")
    return plain and name.startswith("GPU")


def find_matrices(page: Page) -> list[Matrix]:
    """All matrices of a page, in order."""
    found: list[Matrix] = []
    command = ""
    for number, line in enumerate(page.lines):
        if len(line) < SHORTEST or line.isspace():
            continue
        said = _COMMAND.search(line) if "topo" in line else None
        command = said[1] if said else command
        header = read_header(line)
        if header:
            command = "" if _open(found, Matrix(header, command)) else command
            _check_size(found)
        elif _add(found, line, number):
            _check_size(found)
    return [matrix for matrix in found if matrix.rows and (matrix.header or _names_itself(matrix))]


def _names_itself(matrix: Matrix) -> bool:
    """Whether rows without a header tell their columns: each has its own X, or it is the only one, with CPUs behind its X."""
    if len(matrix.rows) == 1:
        return len(matrix.rows[0].cells) == 1 and bool(matrix.rows[0].tail.strip())
    return len({row.diagonal for row in matrix.rows}) == len(matrix.labels)


def _check_size(found: list[Matrix]) -> None:
    last = found[-1]
    if len(found) > MOST_MATRICES or len(last.rows) > MOST_ROWS:
        raise ConfigError(ASKED, f"the text has over {MOST_MATRICES} matrices, or one of over {MOST_ROWS} rows", "give one machine's")
    gpus = sum(map(is_gpu, last.header.devices)) if last.header and len(last.rows) == 1 else 0
    if gpus > MOST_GPUS:
        raise ConfigError(ASKED, f"the matrix has {gpus} GPUs", f"give the matrix of one machine, of {MOST_GPUS} GPUs at most")


def _open(found: list[Matrix], matrix: Matrix) -> bool:
    """Start a matrix. A header that got no rows gives way, unless the new one is but a word in passing ("on GPU0")."""
    waiting = found[-1] if found and not found[-1].rows else None
    if waiting and waiting.header and matrix.header and waiting.header.affinities and not matrix.header.affinities:
        return False
    if waiting:
        found.pop()
    found.append(matrix)
    return True


def _add(found: list[Matrix], line: str, number: int) -> bool:
    """Add ``line`` to the matrix that it is a row of; a row of none begins a matrix without a header. Whether it is a row."""
    for matrix in reversed(found[-2:]):
        row = read_row(line, number, matrix.header) if matrix.header else None
        if row:
            matrix.add(row)
            return True
    row = read_row(line, number, None)
    if row is None:
        return False
    if not found or row.label in found[-1].labels:
        found.append(Matrix(None, ""))
    found[-1].add(row)
    return True


def read_header(line: str) -> Header | None:
    """The columns that ``line`` names, whatever stands before the first; None where it is no header."""
    first = _GPU.search(line) if "GPU" in line else None
    if not first:
        return None
    affinity = _AFFINITY.search(line, first.start())
    end = affinity.start() if affinity else len(line)
    words = _cards_before(line[: first.start()]) + line[first.start() : end].split()
    devices = tuple(name for word in words for name in (_GLUE.split(word[:4096]) if len(word) > 7 else (word,)))
    if not all(is_device(name) for name in devices) or len(set(devices)) < len(devices):
        return None
    tail = line[end : end + 400]
    named = {"cpu": "CPU" in tail, "numa": bool(re.search(r"(?<!GPU )NUMA", tail)), "gpu numa": bool(re.search(r"GPU\s{1,8}NUMA", tail))}
    return Header(devices, frozenset(name for name, there in named.items() if there))


def _cards_before(text: str) -> list[str]:
    """The network cards that the header names before the first GPU; what is no card before them is no part of it."""
    words = text.split()
    start = len(words)
    while start and re.match(_CARD, words[start - 1]):
        start -= 1
    return words[start:]


def is_device(name: str) -> bool:
    if name.startswith("GPU"):
        return is_gpu(name)
    return bool(_DEVICE.match(name)) and any(letter.isdigit() for letter in name) and not is_word(name)


def read_row(line: str, number: int, header: Header | None) -> Row | None:
    """The row that ``line`` is, whatever stands before its label; without a header it needs its X and nothing but cells and numbers."""
    for tries, found in enumerate(_LABEL.finditer(line)):
        if tries > 8:
            return None
        label, text = found[0], line[found.start() :]
        if (label in header.known) if header else (is_gpu(label) or re.match(_CARD, label)):
            cells = scan(text, len(label), len(header.devices) if header else None)
            row = Row(label, cells, text.rstrip(), number) if cells else None
            if row and (_is_under(row, header) if header else _stands_alone(row)):
                return row
    return None


def _is_under(row: Row, header: Header) -> bool:
    """Whether it is no prose: it begins with a cell, has its X in its column, or is as long as the header and of cells mostly."""
    if is_word(row.cells[0].word):
        return True
    own = header.devices.index(row.label)
    words = sum(is_word(cell.word) for cell in row.cells)
    return row.diagonal == own or (len(row.cells) == len(header.devices) and 2 * words >= len(row.cells))


def _stands_alone(row: Row) -> bool:
    return row.diagonal is not None and all(word[0].isdigit() or word == "N/A" for word in row.tail.split())


@dataclass
class Said:
    """What the rows say: (row, column) -> words, several where a row is there twice; and what was wrong with rows.

    ``unfit``: rows whose X is not in their own column; ``short``: rows with fewer cells than columns; ``unnamed``: columns without a name;
    ``misnamed``: most rows have their X elsewhere than the header says.
    """

    cells: dict[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    columns: tuple[str, ...] = ()
    unfit: list[str] = field(default_factory=list)
    short: list[str] = field(default_factory=list)
    unnamed: int = 0
    misnamed: bool = False


def read_cells(matrix: Matrix, ended: bool) -> Said:
    """Give the cells their devices. A row's own X must stand in its own column: that tells which rows and headers to trust.

    ``ended``: False where the text broke off right behind the matrix's last row; that row's last cell may be cut.
    """
    names = _names(matrix)
    width = len(matrix.header.devices) if matrix.header else max(len(row.cells) for row in matrix.rows)
    width = max(width, max(names, default=-1) + 1)
    said = Said(columns=tuple(names[position] for position in sorted(names)), unnamed=width - len(names))
    said.misnamed = matrix.header is not None and any(names.get(at) != name for at, name in enumerate(matrix.header.devices))
    at = {name: position for position, name in names.items()}
    columns = [names.get(position) for position in range(width)]
    alone: dict[str, frozenset[str]] = {}
    for row in matrix.rows:
        last = row is matrix.rows[-1]
        if not _fits(row, at, width):
            said.unfit.append(row.label)
            continue
        if len(row.cells) < width:
            said.short.append(row.label)
        for column, cell in zip(columns, row.cells[: _certain(row, width, last, ended)], strict=False):
            if column and cell.word and column != row.label:
                one = alone.setdefault(cell.word, frozenset([cell.word]))
                before = said.cells.setdefault((row.label, column), one)
                if before is not one:
                    said.cells[row.label, column] = before | one
    return said


def _names(matrix: Matrix) -> Mapping[int, str]:
    """Position -> device: as the header says, unless most rows have their X elsewhere; then as the X stand."""
    stand = {row.diagonal: row.label for row in matrix.rows if row.diagonal is not None}
    if matrix.header is None:
        return stand
    named = dict(enumerate(matrix.header.devices))
    whole = [row for row in matrix.rows if len(row.cells) >= len(named)]  # another one may have lost a cell before its X
    stand = {row.diagonal: row.label for row in whole if row.diagonal is not None}
    beyond = {position: label for position, label in stand.items() if position not in named and label not in matrix.header.known}
    wrong = sum(named.get(position) != label for position, label in stand.items() if position not in beyond)
    return named | beyond if wrong * 2 <= len(stand) else stand


def _fits(row: Row, at: Mapping[str, int], width: int) -> bool:
    """Whether its X stands in its column, or the row ends before, or is whole and has an unknown word there."""
    if row.label not in at:
        return False
    if row.diagonal is not None:
        return row.diagonal == at[row.label]
    if any(cell.word == SELF for cell in row.cells):
        return False
    return len(row.cells) <= at[row.label] or (len(row.cells) == width and not is_word(row.cells[at[row.label]].word))


def _certain(row: Row, width: int, last: bool, ended: bool) -> int:
    """How many of its cells are certain. A short row that is not the last has lost a cell, no one knows where behind its X."""
    if len(row.cells) >= width:
        whole = not last or ended or row.tail.strip()
        return width if whole else width - 1
    if last:
        return len(row.cells) - 1
    return 0 if row.diagonal is None else row.diagonal + 1
