"""The hardware of one machine or several: GPUs, what lies between them, NUMA nodes, network cards."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice

from workbench.errors import ConfigError, check_kind
from workbench.topology.devices import GPU, NIC, Numa
from workbench.topology.links import Link, LinkKind, estimate
from workbench.topology.parts import check_parts

Pair = tuple[str, str]
MOST_CLIQUES = 1000  # a graph of 60 GPUs can have a billion; a machine has a handful


@dataclass(frozen=True)
class Path:
    """The way between two devices: its stations, the class of the narrowest part, and the estimate in GB/s, one direction."""

    hops: tuple[str, ...]
    kind: LinkKind
    gb_per_s: float | None
    source: str

    def __str__(self) -> str:
        speed = "speed not known" if self.gb_per_s is None else f"about {self.gb_per_s:g} GB/s"
        return f"{' - '.join(self.hops)} ({speed}: {self.source})"


@dataclass(frozen=True)
class Topology:
    """The hardware. Made by ``detect``, ``parse``, ``preset``, ``cpu`` or ``join``; devices are named "node:index".

    ``links``: at most one for two GPUs. ``nic_links``: between a GPU and a network card, or two cards. ``complete``: False
    where the source was cut off or contradicts itself; ``warnings`` say what is missing.
    """

    name: str
    gpus: tuple[GPU, ...]
    links: tuple[Link, ...] = ()
    nics: tuple[NIC, ...] = ()
    nic_links: tuple[Link, ...] = ()
    complete: bool = True
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_parts(self.name, self.gpus, self.links, self.nics, self.nic_links)

    @classmethod
    def cpu(cls, slots: int = 4) -> "Topology":
        """``slots`` slots on the CPU of one machine, each of which stands for a GPU."""
        check_kind("slots", slots, int, "a number of slots such as 4")
        if not 1 <= slots <= 1024:
            raise ConfigError(f"Topology.cpu(slots={slots})", "it takes 1 to 1024 slots", "give a number such as 4")
        gpus = tuple(GPU(index, name="CPU slot", kind="cpu") for index in range(slots))
        return cls(f"cpu, {slots} slots", gpus)

    @classmethod
    def parse(cls, text: str, name: str = "parsed") -> "Topology":
        """What ``nvidia-smi topo -m`` or ``rocm-smi --showtopo`` printed. See ``workbench.topology.reading``."""
        from workbench.topology.reading import parse

        return parse(text, name)

    @classmethod
    def preset(cls, name: str, network_gb_per_s: float | None = None) -> "Topology":
        """A known machine ("dgx-a100"), or several of one kind over a network ("2xhgx-h100"). See ``workbench.topology.presets``.

        ``network_gb_per_s``: GB/s a GPU between nodes, one direction; left out, what the machine's own network cards give.
        """
        from workbench.topology.presets import preset

        return preset(name, network_gb_per_s)

    @classmethod
    def detect(cls) -> "Topology":
        """This machine. See ``workbench.topology.detection``."""
        from workbench.topology.detection import detect

        return detect()

    @classmethod
    def join(cls, nodes: "Mapping[str, Topology]", gb_per_s: float, source: str = "as given") -> "Topology":
        """Machines over a network of ``gb_per_s`` GB/s a GPU, one direction. ``nodes``: name -> topology of one node.

        Raises ConfigError where a name is no node's name, or a topology has several nodes itself.
        """
        from workbench.topology.join import join

        return join(nodes, gb_per_s, source)

    def with_memory(self, memory_gib: float) -> "Topology":
        """The same machine; GPUs whose memory is not known have ``memory_gib`` GiB. A matrix does not say it."""
        check_kind("memory_gib", memory_gib, float, "GiB of one GPU, such as 80")
        if not 0 < memory_gib < 1e6:
            raise ConfigError(f"memory_gib={memory_gib}", "that is no GPU's memory", "give GiB of one GPU, such as 80")
        known = (gpu if gpu.memory_gib is not None else replace(gpu, memory_gib=float(memory_gib)) for gpu in self.gpus)
        return replace(self, gpus=tuple(known))

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """Names of the nodes, in order."""
        return tuple(dict.fromkeys(gpu.node for gpu in self.gpus))

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Names of the devices, in order."""
        return tuple(gpu.id for gpu in self.gpus)

    @cached_property
    def _by_id(self) -> dict[str, GPU]:
        return {gpu.id: gpu for gpu in self.gpus}

    @cached_property
    def _by_pair(self) -> dict[Pair, Link]:
        return {pair: link for link in self.links for pair in ((link.a, link.b), (link.b, link.a))}

    @cached_property
    def _neighbours(self) -> dict[str, frozenset[str]]:
        """Over the fabric (NVLink, XGMI)."""
        found: dict[str, set[str]] = {id: set() for id in self.ids}
        for link in self.links:
            if link.kind.is_fabric:
                found[link.a].add(link.b)
                found[link.b].add(link.a)
        return {id: frozenset(others) for id, others in found.items()}

    @property
    def is_cpu(self) -> bool:
        """Whether the devices are CPU slots."""
        return all(gpu.kind == "cpu" for gpu in self.gpus)

    def gpu(self, device: str | int) -> GPU:
        """The device called ``device``: "node1:0", or "0" and 0 where there is one node. Raises ConfigError where there is none."""
        found = self.find(device)
        if found is None:
            fix = f"the devices are {', '.join(self.ids[:4])}{' ...' if len(self.ids) > 4 else ''}"
            words = repr(device) if not isinstance(device, int) or abs(device) < 10**9 else "of so large a number"
            raise ConfigError(f"device {words[:60]}", f"{self.name} has no such device", fix if self.ids else "it has no devices at all")
        return found

    def find(self, device: str | int) -> GPU | None:
        """The device called ``device``, or None. A bare number is a device only where there is one node."""
        text = device if isinstance(device, str) else ""
        if text.isascii() and text.isdecimal() and len(text) < 10:
            device = int(text)
        if isinstance(device, int) and not isinstance(device, bool):
            return next((gpu for gpu in self.gpus if gpu.index == device), None) if len(self.nodes) == 1 else None
        return self._by_id.get(text)

    def link(self, a: str | int, b: str | int) -> Link | None:
        """What lies between two devices; None where the source did not say, and for a device and itself."""
        return self._by_pair.get((self.gpu(a).id, self.gpu(b).id))

    def bandwidth(self, a: str | int, b: str | int) -> float | None:
        """The estimate in GB/s, one direction; None where nothing is known."""
        link = self.link(a, b)
        return link.gb_per_s if link else None

    def path(self, a: str | int, b: str | int) -> Path | None:
        """The way from ``a`` to ``b``; None where the source did not say."""
        first, last = self.gpu(a), self.gpu(b)
        link = self._by_pair.get((first.id, last.id))
        if link is None:
            return None
        return Path((first.id, *_between(link, first, last), last.id), link.kind, link.gb_per_s, link.source)

    @cached_property
    def islands(self) -> tuple[tuple[str, ...], ...]:
        """Devices connected over NVLink or XGMI, perhaps through others; one alone is an island of its own."""
        left, found = list(self.ids), []
        while left:
            members, frontier = {left[0]}, [left[0]]
            while frontier:
                fresh = self._neighbours[frontier.pop()] - members
                members |= fresh
                frontier += fresh
            found.append(tuple(id for id in self.ids if id in members))
            left = [id for id in left if id not in members]
        return tuple(found)

    @cached_property
    def cliques(self) -> tuple[tuple[str, ...], ...]:
        """The largest sets of devices that are all linked with one another over NVLink or XGMI.

        They may overlap: the cube mesh of a DGX-1 has six, two of four and four pairs.

        Maximal cliques by Bron and Kerbosch with pivoting (1973); no more than 1000, which no machine reaches.
        """
        found = islice(_maximal_cliques(self._neighbours, set(), set(self.ids), set()), MOST_CLIQUES)
        order = {id: position for position, id in enumerate(self.ids)}
        return tuple(sorted((tuple(sorted(clique, key=order.__getitem__)) for clique in found), key=lambda c: [order[id] for id in c]))

    def is_clique(self, devices: Iterable[str | int]) -> bool:
        """Whether all ``devices`` are linked with one another over NVLink or XGMI. A device named twice counts once."""
        if isinstance(devices, str) or not isinstance(devices, Iterable):
            raise ConfigError(f"is_clique({str(devices)[:60]!r})", "that is no list of devices", "give [0, 1], or ['node1:0', 'node1:1']")
        ids = dict.fromkeys(self.gpu(device).id for device in devices)
        return all(b in self._neighbours[a] for a, b in combinations(ids, 2))

    @cached_property
    def numa(self) -> dict[str, Numa]:
        """Device -> the NUMA node of its CPUs: a number, several, or None where not known."""
        return {gpu.id: gpu.numa for gpu in self.gpus}

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """A drawing, as the last line of a notebook's cell; the table where nothing can be drawn."""
        from workbench.topology.drawing.display import bundle
        from workbench.topology.drawing.machine import draw

        return bundle(draw(self), str(self))

    def __str__(self) -> str:
        """A table of the devices, the islands, and what is missing."""
        from workbench.topology.table import table

        return table(self)


