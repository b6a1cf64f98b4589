"""What a text says of GPUs beside the matrix: ``nvidia-smi``, ``nvidia-smi -L``, ``--query-gpu=... --format=csv``, legends, peers."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from workbench.topology.reading.cells import P2P
from workbench.topology.reading.matrix import Matrix, read_cells
from workbench.topology.reading.page import Page
from workbench.topology.reading.settled import settle
from workbench.topology.topology import Pair

LONGEST = 4096  # characters of a line
MIB_IN_GIB = 1024
MOST_MIB = 4 * 1024 * 1024

_NAMED = re.compile(r"\bGPU\s+(\d{1,4}(?:,\s?\d{1,4}){0,256}):\s+(.{2,80}?)\s*(?:\(UUID:\s*(GPU-[0-9a-fA-F-]{1,64})\))?\s*$")
_MAKERS = re.compile(r"NVIDIA|Tesla|GeForce|Quadro|TITAN|GRID|RTX", re.I)
_LEGEND = re.compile(r"(?<![A-Za-z0-9_])(NIC\d{1,4}):\s+([A-Za-z]\w{1,40})\s*$")
_MIG = re.compile(r"\bMIG\s.{1,40}Device\s+\d+:\s+\(UUID:")
# The table of plain nvidia-smi: "0  Tesla V100-SXM2...  On", a bar, the bus; then "1MiB / 16160MiB" on the next line.
_ROW = re.compile(r"\s*(\d{1,4})\s+(\S.{2,60}?)(?:\.\.\.)?\s+(?:On|Off|N/A|TCC|WDDM|MCDM)?\s*\t\s*[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:")
_USED = re.compile(r"\d{1,8}MiB\s{1,8}/\s{1,8}(\d{1,8})MiB")
_MEMORY = re.compile(r"(\d{1,8})(?: ?MiB)?\Z")
_PLAIN = ("index", "name", "memory.total")

T = TypeVar("T")


@dataclass(frozen=True)
class Beside:
    """What the text says beside the matrix. ``names``, ``uuids``, ``memories``: GPU's number -> name, UUID, GiB; ``devices``: NIC -> its
    legend; ``peers``: (GPU, GPU) -> whether one may read the other's memory; ``mig``: whether GPUs are cut into slices.
    """

    names: dict[int, str]
    uuids: dict[int, str]
    memories: dict[int, float]
    devices: dict[str, str]
    peers: dict[Pair, bool]
    mig: bool


@dataclass
class _Found:
    """All that was said of each GPU, by its number; ``tables``: names of the table of plain nvidia-smi, which cuts long ones."""

    names: dict[int, set[str]] = field(default_factory=dict)
    tables: dict[int, set[str]] = field(default_factory=dict)
    uuids: dict[int, set[str]] = field(default_factory=dict)
    mib: dict[int, set[int]] = field(default_factory=dict)


def read_beside(page: Page, p2p: list[Matrix]) -> Beside:
    """All of it. What is said twice in two ways is left out. ``p2p``: the matrices of peers."""
    lines = [line for line in page.lines if len(line) < LONGEST]
    found = _Found()
    _read_list(lines, found)
    _read_table(lines, found)
    _read_csv([line for line in lines if line.strip()], page.ended, found)
    devices = {legend[1]: legend[2] for line in lines if "NIC" in line and (legend := _LEGEND.search(line))}
    mig = any("MIG" in line and _MIG.search(line) for line in lines)
    memories = {index: round(mib / MIB_IN_GIB, 2) for index, mib in _agreed(found.mib).items()}
    names = _agreed(found.tables) | _agreed(found.names)
    return Beside(names, _agreed(found.uuids), memories, devices, _peers(p2p, page), mig)


def _read_list(lines: list[str], found: _Found) -> None:
    """ "GPU 0: NVIDIA H200 (UUID: GPU-...)" of nvidia-smi -L."""
    for line in lines:
        if "GPU" in line and ":" in line and (said := _NAMED.search(line)) and (said[3] or _MAKERS.search(said[2])):
            for index in map(int, said[1].split(",")):
                found.names.setdefault(index, set()).add(said[2])
                found.uuids.setdefault(index, set()).update([said[3]] if said[3] else [])


def _read_table(lines: list[str], found: _Found) -> None:
    """The table of plain nvidia-smi: each GPU takes two lines, the memory is in the second one."""
    index = None
    for line in lines:
        if index is not None and (used := _USED.search(line)):
            _add_memory(found, index, int(used[1]))
        said = _ROW.match(line) if "\t" in line and ":" in line else None
        index = int(said[1]) if said else None
        if said and index is not None:
            found.tables.setdefault(index, set()).add(said[2])


def _read_csv(lines: list[str], ended: bool, found: _Found) -> None:
    """Lines of --query-gpu, in the order of the header above them; without a header index, name, memory with its unit."""
    columns: tuple[str, ...] = ()
    for number, line in enumerate(lines):
        cells = [cell.strip() for cell in line.split(",", 64)] if "," in line else []
        named = tuple(cell.split(" [")[0] for cell in cells)
        if "index" in named and "memory.total" in named:
            columns = named
            continue
        whole = ended or number < len(lines) - 1
        is_row = len(cells) == len(columns) if columns else len(cells) == len(_PLAIN) and cells[-1].endswith("MiB")
        columns = columns if is_row else ()
        if is_row and (whole or cells[-1].endswith("MiB")):
            _read_query(dict(zip(columns or _PLAIN, cells, strict=True)), found)


def _read_query(said: dict[str, str], found: _Found) -> None:
    memory, index, name = _MEMORY.match(said["memory.total"]), said["index"], said.get("name", "")
    if not memory or not re.fullmatch(r"[0-9]{1,4}", index) or (name and not _MAKERS.search(name)):
        return
    _add_memory(found, int(index), int(memory[1]))
    if name:
        found.names.setdefault(int(index), set()).add(name[:80])


def _add_memory(found: _Found, index: int, mib: int) -> None:
    if 0 < mib < MOST_MIB:
        found.mib.setdefault(index, set()).add(mib)


def _agreed(said: dict[int, set[T]]) -> dict[int, T]:
    return {index: next(iter(words)) for index, words in said.items() if len(words) == 1}


def _peers(matrices: Iterable[Matrix], page: Page) -> dict[Pair, bool]:
    """(GPU, GPU) -> whether peers may read and write. Where both directions or several matrices differ: nothing, or no if one says no."""
    allowed: dict[Pair, bool] = {}
    for matrix in matrices:
        ended = page.ended or matrix.rows[-1].line != page.last
        settled = settle(read_cells(matrix, ended).cells, lambda word: P2P.get(word) is not None)
        for pair, word in settled.words.items():
            allowed[pair] = allowed.get(pair, True) and bool(P2P[word])
    return allowed
