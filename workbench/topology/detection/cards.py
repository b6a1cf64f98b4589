"""GPUs and MIG slices, as NVML lists them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.topology.detection.host import nodes_with, numa_node
from workbench.topology.detection.nvml import ABSENT, NOT_SUPPORTED, Inquiry, Missing
from workbench.topology.devices import GPU, Numa

GIB = 2**30
WORD_BITS = 64
CPU_WORDS, NODE_WORDS = 64, 16  # masks of 4096 CPUs and 1024 NUMA nodes: the most that Linux knows


@dataclass(frozen=True)
class Card:
    """One GPU or MIG slice. ``number``: NVML's of the GPU; ``names``: what CUDA_VISIBLE_DEVICES may call it. ``gpu.index`` is not final."""

    number: int
    handle: Any
    gpu: GPU
    names: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """As nvidia-smi calls it: "GPU 0"."""
        return f"GPU {self.number}"


def cards(inquiry: Inquiry, root: Path) -> tuple[Card, ...]:
    """All devices in PCI order, a GPU in MIG mode as its slices. Empty where NVML won't even count them."""
    found = []
    for number in range(inquiry.ask("number", "GPUs", "nvmlDeviceGetCount") or 0):
        handle = inquiry.ask("handle", f"GPU {number}", "nvmlDeviceGetHandleByIndex", number)
        if handle is not None:
            whole = _whole(inquiry, number, handle, root)
            found += list(_slices(inquiry, whole)) if _in_mig_mode(inquiry, whole) else [whole]
    if all(card.gpu.pci_bus for card in found):  # else NVML's order, which is the same on every machine seen
        found.sort(key=lambda card: card.gpu.pci_bus or "")
    return tuple(found)


def _whole(inquiry: Inquiry, number: int, handle: Any, root: Path) -> Card:
    title = f"GPU {number}"
    pci = inquiry.ask("PCI bus", title, "nvmlDeviceGetPciInfo", handle)
    bus = text(pci.busId).upper() if pci else None
    uuid = _uuid(inquiry, title, handle)
    gpu = GPU(
        index=number,
        name=_name(inquiry, title, handle),
        memory_gib=_memory_gib(inquiry, title, handle),
        numa=_numa(inquiry, title, handle, bus, root),
        cpus=_cpus(inquiry, title, handle),
        pci_bus=bus,
        uuid=uuid,
    )
    return Card(number, handle, gpu, (uuid,) if uuid else ())


def _in_mig_mode(inquiry: Inquiry, card: Card) -> bool:
    mode = inquiry.ask("MIG mode", card.title, "nvmlDeviceGetMigMode", card.handle, fine=(NOT_SUPPORTED,))
    return bool(mode and mode[0])  # what is, and what will be after a reset


def _slices(inquiry: Inquiry, whole: Card) -> Iterator[Card]:
    """The MIG slices of a GPU; NVML numbers them with gaps."""
    most = inquiry.ask("number of MIG slices", whole.title, "nvmlDeviceGetMaxMigDeviceCount", whole.handle) or 0
    some = False
    for position in range(most):
        title = f"{whole.title} slice {position}"
        handle = inquiry.ask("MIG slice", title, "nvmlDeviceGetMigDeviceHandleByIndex", whole.handle, position, fine=ABSENT)
        if handle is not None:
            some = True
            yield _slice(inquiry, whole, title, handle)
    if not some:
        inquiry.note("MIG slices", whole.title, "it is in MIG mode and has none, so nothing can run on it (nvidia-smi mig -cgi ... -C)")


def _slice(inquiry: Inquiry, whole: Card, title: str, handle: Any) -> Card:
    uuid = _uuid(inquiry, title, handle)
    gpu = GPU(
        index=whole.number,
        name=_name(inquiry, title, handle),
        memory_gib=_memory_gib(inquiry, title, handle),
        numa=whole.gpu.numa,
        cpus=whole.gpu.cpus,
        pci_bus=whole.gpu.pci_bus,
        uuid=uuid,
        mig=True,
    )
    return Card(whole.number, handle, gpu, (*((uuid,) if uuid else ()), *_old_name(inquiry, whole, handle), *whole.names))


def _old_name(inquiry: Inquiry, whole: Card, handle: Any) -> Iterator[str]:
    """What drivers before R470 called a slice, and CUDA still reads: "MIG-GPU-<uuid>/<GPU instance>/<compute instance>"."""
    instances = [inquiry.nvml.ask(f"nvmlDeviceGet{kind}InstanceId", handle) for kind in ("Gpu", "Compute")]
    if whole.gpu.uuid and all(isinstance(number, int) for number in instances):
        yield f"MIG-{whole.gpu.uuid}/{instances[0]}/{instances[1]}"


def _uuid(inquiry: Inquiry, title: str, handle: Any) -> str | None:
    uuid = inquiry.ask("UUID", title, "nvmlDeviceGetUUID", handle)
    return text(uuid) if uuid else None


def _name(inquiry: Inquiry, title: str, handle: Any) -> str | None:
    name = inquiry.ask("name", title, "nvmlDeviceGetName", handle)
    return "".join(c for c in text(name) if c.isprintable()).strip() or None if name else None


def _memory_gib(inquiry: Inquiry, title: str, handle: Any) -> float | None:
    memory = inquiry.ask("memory", title, "nvmlDeviceGetMemoryInfo", handle)
    return round(memory.total / GIB, 2) or None if memory else None  # some drivers report 0 where memory is the host's


def _numa(inquiry: Inquiry, card: str, handle: Any, bus: str | None, root: Path) -> Numa:
    """The NUMA nodes of its CPUs, which nvidia-smi shows too: by NVML, else sysfs, else those that its CPUs belong to.

    (nvmlDeviceGetNumaNodeId is the GPU's *own* memory, on Grace. In virtual machines the first two often say nothing.)
    """
    mask = inquiry.nvml.ask("nvmlDeviceGetMemoryAffinity", handle, NODE_WORDS, 0)
    nodes = [] if isinstance(mask, Missing) else bits(mask)
    by_sysfs = numa_node(bus, root) if bus and not nodes else None
    if by_sysfs is not None:
        return by_sysfs
    if not nodes:
        cpus = inquiry.nvml.ask("nvmlDeviceGetCpuAffinity", handle, CPU_WORDS)
        nodes = nodes_with([] if isinstance(cpus, Missing) else bits(cpus), root)
    if not nodes:
        inquiry.note("NUMA node", card, getattr(mask, "reason", "NVML and sysfs name none"))
        return None
    return nodes[0] if len(nodes) == 1 else tuple(nodes)


def _cpus(inquiry: Inquiry, title: str, handle: Any) -> str | None:
    mask = inquiry.ask("CPU affinity", title, "nvmlDeviceGetCpuAffinity", handle, CPU_WORDS)
    return ranges(bits(mask)) or None if mask is not None else None


def bits(mask: Sequence[int]) -> list[int]:
    """The numbers of the bits that are set in words of 64: [0b101, 1] -> [0, 2, 64]."""
    return [position * WORD_BITS + bit for position, word in enumerate(mask) for bit in range(WORD_BITS) if word >> bit & 1]


def ranges(numbers: list[int]) -> str:
    """Ascending numbers as nvidia-smi writes them: [0, 1, 2, 8] -> "0-2,8"."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def text(value: str | bytes) -> str:
    """A text of NVML, which older versions of nvidia-ml-py give as bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value
