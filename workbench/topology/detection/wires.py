"""What lies between GPUs, as NVML tells it: NVLinks counted port by port, else the PCIe level; whether peers may read each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

from workbench.topology.detection import nvml
from workbench.topology.detection.cards import Card, text
from workbench.topology.detection.nvml import Inquiry
from workbench.topology.links import Link, estimate

# nvmlGpuTopologyLevel_t. INTERNAL is one board with two GPUs (Tesla K80), which nvidia-smi calls PIX too.
LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}

Matrix = Callable[[int, int], str | None]


@dataclass(frozen=True)
class End:
    """Where an active NVLink ends. ``kind``: REMOTE_GPU, REMOTE_SWITCH ...; ``bus``: PCI bus. None where NVML does not say."""

    kind: int | None
    bus: str | None = None


@dataclass(frozen=True)
class Ports:
    """The NVLinks of a GPU. ``ends``: of the active ones; ``inactive``: how many others; ``whole``: False where NVML failed on some."""

    ends: tuple[End, ...]
    inactive: int
    whole: bool

    def to(self, bus: str | None) -> int:
        """How many end at the GPU on ``bus``."""
        return sum(bus is not None and end.bus == bus for end in self.ends)


@dataclass(frozen=True)
class Bundle:
    """NVLinks between two GPUs. ``sure``: False where ``count`` is a guess at best, and 0 then means not known."""

    count: int
    sure: bool = True


def wires(inquiry: Inquiry, cards: Sequence[Card], matrix: Matrix) -> tuple[Link, ...]:
    """The links of ``cards``, whose ``gpu`` are final. ``matrix``: NVML's numbers of two GPUs -> nvidia-smi's word; asked only in doubt.

    A pair of which nothing is known has no link. MIG slices have none: drivers allow no peer access from or to them.
    """
    full = [card for card in cards if not card.gpu.mig]
    if len(full) < 2:
        return ()
    ports = {card.number: _ports(inquiry, card) for card in full}
    _note_inactive(inquiry, full, ports)
    buses = {card.gpu.pci_bus for card in full}
    links = []
    for a, b in combinations(full, 2):
        bundle = _bundle(inquiry, (a, b), (ports[a.number], ports[b.number]), buses)
        name = _name(inquiry, (a, b), bundle, matrix)
        if name is not None:
            links.append(Link(a.gpu.id, b.gpu.id, name, *estimate(name, a.gpu, b.gpu), p2p=_peers(inquiry, a, b)))
    return tuple(links)


def _ports(inquiry: Inquiry, card: Card) -> Ports:
    ends, inactive, whole = [], 0, True
    for port in range(nvml.MAX_NVLINKS):
        active = inquiry.nvml.ask("nvmlDeviceGetNvLinkState", card.handle, port)
        if isinstance(active, nvml.Missing):
            if active.code not in nvml.ABSENT:
                whole = False
                inquiry.note("NVLinks", card.title, active.reason)
        elif active:
            ends.append(_end(inquiry, card, port))
        else:
            inactive += 1
    return Ports(tuple(ends), inactive, whole)


def _end(inquiry: Inquiry, card: Card, port: int) -> End:
    kind = inquiry.ask("kind of the other end of NVLinks", card.title, "nvmlDeviceGetNvLinkRemoteDeviceType", card.handle, port)
    if kind == nvml.REMOTE_SWITCH:
        return End(kind)
    pci = inquiry.ask("other end of NVLinks", card.title, "nvmlDeviceGetNvLinkRemotePciInfo", card.handle, port)
    return End(kind, text(pci.busId).upper() if pci else None)


def _note_inactive(inquiry: Inquiry, full: Sequence[Card], ports: dict[int, Ports]) -> None:
    """A GPU with fewer active NVLinks than others of its name. (All inactive is a card without a bridge.)"""
    for card in full:
        own = ports[card.number]
        alike = max(len(ports[other.number].ends) for other in full if other.gpu.name == card.gpu.name)
        if own.inactive and len(own.ends) < alike:
            inquiry.note("NVLinks", card.title, f"{len(own.ends)} of {len(own.ends) + own.inactive} are active")


def _bundle(inquiry: Inquiry, pair: tuple[Card, Card], ports: tuple[Ports, Ports], buses: set[str | None]) -> Bundle:
    """The NVLinks that end at each other; else those that both have on switches, if NVML says that the two are linked."""
    (a, b), (ports_a, ports_b) = pair, ports
    direct = ports_a.to(b.gpu.pci_bus), ports_b.to(a.gpu.pci_bus)
    if any(direct):
        return Bundle(min(direct) or max(direct), sure=direct[0] == direct[1])
    # What ends at no GPU that we see: on a switch, at a GPU that a container hides, or at a switch that a virtual machine hides.
    open_a, open_b = ([end for end in own.ends if end.bus is None or end.bus not in buses] for own in ports)
    whole = ports_a.whole and ports_b.whole
    if whole and not (open_a and open_b):
        return Bundle(0)
    status = inquiry.ask("NVLink", f"{a.title} and {b.title}", "nvmlDeviceGetP2PStatus", a.handle, b.handle, nvml.P2P_NVLINK)
    if status in (None, nvml.P2P_UNKNOWN):  # unknown is not "no"
        return Bundle(0, sure=False)
    if status != nvml.P2P_OK:
        return Bundle(0)
    switched = all(end.kind == nvml.REMOTE_SWITCH for end in (*open_a, *open_b))
    return Bundle(min(len(open_a), len(open_b)), sure=whole and switched)


def _name(inquiry: Inquiry, pair: tuple[Card, Card], bundle: Bundle, matrix: Matrix) -> str | None:
    """The class of a link: of NVLinks, else of PCIe; nvidia-smi's matrix where NVML is in doubt; None where neither knows."""
    a, b = pair
    about = f"{a.title} and {b.title}"
    if bundle.sure and bundle.count:
        return f"NV{bundle.count}"
    if bundle.sure:
        level = inquiry.ask("PCIe level", about, "nvmlDeviceGetTopologyCommonAncestor", a.handle, b.handle)
        if level in LEVELS:
            return LEVELS[level]
    by_matrix = matrix(a.number, b.number)
    if by_matrix is None and bundle.count:
        inquiry.note("number of NVLinks", about, f"{bundle.count} assumed: NVML says that they are linked, but not by how many")
        return f"NV{bundle.count}"
    if by_matrix is None:
        inquiry.note("link", about, "not known")
    return by_matrix


def _peers(inquiry: Inquiry, a: Card, b: Card) -> bool | None:
    """Whether each may read and write the other's memory; None where NVML does not say."""
    directions = ((nvml.P2P_READ, "read"), (nvml.P2P_WRITE, "write"))
    about = f"{a.title} and {b.title}"
    answers = [inquiry.ask(f"peer {what} access", about, "nvmlDeviceGetP2PStatus", a.handle, b.handle, cap) for cap, what in directions]
    if any(answer not in (None, nvml.P2P_OK, nvml.P2P_UNKNOWN) for answer in answers):
        return False
    return True if all(answer == nvml.P2P_OK for answer in answers) else None
