"""``rocm-smi --showtopo`` and ``amd-smi topology`` as a topology.

Both print one matrix a property, each under its title: weights, hops, link types, access. Link types are XGMI or PCIE. PCIE does not say
which way: with 2 hops both GPUs are at one CPU and copies go through it (PHB), with 3 at two (SYS), as AMD's guide says
(https://instinct.docs.amd.com/projects/amdgpu-docs/en/latest/system-optimization/mi200.html). Without hops the NUMA nodes tell; without
these it is taken as SYS, the slowest, with a warning.
rocm-smi names rows GPU0, amd-smi by PCI bus; GPUs are numbered in that order.
"""

import re
from dataclasses import dataclass, field

from workbench.errors import ConfigError
from workbench.topology.devices import GPU
from workbench.topology.reading.matrix import ASKED, MOST_GPUS, Said
from workbench.topology.reading.page import Page
from workbench.topology.reading.settled import lost, numa_warnings, settle
from workbench.topology.topology import Topology, connect

TYPES = frozenset(("XGMI", "PCIE"))
MOST_SECTIONS = 500
SAME_CPU_HOPS = 2  # more are over two CPUs

_TITLES = {
    "types": re.compile(r"Link\s+Type\s+between|LINK TYPE TABLE"),
    "hops": re.compile(r"Hops\s+between|HOPS TABLE"),
    "access": re.compile(r"Link\s+accessible|(?<!\w)ACCESS TABLE"),
    "other": re.compile(r"={3,}|\b[A-Z-]+ TABLE:|Legend:"),
}
_SIGN = re.compile(r"between\s+two\s+GPUs|ROCm\s+System\s+Management|\(Topology\)\s+Numa|LINK TYPE TABLE|XGMI")
_WORD = re.compile(r"\d{1,9}(?:-\d{1,9})?\Z|XGMI|PCIE|N/A|SELF|X+\Z|True|False|ENABLED|DISABLED")
_LABEL = r"GPU(?:0|[1-9][0-9]{0,3})(?!\d)|[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.\d"
_DEVICE = re.compile(rf"(?:{_LABEL})\Z")
_FIRST = re.compile(rf"(?<![\w.])(?:{_LABEL})(?=\s|\Z)")
_NUMA = re.compile(r"GPU\s?\[?(\d{1,4})\]?\s*:\s*\(Topology\)\s+Numa\s+(Node|Affinity):\s*(-?\d{1,4})(?!\d)")


_NUMA_TITLE = "Numa Nodes"
_PEERS = {"True": True, "ENABLED": True, "False": False, "DISABLED": False}


@dataclass
class Section:
    """One matrix: its title, its columns (none where its header is missing), each row's words; ``line``: where the last row is."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    line: int = -1

    @property
    def is_types(self) -> bool:
        """Whether it says the types of links, by its title or, where that was cut off, by its words."""
        return bool(self.rows) and (self.title == "types" or (not self.title and any(TYPES & set(words) for _, words in self.rows)))

    @property
    def devices(self) -> tuple[str, ...]:
        """Of its columns; without a header, of its rows."""
        return self.columns or tuple(dict.fromkeys(label for label, _ in self.rows))


def is_rocm(page: Page) -> bool:
    """Whether AMD's tools wrote a part of it."""
    return bool(_SIGN.search(page.text))


def has_types(page: Page) -> bool:
    """Whether there is a matrix of link types between AMD's GPUs."""
    return is_rocm(page) and any(
        section.is_types and TYPES & {word for _, words in section.rows for word in words} for section in _sections(page)
    )


def read_rocm(page: Page, name: str) -> Topology:
    """The topology of the link types. Raises ConfigError where there are none, or two that differ."""
    sections = _sections(page)
    types = [section for section in sections if section.is_types]
    if not types:
        fix = "run rocm-smi --showtopo, or rocm-smi --showtopotype"
        raise ConfigError(ASKED, "that is of AMD's tools, but without the matrix of link types", fix)
    if len({(section.columns, tuple(section.rows)) for section in types}) > 1:
        fix = 'parse each by itself, then Topology.join({"node1": ..., "node2": ...}, gb_per_s=...)'
        raise ConfigError(ASKED, f"the text has {len(types)} matrices of link types that differ, of several machines perhaps", fix)
    return _topology(page, name, types[0], {section.title: section for section in reversed(sections) if section.rows})


def _sections(page: Page) -> list[Section]:
    found: list[Section] = []
    title = ""
    for number, line in enumerate(page.lines):
        named = next((name for name, pattern in _TITLES.items() if pattern.search(line)), None) if "=" in line or ":" in line else None
        first = None if named else _FIRST.search(line)
        if named:
            title = named
            found.append(Section(title, ()))
        elif first:
            _read_line(found, title, line[first.start() :].split(), number)
    return found


