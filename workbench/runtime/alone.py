"""GPUs beside Ray: a lock against other Rays of this machine, and a look at who is on a GPU already."""

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workbench.errors import ClusterError
from workbench.runtime.holders import Occupant, occupants
from workbench.runtime.nodes import PROBE_SECONDS, Device

MEMORY_PATIENCE = 5.0  # seconds for a killed process's memory to come back


@contextmanager
def locked(device: Device, run: str) -> Iterator[None]:
    """This machine's GPU among all the Rays on it, for the length of a block. Linux takes the lock back when the process ends.

    Nothing for a CPU slot and for a GPU of another machine: there Ray alone is asked. Raises ClusterError where another has it.
    """
    if not device.node.driver or not device.gpu.uuid:
        yield
        return
    path = Path(tempfile.gettempdir()) / f"workbench-{device.gpu.uuid}.lock"
    path.touch(mode=0o666)
    with path.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            asked = f"{', '.join(device.roles) or 'a role'} on {device.name}"
            fix = "map the role to another GPU, or close the other run"
            raise ClusterError(asked, f"{file.read().strip() or 'another run'} holds that GPU", fix) from None
        file.write(f"run {run!r} (pid {os.getpid()})")
        file.truncate()
        file.flush()
        yield


def check_idle(devices: Iterable[Device]) -> None:
    """Raise ClusterError where another process holds a GiB or more of a GPU, as its own node sees it."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    by_node: dict[str, list[Device]] = {}
    for device in devices:
        if device.gpu.uuid:
            by_node.setdefault(device.node.ray_id, []).append(device)
    task = ray.remote(num_cpus=0)(occupants)
    for id, there in by_node.items():
        where = NodeAffinitySchedulingStrategy(id, soft=False)
        busy = ray.get(task.options(scheduling_strategy=where).remote([d.gpu.uuid for d in there], MEMORY_PATIENCE), timeout=PROBE_SECONDS)
        for device in there:
            if device.gpu.uuid in busy:
                raise _occupied(device, busy[device.gpu.uuid])


def _occupied(device: Device, there: Sequence[Occupant]) -> ClusterError:
    mine = device.node.driver and any(occupant.pid == os.getpid() for occupant in there)
    who = "; ".join(f"{occupant}{' (this kernel itself)' if occupant.pid == os.getpid() and mine else ''}" for occupant in there)
    fix = "restart the kernel, or delete its tensors" if mine else "end that process, or map the role to another GPU"
    return ClusterError(f"{', '.join(device.roles) or 'a role'} on {device.name}", who, fix)
