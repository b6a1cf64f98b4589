"""A topology as text for people: devices, the matrix of links, islands and cliques in words, network cards, what is missing."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations, groupby, islice

from workbench.topology.devices import GPU, NIC
from workbench.topology.links import LinkKind
from workbench.topology.topology import Topology

WIDTH = 110  # characters
MOST_IN_MATRIX = 16
MOST_LINES = 16  # of one part
MOST_IN_LIST = 8  # names in a row


def table(topology: Topology) -> str:
    """All of it, at most 110 characters wide; the matrix of links where there are at most 16 devices."""
    parts = [[_title(topology)], _devices(topology)]
    if topology.links and len(topology.gpus) <= MOST_IN_MATRIX:
        parts.append(_matrix(topology))
    warnings = [f"warning: {_clip(warning, 400)}" for warning in topology.warnings]
    parts += [_wrapped(_islands(topology)), _network_cards(topology), _wrapped(warnings)]
    return "\n\n".join("\n".join(part) for part in parts if part)


def positions(topology: Topology, devices: Sequence[str]) -> str:
    """Devices as short as a map writes them: "0-3,6", "node1:0-7,node2:0-1", "cpu:0-3"."""
    rank = {id: at for at, id in enumerate(topology.ids)}
    order = sorted((topology.gpu(id) for id in devices), key=lambda gpu: rank[gpu.id])
    lone = len(topology.nodes) == 1
    groups = [(prefix, list(gpus)) for prefix, gpus in groupby(order, key=lambda gpu: gpu.id.rpartition(":")[0])]
    spelled = [(prefix, [gpu.index for gpu in gpus], gpus[0].kind) for prefix, gpus in groups]
    return ",".join(_ranges(numbers, "" if lone and kind == "gpu" else f"{prefix}:") for prefix, numbers, kind in spelled)


def _ranges(numbers: list[int], prefix: str) -> str:
    runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
    texts = [f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs]
    return ",".join(f"{prefix}{text}" for text in texts)


def _title(topology: Topology) -> str:
    count, nodes = len(topology.gpus), len(topology.nodes)
    what = f"{count} {'CPU slot' if topology.is_cpu and count else 'GPU'}{'' if count == 1 else 's'}"
    where = f" on {nodes} nodes" if nodes > 1 else ""
    stand = ", each stands for a GPU" if topology.is_cpu and count else ""
    return f"{_clip(topology.name, 60)}: {what}{where}{stand}{'' if topology.complete else ' (incomplete)'}"


def _devices(topology: Topology) -> list[str]:
    """One line a device; columns of which nothing is known are left out."""
    rows = [("device", "name", "memory", "NUMA", "CPUs"), *map(_row, topology.gpus)]
    columns = [column for number, column in enumerate(zip(*rows, strict=True)) if number == 0 or any(column[1:])]
    return _align(zip(*columns, strict=True))


def _row(gpu: GPU) -> tuple[str, ...]:
    memory = "" if gpu.memory_gib is None else f"{gpu.memory_gib:.1f} GiB"
    name = f"{gpu.name or ''}{' (MIG)' if gpu.mig else ''}"
    return (_clip(gpu.id, 24), _clip(name, 32), memory, _clip(",".join(map(str, gpu.numas)), 14), _clip(gpu.cpus or "", 24))


def _matrix(topology: Topology) -> list[str]:
    """The class of the link between any two, columns in the rows' order; "?" where nobody said."""
    links = [[topology.link(a, b) for b in topology.ids] for a in topology.ids]
    cells = [[("." if a == b else link.name if link else "?") for b, link in enumerate(row)] for a, row in enumerate(links)]
    heads = [str(gpu.index) for gpu in topology.gpus]
    width = max(map(len, [*heads, *(cell for row in cells for cell in row)])) + (2 if len(heads) <= 8 else 1)
    labels = [_clip(id, 24) for id in topology.ids]
    left = max(map(len, labels))
    lines = [_line(label, row, left, width) for label, row in zip(["", *labels], [heads, *cells], strict=True)]
    return lines if len(topology.nodes) == 1 else [_node_heads(topology, left, width), *lines]


def _line(label: str, cells: list[str], left: int, width: int) -> str:
    return label.ljust(left) + "".join(cell.rjust(width) for cell in cells)


def _node_heads(topology: Topology, left: int, width: int) -> str:
    """Each node's name over its columns."""
    runs = [(node, len(list(gpus))) for node, gpus in groupby(topology.gpus, key=lambda gpu: gpu.node)]
    return (" " * left + "".join(f" {_clip(node, count * width - 1)}".ljust(count * width) for node, count in runs)).rstrip()


