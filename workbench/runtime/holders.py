"""Who holds a device: by Ray's placement groups, and by what NVML sees on a GPU."""

import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from workbench.topology.detection.nvml import Missing, opened

GIB = 2**30
_NAME = re.compile(r"workbench run=(?P<run>\S+) devices=(?P<devices>\S*) pid=(?P<pid>\d+) host=(?P<host>\S+) \w+")


@dataclass(frozen=True)
class Holder:
    """A placement group that is in place. ``bundles``: node's Ray id -> what it has there.

    ``run``, ``devices``: what a run of ours wrote into the name; of the devices it holds one. None and empty where it is not ours.
    """

    id: str
    name: str
    pid: int | None
    host: str  # name or address of the driver's machine
    alive: bool  # whether its driver is
    bundles: Mapping[str, Mapping[str, float]]
    run: str | None = None
    devices: tuple[str, ...] = ()

    def __str__(self) -> str:
        who = f"run {self.run!r}" if self.run else f"placement group {self.name!r}" if self.name else "a placement group"
        return f"{who} (pid {self.pid} on {self.host})"


def group_name(run: str, devices: Sequence[str]) -> str:
    """A new name for a placement group: it says to every driver of the cluster who holds what. Ray wants each name once."""
    word = re.sub(r"\s", "_", run) or "-"
    return f"workbench run={word} devices={','.join(devices)} pid={os.getpid()} host={socket.gethostname()} {uuid4().hex[:8]}"


def holders() -> tuple[Holder, ...]:
    """Everybody who has a placement group on this cluster, this process included."""
    import ray
    from ray.util.placement_group import placement_group_table

    jobs = {job["JobID"]: job for job in ray._private.state.jobs()}
    groups = [row for row in placement_group_table().values() if row["state"] in ("CREATED", "RESCHEDULING")]
    return tuple(_holder(row, jobs.get(row["placement_group_id"][-8:])) for row in groups)  # an id ends with that of its job


def _holder(row: Mapping[str, Any], job: Mapping[str, Any] | None) -> Holder:
    id, bundles = row["placement_group_id"], dict[str, dict[str, float]]()
    for index, wants in row["bundles"].items():
        there = bundles.setdefault(row["bundles_to_node_id"][index], {})
        for kind, amount in wants.items():
            there[kind] = there.get(kind, 0) + amount
    pid = job["DriverPid"] if job else None
    host = job["DriverIPAddress"] if job else "a machine that is not known"
    alive = job is not None and not job["IsDead"]
    ours = _NAME.fullmatch(row["name"])
    if ours is None:
        return Holder(id, row["name"], pid, host, alive, bundles)
    alive = alive and (ours["host"] != socket.gethostname() or running(int(ours["pid"])))
    return Holder(id, row["name"], int(ours["pid"]), ours["host"], alive, bundles, ours["run"], tuple(ours["devices"].split(",")))


def running(pid: int) -> bool:
    """Whether a process of this machine lives; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")


# ------------------------------------------------------------ on the GPU itself


@dataclass(frozen=True)
class Occupant:
    """A process on a GPU, as NVML sees it from the GPU's node. ``pid``: 0 where a container hides who it is."""

    pid: int
    name: str
    gib: float

    def __str__(self) -> str:
        who = f"pid {self.pid} ({self.name})" if self.pid else "a process that can't be seen from here (a container hides it)"
        return f"{who} holds {self.gib:.1f} GiB"


def occupants(uuids: Sequence[str], patience: float = 0.0, least_gib: float = 1.0, library: Any = None) -> dict[str, tuple[Occupant, ...]]:
    """UUID -> who holds ``least_gib`` GiB or more of that GPU of this machine. GPUs that are free, or that NVML can't ask, are left out.

    What is held may be given up within ``patience`` seconds: the memory of a process that was killed takes a moment.
    """
    until = time.monotonic() + patience
    while True:
        found = _occupants(uuids, least_gib, library)
        if not found or time.monotonic() >= until:
            return found
        time.sleep(0.25)


def _occupants(uuids: Sequence[str], least_gib: float, library: Any) -> dict[str, tuple[Occupant, ...]]:
    found = {}
    with opened(library) as nvml:
        if isinstance(nvml, Missing):
            return {}
        for uuid in uuids:
            handle = nvml.ask("nvmlDeviceGetHandleByUUID", uuid)
            if not isinstance(handle, Missing):
                found[uuid] = _on_gpu(nvml, handle, least_gib)
    return {uuid: there for uuid, there in found.items() if there}


def _on_gpu(nvml: Any, handle: Any, least_gib: float) -> tuple[Occupant, ...]:
    processes = nvml.ask("nvmlDeviceGetComputeRunningProcesses", handle)
    seen = [] if isinstance(processes, Missing) else [(p.pid, (p.usedGpuMemory or 0) / GIB) for p in processes]
    big = tuple(Occupant(pid, _command(pid), gib) for pid, gib in seen if gib >= least_gib)
    # Version 2 leaves out what the driver keeps for itself, which is half a GiB on large GPUs.
    memory = nvml.ask("nvmlDeviceGetMemoryInfo", handle, getattr(nvml.library, "nvmlMemory_v2", 0x2000028))
    used = 0.0 if isinstance(memory, Missing) else memory.used / GIB
    hidden = used - sum(gib for _, gib in seen)
    return big if big or hidden < least_gib else (Occupant(0, "", hidden),)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "of another container or user"
