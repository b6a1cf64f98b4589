"""Can the weights fit at all? A lower bound: weights, adapters, gradients and optimizer; no activations, no KV cache."""

from collections.abc import Iterator, Mapping
from typing import Any

from workbench.findings import Finding, Fix, finding
from workbench.mapping.checks.question import Question, changed, listed
from workbench.mapping.placement import Placement
from workbench.mapping.shapes import ModelShape
from workbench.roles import Role

GIB = 2**30
WEIGHT = 2  # bytes of a parameter in bfloat16
# Bytes of a parameter that trains: bf16 copy (an adapter's; the whole model's is counted as weight), fp32 master, gradient, two of Adam.
ADAPTER, WHOLE = 2 + 4 + 4 + 8, 4 + 4 + 8
USABLE = 0.95  # of a GPU's memory; the rest is the CUDA context


def too_large(q: Question) -> Iterator[Finding]:
    """WB501: more than a GPU holds, before the first activation."""
    over = _overfull(q)
    if not over or q.shape is None:
        return
    device, (parts, size) = max(over.items(), key=lambda item: sum(item[1][0].values()) / item[1][1])
    needed = sum(parts.values())
    listing = ", ".join(f"{what} {gib:.1f}" for what, gib in parts.items())
    role = max(parts, key=lambda what: parts[what]).split(" ")[0]
    found = f"{device} would hold {needed:.1f} GiB of weights and optimizer ({listing}), and has {size:.0f} GiB"
    yield finding("WB501", role, f"{q.shape.name} on {listed(over)}", found, _smaller(q))


def _overfull(q: Question) -> dict[str, tuple[dict[str, float], float]]:
    """Device -> what it would hold in GiB, and its memory; for those that hold too much."""
    found = {}
    if q.topology is None or q.shape is None:
        return {}
    for gpu in q.topology.gpus:
        parts = held(q, gpu.id) if gpu.memory_gib is not None else {}
        if gpu.memory_gib is not None and sum(parts.values()) > USABLE * gpu.memory_gib:
            found[gpu.id] = (parts, gpu.memory_gib)
    return found


def held(q: Question, device: str) -> dict[str, float]:
    """What a device holds at least, in GiB, by what it is: "actor weights", "rollout weights"."""
    if q.shape is None:
        return {}
    found: dict[str, float] = {}
    for role in (Role.ACTOR, Role.CRITIC, Role.REFERENCE, Role.ROLLOUT):
        if device in q.named(role) and role in q.places:
            for what, size in _parts(q, role, q.shape).items():
                found[f"{role} {what}"] = size / GIB
    return {what: size for what, size in found.items() if size > 0}


def _parts(q: Question, role: Role, shape: ModelShape) -> dict[str, float]:
    """Bytes on one device of a role."""
    place = q.places[role]
    host = q.placed.get(Role.ACTOR, place) if place.share else place
    split = len(host.devices) if host.layout == "fsdp" else host.tp
    whole = shape.parameters / max(1, split)
    trains = role in (Role.ACTOR, Role.CRITIC)
    if role is Role.ROLLOUT:
        return {"weights": 0.0 if q.resolved[role].mode == "zero_copy" else WEIGHT * whole}
    own = 0.0 if place.share and (q.lora or role is Role.REFERENCE) else WEIGHT * whole
    if place.share and role is Role.REFERENCE and not q.lora:
        own = WEIGHT * whole  # the frozen copy of a policy that trains whole
    adapters = ADAPTER * shape.lora_parameters(q.rank) / max(1, split)
    return {"weights": own, "optimizer": (adapters if q.lora else WHOLE * whole) if trains else 0.0}


def _smaller(q: Question) -> Fix:
    """The first change of the map with which it fits."""
    for text, patch in _candidates(q):
        if not _overfull(q.with_map(patch)):
            return Fix(text, patch)
    return Fix("no change of this map makes it fit: use more GPUs, a smaller model, or a quantized base")


def _candidates(q: Question) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Changes that save memory, the least first, alone and added up."""
    added: dict[str, Any] = {}
    for text, patch in _savings(q):
        yield text, patch
        added |= patch
        yield "several changes: " + ", ".join(f"{role}: {Placement(**_plain(value))}" for role, value in added.items()), dict(added)


def _plain(value: Mapping[str, Any]) -> dict[str, Any]:
    """A patch's placement with its devices as text."""
    devices = value.get("devices", ())
    listed_ = ("cpu",) if devices == "cpu" else tuple(str(device) for device in devices)
    return dict(value) | {"devices": listed_}


def _savings(q: Question) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for role in (Role.REFERENCE, Role.CRITIC):
        if q.lora and role in q.placed:
            yield f"write {role}: share:actor", {str(role): {"share": "actor"}}
    actor, rollout = q.placed.get(Role.ACTOR), q.placed.get(Role.ROLLOUT)
    if actor and rollout and q.lora and actor.devices == rollout.devices and (actor.layout, actor.tp, rollout.tp) == ("ddp", 1, 1):
        yield "share one base with the engine: mode zero_copy", changed(Role.ROLLOUT, rollout, "", mode="zero_copy").patch or {}
    for role in (Role.ACTOR, Role.CRITIC):
        place = q.placed.get(role)
        if place and len(place.devices) > 1 and place.layout == "ddp" and place.tp == 1:
            yield f"shard the {role}: layout fsdp", changed(role, place, "", layout="fsdp", dp=None).patch or {}
    if rollout and q.shape is not None:
        for tp in range(rollout.tp + 1, len(rollout.devices) + 1):
            if len(rollout.devices) % tp == 0 and q.shape.heads % tp == 0 and (q.shape.kv_heads % tp == 0 or tp % q.shape.kv_heads == 0):
                yield f"split the engine: tp {tp}", changed(Role.ROLLOUT, rollout, "", tp=tp, dp=None, mode="auto").patch or {}
