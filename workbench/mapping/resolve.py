"""What a map comes to on a machine: every role's devices by name, its sizes, and how the engine gets its weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from workbench.mapping.devices import node_of
from workbench.mapping.placement import Placement
from workbench.roles import Role
from workbench.topology import Topology

if TYPE_CHECKING:
    from workbench.mapping.device_map import DeviceMap
    from workbench.mapping.model_shape import ModelShape

COMFORT = 0.7  # of a GPU's memory: two copies of the weights beyond it leave no room for KV cache and activations


@dataclass(frozen=True)
class Resolved:
    """One role on a machine. ``devices``: "local:0", "cpu:0"; of a role that shares, those of its host; of a service none.

    ``layout``: "ddp", "fsdp", "tp=2". ``mode``: how the engine gets the weights (rollout only). ``residency``: "hybrid" where the weights
    may change their layout between phases, else "static". Why the mode is so says ``choose_mode``.
    """

    devices: tuple[str, ...]
    layout: str
    tp: int
    dp: int
    share: str | None
    mode: str | None
    residency: Literal["hybrid", "static"]
    url: str | None


def name_device(device: str, topology: Topology | None) -> str:
    """A map's device as files and events name it: "3" is "local:3", on CPU slots "cpu:3", on the only node of a topology its own.

    Of several nodes a bare "3" names none: it stays as it is (a check tells).
    """
    if device == "cpu":
        return "cpu:0"
    if node_of(device) or (topology is not None and len(topology.nodes) > 1):
        return device
    if topology is not None and len(topology.nodes) == 1:
        gpu = topology.find(device)
        return gpu.id if gpu else f"{'cpu' if topology.is_cpu else topology.nodes[0]}:{device}"
    return f"local:{device}"


def named(devices: "DeviceMap", role: Role, topology: Topology | None = None) -> tuple[str, ...]:
    """The devices of a role by name, those of the role it shares with included: "local:0", "cpu:0"."""
    return tuple(name_device(device, topology) for device in devices.devices_of(role))


def same_devices(devices: "DeviceMap", a: Role, b: Role, topology: Topology | None = None) -> bool:
    """Whether two roles have the same devices, and any: "0" and "local:0" are one device by two names."""
    first, second = named(devices, a, topology), named(devices, b, topology)
    return bool(first) and set(first) == set(second)


def resolve(
    devices: "DeviceMap", topology: Topology | None = None, *, lora: bool = True, shape: "ModelShape | None" = None
) -> dict[Role, Resolved]:
    """Role -> what it comes to. ``lora``: adapters are trained; else the whole model (mode "full"). ``shape``: of the model."""
    found = {}
    for role, place in devices.places.items():
        host = _host(devices.places, role)
        found_devices = named(devices, role, topology)
        mode = choose_mode(devices, topology, lora, shape)[0] if role is Role.ROLLOUT else None
        found[role] = Resolved(
            devices=found_devices,
            layout=host.layout_name,
            tp=host.tp,
            dp=host.dp or max(1, len(found_devices) // host.tp),
            share=place.share or None,
            mode=mode,
            residency=_residency(devices, role, topology),
            url=place.url or None,
        )
    return found


def _host(places: Mapping[Role, Placement], role: Role) -> Placement:
    """The placement whose devices a role uses: its own, or that of the role it shares with."""
    place = places[role]
    host = places.get(Role(place.share)) if place.share in list(Role) else None
    return host or place


def needs_resharding(devices: "DeviceMap", topology: Topology | None = None) -> bool:
    """Whether actor and rollout take turns on the same devices and lay the model out differently."""
    actor, rollout = devices.places.get(Role.ACTOR), devices.places.get(Role.ROLLOUT)
    if actor is None or rollout is None or not same_devices(devices, Role.ACTOR, Role.ROLLOUT, topology):
        return False
    return (actor.layout, actor.tp) != (rollout.layout, rollout.tp)


def _residency(devices: "DeviceMap", role: Role, topology: Topology | None) -> Literal["hybrid", "static"]:
    """As written; else hybrid for an actor and a rollout that take turns on the same devices."""
    asked = devices.places[role].placement_policy
    if asked:
        return asked
    turns = role in (Role.ACTOR, Role.ROLLOUT) and same_devices(devices, Role.ACTOR, Role.ROLLOUT, topology)
    return "hybrid" if turns else "static"


def choose_mode(devices: "DeviceMap", topology: Topology | None, lora: bool, shape: "ModelShape | None") -> tuple[str, str]:
    """How the engine gets the weights, and why (docs/maps.md: modes)."""
    rollout, actor = devices.places[Role.ROLLOUT], devices.places.get(Role.ACTOR)
    if rollout.mode != "auto":
        return rollout.mode, "as the map says"
    if not lora:
        return "full", "no LoRA: every weight changes"
    if actor is None or not same_devices(devices, Role.ACTOR, Role.ROLLOUT, topology):
        return "adapter", "the engine is on other devices than the actor: only the adapter travels"
    if actor.on_cpu or (topology is not None and topology.is_cpu):
        return "adapter", "engines on a CPU keep a packed copy of their own"
    alike = actor.layout == "ddp" and actor.tp == rollout.tp == 1
    least = _least_memory(devices, topology)
    if alike and shape is not None and least is not None and 2 * shape.weights_gib() > COMFORT * least:
        found = f"a second copy of {shape.weights_gib():.1f} GiB would leave too little of {least:.0f} GiB"
        return "zero_copy", f"same devices as the actor, and memory is tight: {found}"
    return "merged", "same devices as the actor: the engine's copy is rewritten in place and decodes at full speed"


def _least_memory(devices: "DeviceMap", topology: Topology | None) -> float | None:
    """GiB of the smallest GPU of the actor; None where not known."""
    if topology is None:
        return None
    gpus = [topology.find(device) for device in named(devices, Role.ACTOR, topology)]
    sizes = [gpu.memory_gib for gpu in gpus if gpu is not None and gpu.memory_gib is not None]
    return min(sizes, default=None)
