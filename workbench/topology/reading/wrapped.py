"""Lines that a narrow terminal, or an editor, wrapped: put together again before the matrix is read.

A terminal wraps at its width, perhaps within a word; an editor wraps between words. Which of both was at work is not said, so that "1"
at a line's end and "2" at the next one's begin may be 12 or two numbers: such a word is given up (LOST), and the warnings tell.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from workbench.topology.reading.cells import LOST, P2P, SELF, is_class, is_word, numbers
from workbench.topology.reading.matrix import Header, is_device, read_header, read_row
from workbench.topology.reading.page import Page

MOST_PARTS, LONGEST = 64, 1000
MOST_BROKEN = 8  # parts of a header in a row that end within a word
MOST_HEADS, MOST_ROWS = 400, 4096  # what is behind them stays as it is
TAB, BETWEEN_STOPS = 8, 4

_AFFINITIES = frozenset(("CPU", "NUMA", "Affinity", "GPU", "ID"))
_WORDS = (*P2P, "PIX", "PXB", "PHB", "NODE", "SYS", "SOC", "C2C", "N/A")
_BEGINS = frozenset(word[:at] for word in (*_WORDS, "NV") for at in range(1, len(word) + 1))
_ENDS = frozenset(word[at:] for word in _WORDS for at in range(1, len(word)))
_END_OF_NVLINK = re.compile(r"V\d{1,2}\Z")
_CELLS = re.compile(r"(?:X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|C2C|N/A|[\d,\-]+)+\Z")
_LABEL = re.compile(r"[^A-Za-z0-9_]{0,40}([A-Za-z][\w.\-]{0,40})\s+(\S+)")
_GPU = re.compile(r"(?<![A-Za-z0-9_])GPU(\d{1,4})(?!\d)")


@dataclass
class _Whole:
    """A line of a matrix as the tool wrote it. ``parts``: the lines that it was wrapped into; ``number``: the first one's."""

    number: int
    parts: list[str]


@dataclass
class _Block:
    """A header, put together to ``text``, and the rows under it."""

    head: _Whole
    text: str
    rows: list[_Whole] = field(default_factory=list)

    @cached_property
    def header(self) -> Header:
        """Its columns; none where it is no header after all."""
        return read_header(self.text) or Header((), frozenset())


@dataclass(frozen=True)
class _Ruler:
    """How a block was wrapped. ``length``, ``width``: of its longest line, as it stands and with tabs as blanks; ``hard``: within words."""

    length: int
    width: int
    hard: bool = False

    def is_full(self, part: str) -> bool:
        """Whether no line is longer: only then may the next one go on without a blank."""
        return len(part) >= self.length or len(part.expandtabs(TAB)) >= self.width


def rejoin(page: Page) -> Page:
    """The page with the lines of its matrices whole; the same page where none is wrapped."""
    if "GPU" not in page.text:
        return page
    whole: dict[int, str | None] = {}
    for block in _blocks(page.lines):
        _join(block, whole)
    if not whole:
        return page
    lines = (whole.get(number, line) for number, line in enumerate(page.lines))
    return Page("\n".join(line for line in lines if line is not None), page.ended)


def _blocks(lines: tuple[str, ...]) -> list[_Block]:
    found: list[_Block] = []
    row: _Whole | None = None
    skip = heads = 0
    for number, line in enumerate(lines):
        if number < skip:
            continue
        if heads > MOST_HEADS or (found and len(found[-1].rows) > MOST_ROWS):
            break
        if not line or line.isspace() or len(line) > LONGEST:
            row = None
        elif _is_head(line, broken=True):
            block, row, heads = _open(lines, number), None, heads + 1
            found += [block] if block else []
            skip = number + (len(block.head.parts) if block else 1)
        elif found and _begins_row(line, found[-1]):
            row = _Whole(number, [line])
            found[-1].rows.append(row)
        elif row and len(row.parts) < MOST_PARTS and _goes_on(line.split()):
            row.parts.append(line)
        else:
            row = None
    return found


def _open(lines: tuple[str, ...], number: int) -> _Block | None:
    """The block whose header begins in this line, with as many of the next lines as make it longer and fit in order."""
    pieces, best = [lines[number]], 1 if _is_head(lines[number], broken=False) else 0
    for part in lines[number + 1 : number + MOST_PARTS]:
        if not part or part.isspace() or len(part) > LONGEST or _is_row(part) or not _is_next(pieces, part):
            break
        between = _between_heads(lines[number : number + len(pieces)], part)
        piece = pieces[-1].split()[-1] + (" " if pieces[-1][-1].isspace() else between) + part
        if not _is_line(piece, broken=True) or len(pieces) - best >= MOST_BROKEN:
            break
        pieces.append(between + part)
        best = len(pieces) if _is_line(piece, broken=False) else best
    if best > 1 and not read_header("".join(pieces[:best])):
        best = 1
    return _Block(_Whole(number, list(lines[number : number + best])), "".join(pieces[:best])) if best else None


def _is_next(pieces: list[str], part: str) -> bool:
    """Whether its GPUs, if there are any, come after those before it."""
    gpu = _GPU.search(part) if "GPU" in part else None
    return not gpu or int(gpu[1]) > max((int(index) for piece in pieces[-2:] for index in _GPU.findall(piece)), default=-1)


def _is_head(line: str, broken: bool) -> bool:
    """Whether a header begins in it, behind whatever else."""
    first = _GPU.search(line) if "GPU" in line else None
    return first is not None and _is_line(line[first.start() :], broken)


