"""Placement groups that hold the very GPUs that a run wants.

Ray chooses which GPU of a node a bundle gets, and never says. So bundles are taken until the wanted GPUs are among theirs, each
asked by a task that runs in it, and the others are given back. Reservations on one cluster take turns, or two of them could hold
what the other wants.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from workbench.errors import ClusterError
from workbench.mapping.devices import number_of
from workbench.runtime.holders import group_name, holders
from workbench.runtime.nodes import PROBE_SECONDS, Device, Node, visible_to_raylet
from workbench.topology.detection import Machine, detect

DEATH_SECONDS = 15.0  # until Ray has noticed a dead driver
TURN_SECONDS = 120.0  # for another run to finish reserving


def free(node: Node) -> Mapping[str, float]:
    """What of a node's resources nobody holds, as Ray counts them now: {"CPU": 4.0, "GPU": 2.0}."""
    import ray

    found: Mapping[str, float] = ray._private.state.available_resources_per_node().get(node.ray_id, {})
    return found


@contextmanager
def turn(run: str) -> Iterator[None]:
    """One reservation at a time on a cluster: most of a resource that only the head has, so that there is room for one. Dies with us."""
    from ray.util.placement_group import placement_group

    mine = placement_group([{"node:__internal_head__": 0.6}], name=group_name(run, ["turn"]))
    try:
        if not mine.wait(TURN_SECONDS):
            other = next((str(holder) for holder in holders() if holder.devices == ("turn",)), "another run")
            raise ClusterError("devices of the cluster", f"{other} has been reserving for {TURN_SECONDS:g} s", "end it, and start again")
        yield
    finally:
        remove([mine])


def hold(run: str, node: Node, devices: Sequence[Device]) -> dict[str, Any]:
    """Device -> a placement group on its node, whichever of the node's devices it may hold."""
    groups = _take(run, node, devices, len(devices))
    return {device.name: group for device, group in zip(devices, groups, strict=True)}


def _take(run: str, node: Node, devices: Sequence[Device], count: int) -> list[Any]:
    """``count`` placement groups on a node; their names say which devices they are for."""
    from ray.util.placement_group import placement_group

    names, pinned = [device.name for device in devices], [{"ray.io/node-id": node.ray_id}]
    groups = [placement_group([devices[0].wants], name=group_name(run, names), bundle_label_selector=pinned) for _ in range(count)]
    for group in groups:
        if not group.wait(DEATH_SECONDS):
            remove(groups)
            asked = f"{', '.join(names)} for run {run!r}"
            raise ClusterError(asked, f"{node.name} did not hand it out in {DEATH_SECONDS:g} s", "see `ray status`")
    return groups


def hold_exactly(run: str, node: Node, devices: Sequence[Device]) -> dict[str, Any]:
    """GPU -> a placement group that holds this very GPU."""
    free_now = int(free(node).get("GPU", 0)) if devices else 0
    # Ray gives the lowest numbers first, so this many mostly hold them all: one round of questions.
    likely = max((device.gpu.index + 1 for device in devices), default=0)
    groups = _take(run, node, devices, max(len(devices), min(likely, free_now)))
    if len(devices) == node.gpus:  # all of them: none can be a wrong one
        return {device.name: group for device, group in zip(devices, groups, strict=True)}
    try:
        held = _positions(node, groups)
        while missing := [device for device in devices if device.gpu.index not in held]:
            if free(node).get("GPU", 0) < 1:
                raise _taken(node, missing[0], groups)
            groups += _take(run, node, devices, 1)
            held |= _positions(node, groups[-1:])
    except BaseException:
        remove(groups)
        raise
    chosen = {device.name: held[device.gpu.index] for device in devices}
    remove([group for group in groups if group not in chosen.values()])
    return chosen


def _positions(node: Node, groups: Sequence[Any]) -> dict[int, Any]:
    """Position of a GPU on its node -> the group that holds it."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    task = ray.remote(num_cpus=0, num_gpus=1, max_calls=0)(which_gpu)  # it leaves no trace on a GPU: its process may live on
    answers = [task.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, 0)).remote() for group in groups]
    found = {}
    for group, (id, uuid) in zip(groups, ray.get(answers, timeout=PROBE_SECONDS), strict=True):
        by_uuid = next((gpu.index for gpu in node.topology.gpus if uuid and gpu.uuid == uuid), None)
        found[int(id) if by_uuid is None else by_uuid] = group
    return found


def which_gpu() -> tuple[str, str | None]:
    """What Ray calls the GPU that it gave this task, and its UUID; None where NVML knows none."""
    import ray

    id = str(ray.get_gpu_ids()[0])
    uuid = detect(Machine(visible_to_raylet(id))).gpus[0].uuid
    # Ray has written the variable for this task, and would leave it to the next one of this process.
    before = visible_to_raylet().get("CUDA_VISIBLE_DEVICES")
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)
    if before is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = before
    return id, uuid


def _taken(node: Node, device: Device, ours: Sequence[Any]) -> ClusterError:
    """Somebody has the GPU: the run whose group names it, else whoever has a GPU there."""
    there = [holder for holder in holders() if "GPU" in holder.bundles.get(node.ray_id, {})]
    others = [holder for holder in there if holder.id not in {group.id.hex() for group in ours}]
    exact = [holder for holder in others if device.gpu.index in map(number_of, holder.devices)]
    who = "; ".join(map(str, exact or others)) or "a task or actor outside placement groups"
    asked = f"{', '.join(device.roles) or 'a role'} on {device.name}"
    return ClusterError(asked, f"{who} holds that GPU", "map the role to another GPU, or close the other run")


def remove(groups: Iterable[Any]) -> None:
    """Give groups back; what still runs in them ends."""
    import ray
    from ray.util.placement_group import remove_placement_group

    if ray.is_initialized():
        for group in list(groups):
            remove_placement_group(group)
