"""``nvidia-smi topo -m`` as a topology; what the text does not say, or says twice in two ways, is left out and told in warnings."""

import re
from collections.abc import Iterable

from workbench.errors import ConfigError
from workbench.topology.devices import GPU, NIC
from workbench.topology.links import Link
from workbench.topology.memory import memory_of
from workbench.topology.reading.affinity import Affinity, is_cut, read_affinities
from workbench.topology.reading.beside import Beside, read_beside
from workbench.topology.reading.cells import is_class, is_word
from workbench.topology.reading.matrix import ASKED, Matrix, Said, find_matrices, is_gpu, read_cells
from workbench.topology.reading.page import Page
from workbench.topology.reading.settled import Settled, lost, numa_warnings, settle, unread_warnings
from workbench.topology.topology import Topology, connect


def read_nvidia(page: Page, name: str) -> Topology | None:
    """The topology of the page's one `topo -m` matrix; None where there is none. Raises ConfigError where there are two."""
    matrices = [matrix for matrix in find_matrices(page) if not matrix.is_other]
    links = [matrix for matrix in matrices if matrix.is_links] or [matrix for matrix in matrices if _is_bare(matrix)]
    if not links:
        return None
    beside = read_beside(page, [matrix for matrix in matrices if matrix.is_p2p])
    found = [_topology(matrix, page, name, beside) for matrix in links[:8]]
    if not all(_covers(found[0], again) for again in found[1:]):
        fix = 'parse each by itself, then Topology.join({"node1": ..., "node2": ...}, gb_per_s=...)'
        raise ConfigError(ASKED, f"the text has {len(links)} matrices that differ, of several machines perhaps", fix)
    return found[0]


def has_links(page: Page) -> bool:
    """Whether there is a matrix of links as NVIDIA's tool writes it."""
    return any(matrix.is_links for matrix in find_matrices(page))


def _is_orphan(line: str) -> bool:
    """Whether it has cells only, and no row's name: a part of a row that was not put together again."""
    words = line[:4096].split()
    return bool(words) and is_word(words[0]) and all(map(is_word, words)) and any(map(is_class, words))


def _is_bare(matrix: Matrix) -> bool:
    """A matrix with nothing but X: of a single GPU, or cut right behind its first cell."""
    header = matrix.header
    return not matrix.is_p2p and (header is None or bool(header.affinities) or len(header.devices) == 1)


def _covers(whole: Topology, again: Topology) -> bool:
    """Whether ``again`` says nothing that ``whole`` does not say: the same matrix pasted twice."""
    same = whole.ids == again.ids and whole.nics == again.nics and set(again.links) <= set(whole.links)
    return same and all(node is None or node == whole.numa[device] for device, node in again.numa.items())


def _topology(matrix: Matrix, page: Page, name: str, beside: Beside) -> Topology:
    at_end = matrix.rows[-1].line == page.last
    said = read_cells(matrix, page.ended or not at_end)
    labels = _gpu_labels(said.columns)
    read, cut = _affinities(matrix, said, page, at_end)
    gpus = tuple(_gpu(int(label[3:]), read.get(label, Affinity()), beside) for label in labels)
    nics = tuple(NIC(label, device=beside.devices.get(label, _own_name(label))) for label in said.columns if not is_gpu(label))
    settled = settle(said.cells, is_class)
    missing = lost(said, settled, {row.label for row in matrix.rows}, labels)
    if cut:
        missing += (f"{matrix.rows[-1].label}: its row is cut off behind the links",)
    missing += unread_warnings({label: affinity.unread for label, affinity in read.items() if affinity.unread})
    if any(map(_is_orphan, page.lines)):
        missing += ("there are lines of cells that belong to no row",)
    no_header = () if matrix.header else ("there is no header: columns are named by the X of the rows",)
    mig = ("some GPUs are cut into MIG slices, which the matrix does not list",) if beside.mig else ()
    links, nic_links = _links(gpus, nics, settled, beside)
    return Topology(name, gpus, links, nics, nic_links, not missing, (*missing, *no_header, *numa_warnings(gpus), *mig))


def _gpu_labels(columns: Iterable[str]) -> list[str]:
    return sorted(filter(is_gpu, columns), key=lambda label: int(label[3:]))


def _affinities(matrix: Matrix, said: Said, page: Page, at_end: bool) -> tuple[dict[str, Affinity], bool]:
    """GPU -> what its row says behind the cells, of rows that reach so far; and whether the last row's is cut off."""
    first = {row.label: row for row in reversed(matrix.rows)}
    rows = tuple(row for row in matrix.rows if is_gpu(row.label) and first[row.label] is row and len(row.cells) >= len(said.columns))
    columns = matrix.header.affinities if matrix.header else None
    if columns and "NUMA ID" in page.text:
        columns |= {"gpu numa"}  # also where the header is broken into two lines
    last = at_end and bool(rows) and rows[-1] is matrix.rows[-1]
    read = read_affinities(rows, columns, sum(map(is_gpu, said.columns)), last, page.ended)
    cut = last and is_cut(read, columns, page.ended)
    return {row.label: Affinity() if cut and row is rows[-1] else found for row, found in zip(rows, read, strict=True)}, cut


def _gpu(index: int, affinity: Affinity, beside: Beside) -> GPU:
    name = beside.names.get(index)
    memory_gib = beside.memories.get(index, memory_of(name))
    return GPU(index, name=name, memory_gib=memory_gib, numa=affinity.numa, cpus=affinity.cpus, uuid=beside.uuids.get(index))


def _own_name(label: str) -> str | None:
    """Older drivers name the column after the device: "mlx5_0"."""
    return None if re.fullmatch(r"NIC\d+", label) else label


def _links(gpus: tuple[GPU, ...], nics: tuple[NIC, ...], settled: Settled, beside: Beside) -> tuple[tuple[Link, ...], tuple[Link, ...]]:
    """Between GPUs, with estimates; and those with a network card at an end."""
    ids = {f"GPU{gpu.index}": gpu.id for gpu in gpus} | {nic.name: nic.id for nic in nics}
    order = {label: position for position, label in enumerate(ids)}
    words = {tuple(sorted(pair, key=order.__getitem__)): word for pair, word in settled.words.items()}
    ordered = sorted(words, key=lambda pair: (order[pair[0]], order[pair[1]]))
    between = {(ids[a], ids[b]): words[a, b] for a, b in ordered if is_gpu(b)}
    peers = {(ids[a], ids[b]): allowed for (a, b), allowed in beside.peers.items() if a in ids and b in ids}
    return connect(gpus, between, peers), tuple(Link(ids[a], ids[b], words[a, b]) for a, b in ordered if not is_gpu(b))
