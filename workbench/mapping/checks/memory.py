"""Can the weights fit at all? A lower bound: weights, adapters, gradients and optimizer; no activations, no KV cache."""

from collections.abc import Callable, Iterator, Mapping

from workbench.findings import Finding, Fix, finding
from workbench.mapping.checks.layouts import can_split
from workbench.mapping.checks.question import Question, as_patch, relaid, resized, whole_groups
from workbench.mapping.devices import spans
from workbench.mapping.placement import Placement
from workbench.mapping.shapes import ModelShape
from workbench.roles import Role

GIB = 2**30
# Bytes of a parameter in mixed precision with Adam (ZeRO, arXiv 1910.02054, section 3.1): its copy in bfloat16; and where it trains,
# the gradient beside it, and in float32 the master weight and two moments.
WEIGHT, TRAINING = 2, 2 + 4 + 4 + 4
LISTED = 0.05  # GiB from which on a part is worth a word
USABLE = 0.95  # of a GPU's memory; the rest is the CUDA context
SHARING = (Role.REFERENCE, Role.CRITIC)
Places = Mapping[Role, Placement]
Change = tuple[str, Places]  # what to write, in words and as placements
Step = Callable[[Question], Iterator[Change]]
Parts = dict[str, float]  # "actor weights" -> GiB


def too_large(q: Question) -> Iterator[Finding]:
    """WB501: more than a GPU holds, before the first activation."""
    over = overfull(q)
    if not over or q.shape is None:
        return
    parts, size = max(over.values(), key=lambda one: sum(one[0].values()) / one[1])
    listing = ", ".join(f"{what} {gib:.1f}" for what, gib in parts.items())
    role = max(parts, key=lambda what: parts[what]).split(" ")[0]
    same = tuple(one for one, (other, _) in over.items() if other == parts)
    each = " each" if len(same) > 1 else ""
    held_there = f"{spans(same)} would hold {sum(parts.values()):.1f} GiB{each} before the first activation ({listing})"
    has = f"{'have' if each else 'has'} {size:.1f} GiB{each}, of which {USABLE * size:.1f} can be used"
    fix = Fix("make it smaller") if q.brief else _smaller(q)
    yield finding("WB501", role, f"{q.shape.name} on {spans(tuple(over))}", f"{held_there}, and {has}", fix)


def unknown(q: Question) -> Iterator[Finding]:
    """WB502: GPUs with a model whose memory nobody told, so that it was not checked."""
    if q.shape is None or q.topology is None or q.topology.is_cpu:
        return
    lacking = tuple(d for d in _held(q, q.shape) if (gpu := q.topology.find(d)) is not None and gpu.memory_gib is None)
    if lacking:
        fix = "tell it: --memory 80, topology.with_memory(80), or the output of nvidia-smi -L beside the matrix"
        yield finding("WB502", "", f"{q.shape.name} on {spans(lacking)}", "their memory is not known: whether it fits was not checked", fix)


def budget(q: Question) -> list[str]:
    """What each GPU holds at least, and of how much, in a line for all that are alike. Empty without a model or GPUs."""
    if q.topology is not None and q.topology.is_cpu:
        return []
    groups: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for device, parts in (_held(q, q.shape) if q.shape is not None and q.topology is not None else {}).items():
        groups.setdefault(tuple(parts.items()), []).append(device)
    lines = []
    for parts_, devices in groups.items():
        gpu = q.topology.find(devices[0]) if q.topology else None
        of = f"of {gpu.memory_gib:.1f} GiB" if gpu is not None and gpu.memory_gib is not None else "GiB, of memory not known"
        listing = ", ".join(f"{what} {size:.1f}" for what, size in parts_ if size >= LISTED)
        lines.append(f"{spans(tuple(devices))}: {sum(size for _, size in parts_):.1f} {of} ({listing})")
    return lines


def overfull(q: Question) -> dict[str, tuple[Parts, float]]:
    """Device -> what it would hold in GiB, and its memory; for those that hold too much."""
    found = {}
    if q.topology is None or q.shape is None:
        return {}
    for device, parts in _held(q, q.shape).items():
        gpu = q.topology.find(device)
        if gpu is not None and gpu.memory_gib is not None and sum(parts.values()) > USABLE * gpu.memory_gib:
            found[device] = (parts, gpu.memory_gib)
    return found


def held(q: Question, device: str) -> Parts:
    """What a device holds at least, in GiB, by what it is: "actor weights", "rollout weights"."""
    return {} if q.shape is None else _held(q, q.shape).get(device, {})


def _held(q: Question, shape: ModelShape) -> dict[str, Parts]:
    found: dict[str, Parts] = {}
    for role in (Role.ACTOR, Role.CRITIC, Role.REFERENCE, Role.ROLLOUT):
        if role in q.places:
            parts = {f"{role} {what}": size / GIB for what, size in _parts(q, role, shape).items() if size}
            for device in q.named(role):
                found[device] = found.get(device, {}) | parts
    return found


