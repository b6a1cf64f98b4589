"""Where a process sits: its GPU, its CPUs, its rank, as it sees them itself. One seat is one line of ``placement.json``."""

import os
from dataclasses import dataclass

from workbench.runtime.pools import Pool
from workbench.topology.detection.host import nodes_with
from workbench.topology.reading.cells import numbers


@dataclass(frozen=True)
class Seat:
    """One role in one process. ``device``: as the map names it; ``uuid``: of the GPU that CUDA shows this process, None on a CPU.

    ``group``: the pool whose world ``rank`` and ``world`` are of. ``numa``: the nodes of the CPUs that it may run on.
    """

    role: str
    node: str
    device: str
    uuid: str | None
    pid: int
    rank: int
    world: int
    layout: str
    group: str
    numa: list[int]


def sit_near(cpus: str | None) -> None:
    """Run on ``cpus`` ("0-15,32-47") as far as this process may; None: wherever it may.

    Memory follows: Linux puts a page on the NUMA node of the CPU that first writes to it. So call it before anything is allocated.
    """
    allowed = os.sched_getaffinity(0)
    near = allowed.intersection(numbers(cpus or "") or ())
    if near:
        os.sched_setaffinity(0, near)


def uuid_here(device: str) -> str | None:
    """The UUID of the GPU that this process works on; None on a CPU."""
    if device != "cuda":
        return None
    import torch

    return f"GPU-{torch.cuda.get_device_properties(0).uuid}"


def seats(pool: Pool, rank: int, device: str) -> tuple[Seat, ...]:
    """This process's seats, one for each role of its pool. ``device``: "cpu" or "cuda"."""
    name, uuid, numa = pool.devices[rank], uuid_here(device), nodes_with(os.sched_getaffinity(0))
    node = "local" if name.startswith("cpu:") else name.rpartition(":")[0]
    return tuple(Seat(role, node, name, uuid, os.getpid(), rank, pool.size, pool.layout_of(role), pool.name, numa) for role in pool.roles)
