"""The words of the matrices that ``nvidia-smi topo`` prints, and how to read them where tabs between them were lost."""

import re
from typing import NamedTuple

SELF = "X"
P2P = {"OK": True, "CNS": False, "GNS": False, "TNS": False, "NS": False, "DR": False, "U": None}  # the legend of `topo -p2p`
LOST = "\ufffd"  # stands for words that can't be told apart
MOST_CELLS = 4096
MOST_LANES, MOST_LANES_GLUED = 36, 18  # a GPU has at most 18 NVLinks today; what stands apart may have more tomorrow

_CLASSES = r"NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|C2C"
_CLASS = re.compile(rf"(?:{_CLASSES})\Z")
_CELL = re.compile(rf"\s*(X(?=\Z|[^A-Za-z]|X|{_CLASSES})|{_CLASSES}|N/A|(?:{'|'.join(P2P)})(?![A-Za-z])|[^\s\d]\S*)")
_NUMBERS = re.compile(r"\d{1,6}(?:-\d{1,6})?(?:,\d{1,6}(?:-\d{1,6})?)*\Z")


class Cell(NamedTuple):
    """One word of a row and where it stands, counted from the row's label. ``word`` is "" where it can't be told."""

    word: str
    start: int
    end: int


def is_class(word: str) -> bool:
    """Whether ``word`` names what lies between two devices: "NV12", "PIX"."""
    if not _CLASS.match(word):
        return False
    return not word.startswith("NV") or (len(word) <= 6 and 1 <= int(word[2:]) <= MOST_LANES)


def is_word(word: str) -> bool:
    """Whether ``word`` is one of a matrix between devices, and not prose or a number."""
    return word == SELF or bool(_CLASS.match(word)) or word in P2P or word == "N/A" or word.startswith("ERR")


def numbers(text: str) -> tuple[int, ...] | None:
    """The numbers of a list such as "0-3,8": (0, 1, 2, 3, 8); None where it is no such list, or longer than 4096."""
    if len(text) > 4096 or not _NUMBERS.match(text):
        return None
    found: list[int] = []
    for part in text.split(","):
        first, last = int(part.split("-")[0]), int(part.split("-")[-1])
        if last < first or last - first > 4096 - len(found):
            return None
        found += range(first, last + 1)
    return tuple(found)


def scan(text: str, start: int, expected: int | None) -> tuple[Cell, ...]:
    """The cells of a row of ``text`` between devices, from ``start`` on; a number ends them.

    ``expected``: how many columns the header has; among them any word is a cell. Without a header, and beyond it, only the
    words that nothing but this matrix has.
    """
    cells: list[Cell] = []
    position = start
    while len(cells) < MOST_CELLS and (found := _CELL.match(text, position)):
        word = found[1]
        inside = expected is not None and len(cells) < expected
        if not (inside or is_class(word) or word == SELF):
            break
        if word.startswith("NV") and word[2:].isdecimal():
            glued = expected is None or len(cells) >= expected - 1
            cells.append(_nvlink(text, found.span(1), glued, cells))
        else:
            cells.append(Cell("" if LOST in word else word, found.start(1), found.end(1)))
        position = cells[-1].end
    return tuple(cells)


def _nvlink(text: str, span: tuple[int, int], glued: bool, before: list[Cell]) -> Cell:
    """An NV cell. Where the CPUs stand right behind it ("NV448-63") the number is told apart by what makes a list of CPUs.

    Where two numbers would do, the one that a cell ``before`` has.
    """
    start, end = span
    word = text[start:end]
    if not glued or (is_class(word) and text[end : end + 1] not in ("-", ",")):
        return Cell(word, start, end)
    rest = text[start + 2 : start + 4200].split(maxsplit=1)[0]
    if rest.isdecimal():
        return Cell(word, start, end)  # one number: no one knows whether a CPU is in it
    fits = [used for used in (1, 2) if _is_lanes(rest[:used]) and numbers(rest[used:])]
    if len(fits) > 1:
        fits = [used for used in fits if any(cell.word == f"NV{rest[:used]}" for cell in before)]
    if len(fits) != 1:
        return Cell("", start, start + 2 + len(rest))
    return Cell(text[start : start + 2 + fits[0]], start, start + 2 + fits[0])


def _is_lanes(digits: str) -> bool:
    return digits.isdecimal() and 1 <= int(digits) <= MOST_LANES_GLUED