def connect(gpus: Iterable[GPU], names: Mapping[Pair, str], p2p: Mapping[Pair, bool] | None = None) -> tuple[Link, ...]:
    """Links with their estimates. ``names``: (id, id) -> class, either way round; ``p2p``: likewise, whether peers may read each other."""
    allowed, found = p2p or {}, []
    estimates: dict[tuple[str, str | None, str | None], tuple[float | None, str]] = {}  # a machine has few kinds of links
    for (a, id_a), (b, id_b) in combinations([(gpu, gpu.id) for gpu in gpus], 2):
        name = names.get((id_a, id_b)) or names.get((id_b, id_a))
        if name is None:
            continue
        kind = (name, a.name, b.name)
        if kind not in estimates:
            estimates[kind] = estimate(name, a, b)
        found.append(Link(id_a, id_b, name, *estimates[kind], p2p=allowed.get((id_a, id_b), allowed.get((id_b, id_a)))))
    return tuple(found)


def on_node(topology: Topology, node: str) -> Topology:
    """The same hardware under another node's name. ``topology`` has one node."""
    ids = {gpu.id: replace(gpu, node=node).id for gpu in topology.gpus}
    ids |= {nic.id: replace(nic, node=node).id for nic in topology.nics}
    return replace(
        topology,
        gpus=tuple(replace(gpu, node=node) for gpu in topology.gpus),
        nics=tuple(replace(nic, node=node) for nic in topology.nics),
        links=tuple(replace(link, a=ids[link.a], b=ids[link.b]) for link in topology.links),
        nic_links=tuple(replace(link, a=ids[link.a], b=ids[link.b]) for link in topology.nic_links),
    )


