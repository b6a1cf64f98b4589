"""What a machine has: GPUs (or CPU slots that stand for them) and network cards."""

from dataclasses import dataclass
from typing import Literal

Numa = int | tuple[int, ...] | None


@dataclass(frozen=True)
class GPU:
    """One GPU, or one CPU slot that stands for one. What is not known is None.

    ``index``: its position on its node, in PCI order within the visible set. ``memory_gib``: GiB (2^30 bytes). ``numa``: the NUMA
    node of its CPUs; several where the system said several. ``cpus``: the CPUs near it, "0-15,32-47". ``mig``: a slice of a GPU.
    """

    index: int
    node: str = "local"
    name: str | None = None
    memory_gib: float | None = None
    numa: Numa = None
    cpus: str | None = None
    pci_bus: str | None = None
    uuid: str | None = None
    mig: bool = False
    kind: Literal["gpu", "cpu"] = "gpu"

    @property
    def id(self) -> str:
        """As events, files and maps name it: "local:0", "node1:3", "cpu:0"."""
        return f"cpu:{self.index}" if self.kind == "cpu" and self.node == "local" else f"{self.node}:{self.index}"

    @property
    def numas(self) -> tuple[int, ...]:
        """Its NUMA nodes as a tuple, empty where not known."""
        return () if self.numa is None else (self.numa,) if isinstance(self.numa, int) else self.numa


@dataclass(frozen=True)
class NIC:
    """A network card. ``name``: as the matrix calls it ("NIC0", "mlx5_0"); ``device``: what the legend says it is ("mlx5_0")."""

    name: str
    node: str = "local"
    device: str | None = None

    @property
    def id(self) -> str:
        """ "local:NIC0"."""
        return f"{self.node}:{self.name}"
