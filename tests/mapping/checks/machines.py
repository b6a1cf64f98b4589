"""Machines that no preset is: PCIe switches, mixed GPUs, a broken link, a matrix that was cut off."""

from workbench.topology import GPU, Topology
from workbench.topology.topology import connect


def machine(
    name: str, gpus: tuple[GPU, ...], links: dict[tuple[int, int], str], rest: str | None = None, p2p: bool | None = None
) -> Topology:
    """``links``: (a, b) -> class; ``rest``: of all other pairs, None: not known."""
    ids = [gpu.id for gpu in gpus]
    names = {(ids[a], ids[b]): links.get((a, b), rest) for a in range(len(gpus)) for b in range(a + 1, len(gpus))}
    known = {pair: word for pair, word in names.items() if word}
    return Topology(name, gpus, connect(gpus, known, None if p2p is None else dict.fromkeys(known, p2p)))


def alike(count: int, name: str, memory_gib: float, numa: int | None = 0) -> tuple[GPU, ...]:
    return tuple(GPU(index, name=name, memory_gib=memory_gib, numa=numa) for index in range(count))


def mixed(*kinds: tuple[str, float]) -> tuple[GPU, ...]:
    return tuple(GPU(index, name=name, memory_gib=size, numa=0) for index, (name, size) in enumerate(kinds))


A100, SMALL = ("NVIDIA A100-SXM4-80GB", 80.0), ("NVIDIA A100-SXM4-40GB", 40.0)
OLD, NEW = ("NVIDIA GeForce RTX 3090", 24.0), ("NVIDIA GeForce RTX 4090", 24.0)
IN_FABRIC = {(0, 1): "NV12", (0, 2): "NV12", (1, 2): "NV12"}
MACHINES = {
    "two-sizes": machine("two-sizes", mixed(A100, A100, SMALL, SMALL), {}, "NODE"),
    "two-switches": machine("two-switches", alike(4, "NVIDIA A30", 24.0), {(0, 1): "PIX", (2, 3): "PXB"}, "NODE"),
    "one-out": machine("one-out", alike(4, *A100), IN_FABRIC, "SYS"),
    "cut-off": machine("cut-off", alike(4, *A100), IN_FABRIC),
    "slow-and-fast": machine("slow-and-fast", mixed(OLD, OLD, NEW, NEW), {}, "PHB"),
    "bridged": machine("bridged", alike(4, *OLD), {(0, 1): "NV4"}, "PHB"),
    "cut-pcie": machine("cut-pcie", alike(4, "NVIDIA A30", 24.0), {}, "PHB"),
    "pasted": machine("pasted", (GPU(0), GPU(1)), {(0, 1): "NV4"}),
}