def _is_line(text: str, broken: bool) -> bool:
    """Whether all its words are of a header; ``broken``: the last one may be the begin of one."""
    words = text.split()
    checked = words[:-1] if broken and not _is_cell(words[-1]) else words
    return all(map(_is_name, checked))


def _is_name(word: str) -> bool:
    """Whether it is a word of a header; "mlx5_" is not yet one."""
    return word in _AFFINITIES or (is_device(word) and word[-1] not in "_.-")


def _between_heads(parts: tuple[str, ...], part: str) -> str:
    """What was lost between the header so far and its next part: a blank, or nothing."""
    if parts[-1][-1].isspace() or part[0].isspace() or not _ruler(parts).is_full(parts[-1]):
        return "" if parts[-1][-1].isspace() or part[0].isspace() else " "
    return " " if _is_name(parts[-1].split()[-1]) and _is_name(part.split()[0]) else ""


def _is_row(line: str) -> bool:
    found = _LABEL.match(line)
    return bool(found and is_device(found[1]) and _is_cell(found[2]))


def _begins_row(line: str, block: _Block) -> bool:
    found = _LABEL.match(line)
    return bool(found and found[1] in block.header.known)


def _is_cell(word: str) -> bool:
    return is_class(word) or word == SELF or word in P2P or word == "N/A"


def _goes_on(words: list[str]) -> bool:
    """Whether they are cells, CPUs and NUMA nodes; the first may be the end of one, the last the begin."""
    first, last = words[0] in _ENDS or _END_OF_NVLINK.match(words[0]), words[-1] in _BEGINS
    middle = words[bool(first) : len(words) - (last and len(words) > 1)]
    return all(_CELLS.match(word) or is_word(word) for word in middle)


def _ruler(parts: Iterable[str]) -> _Ruler:
    parts = list(parts)
    return _Ruler(max(map(len, parts)), max(len(part.expandtabs(TAB)) for part in parts))


def _join(block: _Block, whole: dict[int, str | None]) -> None:
    """Put into ``whole`` what stands in the place of a block's wrapped lines: number -> the line, None for one that went into another."""
    if len(block.head.parts) == 1 and all(len(row.parts) == 1 for row in block.rows):
        return
    _put(whole, block.head, block.text, len(block.head.parts))
    all_ = [block.head, *block.rows]
    ruler = _ruler(part for line in all_ for part in line.parts)
    hard = any(_within_word(a, b, ruler) for line in all_ for a, b in pairwise(line.parts))
    ruler = _Ruler(ruler.length, ruler.width, hard)
    for row in block.rows:
        text, count = _joined_row(row.parts, block, ruler)
        _put(whole, row, text, count)


def _put(whole: dict[int, str | None], line: _Whole, text: str, count: int) -> None:
    if count > 1:
        whole |= dict.fromkeys(range(line.number, line.number + count))
        whole[line.number] = text


def _within_word(part: str, after: str, ruler: _Ruler) -> bool:
    """Whether the line surely ended within a word: only both pieces together are one."""
    if part[-1].isspace() or after[0].isspace() or not ruler.is_full(part):
        return False
    last, first = part.split()[-1], after.split()[0]
    return not (_is_complete(last) and _is_complete(first)) and _is_complete(last + first)


def _is_complete(word: str) -> bool:
    return _is_cell(word) or _is_name(word) or numbers(word) is not None


def _joined_row(parts: list[str], block: _Block, ruler: _Ruler) -> tuple[str, int]:
    """The row, and of how many of ``parts`` it is made: no more than its header has room for."""
    text = parts[0]
    for count, part in enumerate(parts[1:], 1):
        left = _cells_left(text, block.header)
        if left <= 0 and any(map(_is_cell, part.replace("N/A", "").split())):
            return text, count
        sure = left > 0 or count > 1 or len(block.head.parts) > 1 or text[-1] in ",-" or part[0] in ",-"
        whole = _row_with(text, parts[count - 1], part, left, ruler) if sure else None
        if whole is None:
            return re.sub(r"(?:NV\d+|(?<![A-Za-z])[\d,\-]+)\Z", "", text) + " " + LOST, len(parts)
        text = whole
    return text, len(parts)


def _cells_left(text: str, header: Header) -> int:
    """How many cells a row lacks; a last one that is but the begin of a word counts as lacking."""
    row = read_row(text, 0, header)
    if row is None:
        return len(header.devices)
    broken = not row.tail and not _is_complete(row.cells[-1].word)
    return len(header.devices) - len(row.cells) + broken


def _row_with(text: str, last_part: str, part: str, left: int, ruler: _Ruler) -> str | None:
    """``text`` with the next part behind it; None where no one knows whether a blank is between two numbers."""
    if "\t" not in text:
        part = part.expandtabs(TAB)  # where a blank was put in no tab may tell a column any more
    if text[-1].isspace() or (part[0].isspace() and ruler.is_full(last_part)):
        return text + part
    last, first = text.split()[-1], part.split()[0]
    if not ruler.is_full(last_part):
        return _apart(text, part)
    if ruler.hard or last[-1] in ",-" or first[0] in ",-":
        return text + part
    if last[-1].isdigit() and first[0].isdigit():
        return text + part if last.startswith("NV") and left > 0 else None
    return _apart(text, part) if _is_complete(last) and _is_complete(first) else text + part


def _apart(text: str, part: str) -> str:
    """Both with blanks between, which are not as many as the tool wrote: no word may seem to stand at a tab stop."""
    text = text.expandtabs(TAB)
    label = _LABEL.match(text)
    at = len(text) - (label.start(1) if label else 0)
    return text + " " * ((BETWEEN_STOPS - at) % TAB or TAB) + part.expandtabs(TAB).lstrip()