def _islands(topology: Topology) -> list[str]:
    """Islands and cliques, peer-to-peer access, the network between nodes: in words."""
    found = [island for island in topology.islands if len(island) > 1]
    unknown = _unlinked(topology)
    lines = [_island(topology, island) for island in found[:MOST_LINES]] + _more(len(found) - MOST_LINES, "islands")
    alone = [island[0] for island in topology.islands if len(island) == 1]
    if unknown:
        lines.append(f"not known whether linked with one another: {positions(topology, sorted(unknown, key=topology.ids.index))}")
        alone = [one for one in alone if one not in unknown]
    if found and alone:
        lines.append(f"on their own: {positions(topology, alone)}")
    elif len(alone) > 1 and topology.links:
        lines.append(f"no NVLink and no XGMI{' between the others' if unknown else ': each GPU is an island of its own'}")
    return lines + _denied(topology) + _network(topology)


def _unlinked(topology: Topology) -> set[str]:
    """Devices of which some link is not known. MIG slices have none, and that is known."""
    ids = {gpu.id for gpu in topology.gpus if not gpu.mig} if topology.links else set()
    known = Counter(end for link in topology.links if link.a in ids and link.b in ids for end in (link.a, link.b))
    return {id for id in ids if known[id] < len(ids) - 1}


def _island(topology: Topology, island: tuple[str, ...]) -> str:
    what = f"{'one island' if len(island) == len(topology.gpus) else 'island'} of {len(island)}"
    cliques = [clique for clique in topology.cliques if set(clique) <= set(island)]
    if island in cliques:
        return f"{what}, all to all: {positions(topology, island)}"
    if any(topology.link(a, b) is None for a, b in combinations(island, 2)):
        return f"{what}: {positions(topology, island)}"
    largest = [positions(topology, clique) for clique in cliques if len(clique) == max(map(len, cliques))]
    where = "" if what.startswith("one") else f" ({positions(topology, island)})"
    return f"{what}{where}, not all to all: {'the largest cliques are' if len(largest) > 1 else 'the largest clique is'} {_and(largest)}"


def _denied(topology: Topology) -> list[str]:
    denied = [link for link in topology.links if link.p2p is False]
    if not denied:
        return []
    pairs = (positions(topology, (link.a, link.b)) for link in denied)
    among = "any two GPUs" if len(denied) == len(topology.links) else _and(list(islice(pairs, MOST_IN_LIST)), len(denied))
    return [f"no peer-to-peer access between {among}: copies go through the CPU's memory"]


def _network(topology: Topology) -> list[str]:
    speeds = dict.fromkeys((link.gb_per_s, link.source) for link in topology.links if link.kind is LinkKind.NETWORK)
    return [f"between nodes, {'speed not known' if speed is None else f'{speed:g} GB/s a GPU'}: {source}" for speed, source in speeds]


def _network_cards(topology: Topology) -> list[str]:
    """Which cards are nearest to which GPUs."""
    cards = {nic.id: nic for nic in topology.nics}
    links: dict[str, list[tuple[LinkKind, NIC]]] = {}
    for link in topology.nic_links:
        for gpu_id, card in ((link.a, link.b), (link.b, link.a)):
            if card in cards and gpu_id not in cards:
                links.setdefault(gpu_id, []).append((link.kind, cards[card]))
    nearest = {gpu.id: _nearest(links.get(gpu.id, [])) for gpu in topology.gpus}
    alike: dict[str, list[str]] = {}
    for id, found in nearest.items():
        if found:
            alike.setdefault(found, []).append(id)
    lines = [f"{positions(topology, ids)}: {found}" for found, ids in alike.items()]
    shown = [f"  {_clip(line, WIDTH - 2)}" for line in lines[:MOST_LINES]] + _more(len(lines) - MOST_LINES, "groups")
    return ["nearest network cards", *shown] if shown else []


def _nearest(links: Sequence[tuple[LinkKind, NIC]]) -> str:
    if not links:
        return ""
    kind = min((kind for kind, _ in links), key=list(LinkKind).index)
    cards = dict.fromkeys(nic for way, nic in links if way is kind)
    names = [f"{nic.name} = {nic.device}" if nic.device not in (None, nic.name) else nic.name for nic in cards]
    return f"{_and(names)} ({kind})"


def _and(texts: list[str], count: int | None = None) -> str:
    """ "a, b and c"; of many, the first eight and how many more. ``count``: of all, where these are the first."""
    shown, left = texts[:MOST_IN_LIST], (len(texts) if count is None else count) - MOST_IN_LIST
    if left > 0:
        return f"{', '.join(shown)} and {left} more"
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))


def _more(count: int, what: str) -> list[str]:
    return [f"... and {count} more {what}"] if count > 0 else []


def _wrapped(texts: list[str]) -> list[str]:
    return [line for text in texts for line in textwrap.wrap(text, WIDTH, subsequent_indent="  ")]


def _align(rows: Iterable[Sequence[str]]) -> list[str]:
    """Cells in columns."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]


def _clip(text: str, width: int) -> str:
    """One printable line of at most ``width`` characters."""
    flat = "".join(character if character.isprintable() else " " for character in text)
    return flat if len(flat) <= width else f"{flat[: width - 1]}…"
