"""Devices for one run alone: a placement group for each, on its node, holding that very GPU.

Nothing waits for a device that is taken. Everything ends with the driver: placement groups with its job, locks with its process.
"""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import ClusterError
from workbench.mapping.devices import node_of, number_of
from workbench.runtime.alone import check_idle, locked
from workbench.runtime.bundles import DEATH_SECONDS, free, hold, hold_exactly, remove, turn
from workbench.runtime.cluster import Cluster
from workbench.runtime.holders import Holder, holders
from workbench.runtime.nodes import Device, Node
from workbench.topology.devices import GPU

LAG_SECONDS = 2.0  # until Ray's count is right after a release


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
    _check_once(found)
    return tuple(found)


def _check_once(devices: Sequence[Device]) -> None:
    """Raise ClusterError where a map calls one device by two names."""
    seen: dict[tuple[str, int], str] = {}
    for device in devices:
        other = seen.setdefault((device.node.ray_id, device.gpu.index), device.name)
        if other != device.name:
            found = f"they are one device, since this process is on {device.node.name}"
            raise ClusterError(f"{other} and {device.name}", found, f"write {other} for both")


def reserve(cluster: Cluster, run: str, wanted: Mapping[str, Sequence[str]]) -> Reservation:
    """Hold the devices called ``wanted`` (name -> the roles on it, for the errors) for the run called ``run``.

    Nothing waits for a device that is taken: ClusterError says which role wants it, what there is, and who has it.
    """
    devices = find(cluster, wanted)
    with ExitStack() as undo:
        for device in devices:
            undo.enter_context(locked(device, run))
        groups: dict[str, Any] = {}
        undo.callback(lambda: remove(groups.values()))
        with turn(run):
            for node in {device.node.ray_id: device.node for device in devices}.values():
                there = [device for device in devices if device.node.ray_id == node.ray_id]
                _check_free(node, there)
                groups |= hold(run, node, [device for device in there if device.kind == "CPU"])
                groups |= hold_exactly(run, node, [device for device in there if device.kind == "GPU"])
        check_idle(devices)
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
        there_is = free(node)
        short = [kind for kind in need if there_is.get(kind, 0) < need[kind]]
        if not short:
            return
        there = [holder for holder in holders() if node.ray_id in holder.bundles]
        patience = LAG_SECONDS if all(holder.alive for holder in there) else DEATH_SECONDS
        if time.monotonic() - began > patience:
            raise _too_little(node, devices, short[0], need[short[0]], there_is.get(short[0], 0), there)
        time.sleep(0.1)


def _too_little(node: Node, devices: Sequence[Device], kind: str, need: float, left: float, there: Sequence[Holder]) -> ClusterError:
    wanting = [device for device in devices if kind in device.wants]
    roles = ", ".join(dict.fromkeys(role for device in wanting for role in device.roles)) or "a role"
    total = node.gpus if kind == "GPU" else node.slots
    by = "; ".join(f"{holder} holds {holder.bundles[node.ray_id][kind]:g}" for holder in there if kind in holder.bundles[node.ray_id])
    others = total - left - sum(holder.bundles[node.ray_id].get(kind, 0) for holder in there)
    rest = f"tasks or actors outside placement groups hold {others:g}" if others > 0 else ""
    who = "; ".join(part for part in (by, rest) if part) or "nobody holds any"
    what = "CPU slots" if kind == "CPU" else "GPUs"
    asked = f"{roles} on {', '.join(device.name for device in wanting)}"
    found = f"that takes {need:g} {what} of {node.name}, which has {total}, {left:g} of them free: {who}"
    return ClusterError(asked, found, "close the other run, map the roles to fewer devices, or start Ray with more")