def _read_line(found: list[Section], title: str, words: list[str], number: int) -> None:
    """Take the words of a line that begins with a device: a header if all are devices, else a row."""
    if len(words) > MOST_GPUS + 1 or len(found) > MOST_SECTIONS:
        raise ConfigError(ASKED, f"the matrix has over {MOST_GPUS} GPUs, or the text many matrices", "give the matrices of one machine")
    if all(_DEVICE.match(word) for word in words):
        found.append(Section(title, tuple(words)))
        return
    if not _WORD.match(words[1]):
        return
    if not found:
        found.append(Section(title, ()))
    if len(found[-1].rows) < 2 * MOST_GPUS:
        found[-1].rows.append((words[0], tuple(words[1:])))
        found[-1].line = number


def _read(section: Section, page: Page) -> Said:
    """The cells by device. A short last row may end within a word; of another one only what stands before its own column is certain."""
    columns = section.devices
    said = Said(columns=columns)
    for position, (label, words) in enumerate(section.rows):
        own = columns.index(label) if label in columns else None
        if own is None or (own < len(words) and words[own] in TYPES):
            said.unfit.append(label)
            continue
        certain = len(words)
        if len(words) < len(columns):
            said.short.append(label)
            certain = len(words) - 1 if position == len(section.rows) - 1 else min(own, len(words))
        elif position == len(section.rows) - 1 and section.line == page.last and not page.ended:
            certain = len(columns) - 1
        for column, word in zip(columns[:certain], words, strict=False):
            if column != label:
                said.cells[label, column] = said.cells.get((label, column), frozenset()) | {word}
    return said


def _topology(page: Page, name: str, types: Section, sections: dict[str, Section]) -> Topology:
    said = _read(types, page)
    settled = settle(said.cells, TYPES.__contains__)
    labels = list(types.devices)
    if len(labels) > MOST_GPUS or len(set(labels)) < len(labels):
        raise ConfigError(ASKED, f"the matrix has {len(labels)} GPUs, or one of them twice", "give the matrix of one machine")
    numa = _numa(page)
    gpus = tuple(_gpu(position, label, numa) for position, label in enumerate(labels))
    missing = lost(said, settled, {label for label, _ in types.rows}, labels)
    unlisted = [gpu.index for gpu in gpus if gpu.index not in numa]
    if unlisted and (numa or _NUMA_TITLE in page.text):
        missing += (f"the list of NUMA nodes is cut off: {len(unlisted)} of {len(gpus)} GPUs are not in it",)
    ids = dict(zip(labels, gpus, strict=True))
    hops = settle(_read(sections["hops"], page).cells, str.isdecimal).words if "hops" in sections else {}
    peers = settle(_read(sections["access"], page).cells, _PEERS.__contains__).words if "access" in sections else {}
    classes = {
        pair: _class(word, hops.get(pair) or hops.get(pair[::-1]), ids[pair[0]], ids[pair[1]]) for pair, word in settled.words.items()
    }
    links = connect(
        gpus,
        {(ids[a].id, ids[b].id): word or "SYS" for (a, b), word in classes.items()},
        {(ids[a].id, ids[b].id): _PEERS[word] for (a, b), word in peers.items() if a in ids and b in ids},
    )
    guess = ("PCIe links are taken as SYS, the slowest: neither hops nor NUMA nodes tell their class",) if None in classes.values() else ()
    return Topology(name, gpus, links, complete=not missing, warnings=(*missing, *numa_warnings(gpus), *guess))


def _gpu(position: int, label: str, numa: dict[int, int | None]) -> GPU:
    if label.startswith("GPU"):
        return GPU(int(label[3:]), numa=numa.get(int(label[3:])))
    return GPU(position, numa=numa.get(position), pci_bus=label)


def _class(word: str, hops: str | None, a: GPU, b: GPU) -> str | None:
    """The class of a link; None for a PCIE of which nothing more is known."""
    if word == "XGMI":
        return word
    apart = a.numa is not None and b.numa is not None and a.numa != b.numa
    if hops is not None:
        return "SYS" if apart or int(hops[:4]) > SAME_CPU_HOPS else "PHB"
    if a.numa is None or b.numa is None:
        return None
    return "SYS" if apart else "PHB"


def _numa(page: Page) -> dict[int, int | None]:
    """GPU's number -> NUMA node, None for -1. A number at the very end of the text may be cut and counts for nothing."""
    found: dict[int, int | None] = {}
    for number, line in enumerate(page.lines):
        said = _NUMA.search(line) if "Numa" in line else None
        if said and (page.ended or number != page.last) and (said[2] == "Node" or int(said[1]) not in found):
            found[int(said[1])] = int(said[3]) if int(said[3]) >= 0 else None
    return found
