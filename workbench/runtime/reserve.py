"""Devices for one run alone: a placement group for each, on its node, holding that very GPU.

Ray chooses which GPU of a node a bundle gets, and never says. So bundles are taken until the wanted GPUs are among theirs, each
asked by a task that runs in it, and the others are given back. Reservations on one cluster take turns, or two of them could hold
what the other wants. Everything ends with the driver: placement groups with its job, locks with its process.
"""

import fcntl
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from workbench.errors import ClusterError
from workbench.mapping.devices import node_of, number_of
from workbench.runtime.cluster import Cluster
from workbench.runtime.holders import Holder, group_name, holders, occupants
from workbench.runtime.nodes import PROBE_SECONDS, Node
from workbench.topology.devices import GPU

LAG_SECONDS, DEATH_SECONDS = 2.0, 15.0  # until Ray's count is right after a release; until it has noticed a dead driver
TURN_SECONDS = 120.0  # for another run to finish reserving
MEMORY_PATIENCE = 5.0  # seconds for a killed process's memory to come back


@dataclass(frozen=True)
class Device:
    """A device that a run wants. ``name``: as the map has it ("local:0"). ``roles``: for the errors."""

    name: str
    node: Node
    gpu: GPU
    roles: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What Ray calls it: "GPU", or "CPU" for a slot."""
        return "GPU" if self.gpu.kind == "gpu" else "CPU"

    @property
    def wants(self) -> dict[str, float]:
        """Its bundle."""
        return {"GPU": 1.0, "CPU": 1.0} if self.kind == "GPU" else {"CPU": 1.0}


@dataclass
class Reservation:
    """Devices that are held until ``release``, or until this process ends."""

    devices: tuple[Device, ...]
    _groups: Mapping[str, Any] = field(repr=False)
    _held: ExitStack = field(repr=False)

    def device(self, name: str) -> Device:
        """The device of that name."""
        return next(device for device in self.devices if device.name == name)

    def bundle(self, name: str) -> Any:
        """The scheduling strategy of an actor on that device. Several may share it: give them num_cpus=0 and num_gpus=0."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(self._groups[name], placement_group_bundle_index=0)

    def cpus(self, name: str) -> int:
        """Cores for the process on that device: an equal share of its node's, among the devices that this run has there."""
        node = self.device(name).node
        return max(1, node.cores // sum(device.node.ray_id == node.ray_id for device in self.devices))

    def release(self) -> None:
        """Give everything back. Workers that are still in a bundle end with it. Twice is harmless."""
        self._held.close()


def find(cluster: Cluster, wanted: Mapping[str, Sequence[str]]) -> tuple[Device, ...]:
    """The devices called ``wanted`` (name -> roles). Raises ClusterError for the first that the cluster does not have."""
    found = []
    for name, roles in wanted.items():
        asked = f"{', '.join(roles) or 'a role'} on {name}"
        try:
            node = cluster.node(node_of(name))
        except ClusterError as error:
            raise ClusterError(asked, error.found, error.fix) from None
        gpu = None if node_of(name) == "cpu" else node.device(number_of(name))
        if node_of(name) == "cpu" and number_of(name) < node.slots:
            gpu = GPU(number_of(name), name="CPU slot", kind="cpu")
        if gpu is None:
            kind, count = ("CPU slots", node.slots) if node_of(name) == "cpu" or not node.gpus else ("GPUs", node.gpus)
            last = sum(node_of(other) == node_of(name) for other in wanted)
            found_there = f"the map needs {last} devices of {node.name}, which has {count} {kind}"
            raise ClusterError(asked, found_there, f"map the roles to devices 0 to {count - 1}, or start Ray with more")
        found.append(Device(name, node, gpu, tuple(roles)))
    return tuple(found)


def reserve(cluster: Cluster, run: str, wanted: Mapping[str, Sequence[str]]) -> Reservation:
    """Hold the devices called ``wanted`` (name -> the roles on it, for the errors) for the run called ``run``.

    Nothing waits for a device that is taken: ClusterError says which role wants it, what there is, and who has it.
    """
    devices = find(cluster, wanted)
    with ExitStack() as undo:
        _lock_files(undo, run, devices)
        groups: dict[str, Any] = {}
        undo.callback(lambda: _remove(groups.values()))
        with _turn(run):
            for node in {device.node.ray_id: device.node for device in devices}.values():
                there = [device for device in devices if device.node.ray_id == node.ray_id]
                _check_free(node, there)
                groups |= _hold(run, node, [device for device in there if device.kind == "CPU"])
                groups |= _hold_exactly(run, node, [device for device in there if device.kind == "GPU"])
        _check_idle(devices)
        return Reservation(devices, groups, undo.pop_all())


# ------------------------------------------------------------ is there enough


def _check_free(node: Node, devices: Sequence[Device]) -> None:
    """Raise ClusterError where a node has too little that is free. A dead driver's share is waited for, for seconds."""
    need: dict[str, float] = {}
    for device in devices:
        for kind, amount in device.wants.items():
            need[kind] = need.get(kind, 0) + amount
    began = time.monotonic()
    while True:
        free = _free(node)
        short = [kind for kind in need if free.get(kind, 0) < need[kind]]
        if not short:
            return
        there = [holder for holder in holders() if node.ray_id in holder.bundles]
        patience = LAG_SECONDS if all(holder.alive for holder in there) else DEATH_SECONDS
        if time.monotonic() - began > patience:
            raise _too_little(node, devices, short[0], need[short[0]], free.get(short[0], 0), there)
        time.sleep(0.1)


def _free(node: Node) -> Mapping[str, float]:
    import ray

    found: Mapping[str, float] = ray._private.state.available_resources_per_node().get(node.ray_id, {})
    return found


def _too_little(node: Node, devices: Sequence[Device], kind: str, need: float, free: float, there: Sequence[Holder]) -> ClusterError:
    wanting = [device for device in devices if kind in device.wants]
    roles = ", ".join(dict.fromkeys(role for device in wanting for role in device.roles)) or "a role"
    total = node.gpus if kind == "GPU" else node.slots
    by = "; ".join(f"{holder} holds {holder.bundles[node.ray_id][kind]:g}" for holder in there if kind in holder.bundles[node.ray_id])
    others = total - free - sum(holder.bundles[node.ray_id].get(kind, 0) for holder in there)
    rest = f"tasks or actors outside placement groups hold {others:g}" if others > 0 else ""
    who = "; ".join(part for part in (by, rest) if part) or "nobody holds any"
    what = "CPU slots" if kind == "CPU" else "GPUs"
    asked = f"{roles} on {', '.join(device.name for device in wanting)}"
    found = f"that takes {need:g} {what} of {node.name}, which has {total}, {free:g} of them free: {who}"
    return ClusterError(asked, found, "close the other run, map the roles to fewer devices, or start Ray with more")


# ------------------------------------------------------------ holding


@contextmanager
def _turn(run: str) -> Iterator[None]:
    """One reservation at a time on a cluster: most of a resource that only the head has, so that there is room for one. Dies with us."""
    from ray.util.placement_group import placement_group

    turn = placement_group([{"node:__internal_head__": 0.6}], name=group_name(run, "turn"))
    try:
        if not turn.wait(TURN_SECONDS):
            other = next((str(holder) for holder in holders() if holder.device == "turn"), "another run")
            raise ClusterError("devices of the cluster", f"{other} has been reserving for {TURN_SECONDS:g} s", "end it, and start again")
        yield
    finally:
        _remove([turn])


def _hold(run: str, node: Node, devices: Sequence[Device]) -> dict[str, Any]:
    """Device -> a placement group on its node, whichever of the node's devices it may hold."""
    from ray.util.placement_group import PlacementGroup, placement_group

    pinned = [{"ray.io/node-id": node.ray_id}]
    groups: dict[str, PlacementGroup] = {
        device.name: placement_group([device.wants], name=group_name(run, device.name), bundle_label_selector=pinned) for device in devices
    }
    for name, group in groups.items():
        if not group.wait(DEATH_SECONDS):
            _remove(groups.values())
            raise ClusterError(f"{name} for run {run!r}", f"{node.name} did not hand it out in {DEATH_SECONDS:g} s", "see `ray status`")
    return groups


def _hold_exactly(run: str, node: Node, devices: Sequence[Device]) -> dict[str, Any]:
    """GPU -> a placement group that holds this very GPU."""
    if not devices:
        return {}
    groups = list(_hold(run, node, devices).values())
    if len(devices) == node.gpus:  # all of them: none can be a wrong one
        return dict(zip([device.name for device in devices], groups, strict=True))
    held: dict[int, Any] = {}
    try:
        held = _positions(node, groups)
        while missing := [device for device in devices if device.gpu.index not in held]:
            if _free(node).get("GPU", 0) < 1:
                raise _taken(run, node, missing[0])
            more = list(_hold(run, node, missing[:1]).values())
            groups += more
            held |= _positions(node, more)
    except BaseException:
        _remove(groups)
        raise
    chosen = {device.name: held[device.gpu.index] for device in devices}
    _remove([group for group in groups if group not in chosen.values()])
    return chosen


def _positions(node: Node, groups: Sequence[Any]) -> dict[int, Any]:
    """Position of a GPU on its node -> the group that holds it."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    task = ray.remote(num_cpus=0, num_gpus=1)(which_gpu)
    answers = [task.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote() for group in groups]
    found = {}
    for group, (id, uuid) in zip(groups, ray.get(answers, timeout=PROBE_SECONDS), strict=True):
        by_uuid = next((gpu.index for gpu in node.topology.gpus if uuid and gpu.uuid == uuid), None)
        found[int(id) if by_uuid is None else by_uuid] = group
    return found


def which_gpu() -> tuple[str, str | None]:
    """What Ray calls the GPU that it gave this task, and its UUID; None where NVML knows none."""
    import ray

    from workbench.topology.detection import Machine, detect

    id = str(ray.get_gpu_ids()[0])
    return id, detect(Machine({**os.environ, "CUDA_VISIBLE_DEVICES": id})).gpus[0].uuid


def _taken(run: str, node: Node, device: Device) -> ClusterError:
    """Somebody has the GPU: the run whose group names it, else whoever has a GPU there."""
    mine = group_name(run, device.name).rpartition(" device=")
    others = [holder for holder in holders() if "GPU" in holder.bundles.get(node.ray_id, {}) and not holder.name.startswith(mine[0] + " ")]
    exact = [holder for holder in others if holder.device and number_of(holder.device) == device.gpu.index]
    who = "; ".join(map(str, exact or others)) or "a task or actor outside placement groups"
    asked = f"{', '.join(device.roles) or 'a role'} on {device.name}"
    return ClusterError(asked, f"{who} holds that GPU", "map the role to another GPU, or close the other run")


def _remove(groups: Iterable[Any]) -> None:
    import ray
    from ray.util.placement_group import remove_placement_group

    if ray.is_initialized():
        for group in list(groups):
            remove_placement_group(group)


# ------------------------------------------------------------ GPUs beside Ray


def _lock_files(undo: ExitStack, run: str, devices: Iterable[Device]) -> None:
    """Claim this machine's GPUs among all the Rays on it: one lock a GPU, which Linux takes back when the process ends."""
    for device in devices:
        if device.node.driver and device.gpu.uuid:
            undo.enter_context(_locked(device, run))


@contextmanager
def _locked(device: Device, run: str) -> Iterator[None]:
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


def _check_idle(devices: Iterable[Device]) -> None:
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


def _occupied(device: Device, there: Sequence[Any]) -> ClusterError:
    mine = device.node.driver and any(occupant.pid == os.getpid() for occupant in there)
    who = "; ".join(f"{occupant}{' (this kernel itself)' if occupant.pid == os.getpid() and mine else ''}" for occupant in there)
    fix = "restart the kernel, or delete its tensors" if mine else "end that process, or map the role to another GPU"
    return ClusterError(f"{', '.join(device.roles) or 'a role'} on {device.name}", who, fix)
