"""What a machine has: GPUs (or CPU slots that stand for them) and network cards."""

import re
from dataclasses import dataclass
from typing import Literal

from workbench.errors import ConfigError, check_kind

Numa = int | tuple[int, ...] | None
NODE = re.compile(r"[A-Za-z_][\w.-]*")  # what a device map can name


def check_printable(name: str, value: object) -> None:
    """Raise ConfigError unless ``value`` is text that a terminal can print: no control characters, no halves of a character."""
    check_kind(name, value, str, "text")
    if not str(value).isprintable():
        raise ConfigError(f"{name}={ascii(value)[:80]}", "it has characters that can't be printed", "leave them out")


def check_node(node: object) -> None:
    """Raise ConfigError where ``node`` is no name that a device map can write."""
    check_printable("node", node)
    if not NODE.fullmatch(str(node)):
        raise ConfigError(f"node={str(node)[:60]!r}", "a node's name is a letter, then letters, digits, '.', '_' and '-'", "write 'node1'")


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

    def __post_init__(self) -> None:
        check_kind("index", self.index, int, "its position on its node, 0 for the first")
        if self.index < 0:
            raise ConfigError(f"index={self.index}", "positions begin at 0", "give 0 or more")
        check_node(self.node)
        for field in ("name", "cpus", "pci_bus", "uuid"):
            if getattr(self, field) is not None:
                check_printable(field, getattr(self, field))
        if self.memory_gib is not None:
            check_kind("memory_gib", self.memory_gib, float, "GiB such as 80, or None where not known")
            if self.memory_gib <= 0:
                raise ConfigError(f"memory_gib={self.memory_gib}", "a GPU has more", "give GiB such as 80, or None where not known")
        if not all(isinstance(numa, int) for numa in self.numas):
            raise ConfigError(f"numa={self.numa!r}", "that is no NUMA node", "give 0, several as (0, 1), or None where not known")
        if self.kind not in ("gpu", "cpu"):
            raise ConfigError(f"kind={self.kind!r}", "a device is a GPU or a CPU slot", "write 'gpu' or 'cpu'")

    @property
    def id(self) -> str:
        """As events, files and maps name it: "local:0", "node1:3", "cpu:0"."""
        return f"cpu:{self.index}" if self.kind == "cpu" and self.node == "local" else f"{self.node}:{self.index}"

    @property
    def numas(self) -> tuple[int, ...]:
        """Its NUMA nodes as a tuple, empty where not known."""
        return () if self.numa is None else self.numa if isinstance(self.numa, tuple) else (self.numa,)


@dataclass(frozen=True)
class NIC:
    """A network card. ``name``: as the matrix calls it ("NIC0", "mlx5_0"); ``device``: what the legend says it is ("mlx5_0")."""

    name: str
    node: str = "local"
    device: str | None = None

    def __post_init__(self) -> None:
        check_printable("name", self.name)
        check_node(self.node)
        if self.device is not None:
            check_printable("device", self.device)

    @property
    def id(self) -> str:
        """ "local:NIC0"."""
        return f"{self.node}:{self.name}"