def _between(link: Link, a: GPU, b: GPU) -> tuple[str, ...]:
    """The stations between two GPUs."""
    if link.kind is LinkKind.NVLINK:
        return (f"NVLink x{link.lanes}",)
    if link.kind is LinkKind.SYS:
        return ("host bridge", f"socket {_numas(a)}", "SMP interconnect", f"socket {_numas(b)}", "host bridge")
    if link.kind is LinkKind.NODE:
        return ("host bridge", f"NUMA node {_numas(a)}", "host bridge")
    if link.kind is LinkKind.NETWORK:
        return (f"network card of {a.node}", "network", f"network card of {b.node}")
    return ({LinkKind.PIX: "PCIe switch", LinkKind.PXB: "PCIe switches", LinkKind.PHB: "host bridge"}.get(link.kind, str(link.kind)),)


def _numas(gpu: GPU) -> str:
    return ",".join(map(str, gpu.numas)) or "?"


def _maximal_cliques(
    neighbours: Mapping[str, frozenset[str]], chosen: set[str], open_: set[str], done: set[str]
) -> Iterator[frozenset[str]]:
    if not open_ and not done:
        yield frozenset(chosen)
        return
    pivot = max(open_ | done, key=lambda id: len(neighbours[id] & open_))
    for id in sorted(open_ - neighbours[pivot]):
        yield from _maximal_cliques(neighbours, chosen | {id}, open_ & neighbours[id], done & neighbours[id])
        open_, done = open_ - {id}, done | {id}