def _parts(q: Question, role: Role, shape: ModelShape) -> dict[str, float]:
    """Bytes on one device of a role."""
    place = q.places[role]
    host = q.placed.get(Role.ACTOR, place) if place.share else place
    split = max(1, len(host.devices) if host.layout == "fsdp" else host.tp)
    headless = role is Role.CRITIC and not shape.tied  # it ends in one number, not in the vocabulary
    whole = (shape.parameters - headless * shape.vocabulary * shape.hidden) / split
    if role is Role.ROLLOUT:
        return {"weights": 0.0 if q.resolved[role].mode == "zero_copy" else WEIGHT * whole}
    trained = whole if not q.lora else shape.lora_parameters(q.rank) / split
    parts = {"weights": 0.0 if place.share and q.lora else WEIGHT * whole}  # a policy that trains whole leaves a frozen copy as reference
    if role is Role.REFERENCE:
        return parts
    return parts | ({"adapter and its optimizer": (WEIGHT + TRAINING) * trained} if q.lora else {"optimizer": TRAINING * trained})


def _smaller(q: Question) -> Fix:
    """The first change of the map with which it fits, the least first."""
    for plan in PLANS:
        said, places, fits = _carried_out(q, plan)
        if places and fits:
            unasked = _widen in plan and not q.means_all  # most of the machine is left out, and probably for somebody else
            return Fix("; ".join(said), None if unasked else as_patch(places))
    rest = "a smaller model, or a quantized base" if q.lora else "LoRA, or a smaller model"
    return Fix(f"no change of this map makes it fit: use more GPUs, {rest}")


def _carried_out(q: Question, plan: tuple[Step, ...]) -> tuple[list[str], dict[Role, Placement], bool]:
    """What a plan's steps write, one after the other, and whether it fits then."""
    said, places, fits = list[str](), dict[Role, Placement](), False
    for step in plan:
        tried = _first_that_fits(q, step)
        if tried is not None:
            (text, change), q, fits = tried
            said, places = [*said, text], places | dict(change)
    return said, places, fits


def _first_that_fits(q: Question, step: Step) -> tuple[Change, Question, bool] | None:
    """Of a step's changes the first with which the map fits, else the last, with the map after it; None where it has none."""
    tried = None
    for change in step(q):
        after = q.trying(change[1])
        tried = change, after, not overfull(after)
        if tried[2]:
            break
    return tried


def _share(q: Question) -> Iterator[Change]:
    share = Placement(share="actor")
    yield from _each_then_all([(f"write {role}: share:actor", {role: share}) for role in SHARING if q.lora and role in q.placed])


def _each_then_all(changes: list[Change]) -> Iterator[Change]:
    yield from changes
    if len(changes) > 1:
        yield "; ".join(text for text, _ in changes), {role: place for _, places in changes for role, place in places.items()}


def _one_base(q: Question) -> Iterator[Change]:
    actor, rollout = q.placed.get(Role.ACTOR), q.placed.get(Role.ROLLOUT)
    whole = actor and rollout and (actor.layout, actor.tp, rollout.tp) == ("ddp", 1, 1)
    if rollout and whole and q.lora and q.named(Role.ACTOR) == q.named(Role.ROLLOUT):
        yield "share one base with the engine: mode zero_copy", {Role.ROLLOUT: rollout.model_copy(update={"mode": "zero_copy"})}


def _widen(q: Question) -> Iterator[Change]:
    actor = q.placed.get(Role.ACTOR)
    if actor and q.idle and q.topology is not None:
        members = {*q.named(Role.ACTOR), *q.idle}
        devices = whole_groups(actor, q.written(device for device in q.topology.ids if device in members))
        moved = {role: relaid(q.placed[role], devices) for role in q.together(Role.ACTOR)}
        yield f"give the {' and the '.join(moved)} {spans(devices)}", moved


def _shard(q: Question) -> Iterator[Change]:
    wide = {role: q.placed[role] for role in (Role.ACTOR, *SHARING) if role in q.placed and len(q.placed[role].devices) > 1}
    whole = {role: place for role, place in wide.items() if place.layout == "ddp" and place.tp == 1}
    sharded = {role: place.model_copy(update={"layout": "fsdp", "dp": None}) for role, place in whole.items()}
    yield from _each_then_all([(f"shard the {role}: layout fsdp", {role: place}) for role, place in sharded.items()])


def _split_engine(q: Question) -> Iterator[Change]:
    rollout = q.placed.get(Role.ROLLOUT)
    for tp in range(rollout.tp + 1, len(rollout.devices) + 1) if rollout else ():
        if rollout and len(rollout.devices) % tp == 0 and can_split(q, tp, Role.ROLLOUT):
            yield f"split the engine: tp {tp}", {Role.ROLLOUT: resized(rollout, tp, mode="auto")}


PLANS: tuple[tuple[Step, ...], ...] = (
    *((_share,), (_one_base,), (_shard,), (_split_engine,)),
    *((_share, _one_base), (_shard, _split_engine), (_share, _shard, _split_engine)),
    *((_widen,), (_widen, _shard, _split_engine), (_share, _widen, _shard, _split_engine)),
)
