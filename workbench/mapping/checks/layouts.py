"""Do the sizes fit the group and the model, and can the role be laid out so?"""

from collections.abc import Iterator

from workbench.findings import Finding, Fix, finding
from workbench.mapping.checks.question import TRAINED, Question, as_patch, changed, counted, resized
from workbench.mapping.placement import Placement
from workbench.mapping.resolve import needs_resharding
from workbench.mapping.shapes import ModelShape
from workbench.roles import Role

MODELLED = (Role.ACTOR, Role.CRITIC, Role.ROLLOUT, Role.REFERENCE)  # roles whose model has the actor's shape


def group_size(q: Question) -> Iterator[Finding]:
    """WB204, WB205: tp divides the group, and tp x dp is the group."""
    for role, place in q.placed.items():
        count = len(place.devices)
        if count % place.tp:
            fix = smaller(q, role, f", or name a multiple of {place.tp} devices")
            found = f"groups of {place.tp} can't be made of {counted(count, 'device')}"
            yield finding("WB204", role, f"{role}: {place}", found, fix)
        elif place.dp is not None and place.tp * place.dp != count:
            found = f"tp {place.tp} x dp {place.dp} is {place.tp * place.dp}, and the group has {counted(count, 'device')}"
            fix = Fix(f"write dp: {count // place.tp}, or leave it out", as_patch({role: resized(place, place.tp)}))
            yield finding("WB205", role, f"{role}: {place}", found, fix)


def model_sizes(q: Question) -> Iterator[Finding]:
    """WB201, WB202, WB203: tp divides the heads, the key-value heads and the vocabulary."""
    for role in MODELLED:
        place = q.placed.get(role)
        if place is None or q.shape is None or place.tp == 1:
            continue
        for code, found in _misfits(q.shape, place.tp, role):
            asked = f"{role}: tp {place.tp} of {q.shape.name}"
            if code == "WB203" and role is Role.ROLLOUT:
                yield finding(code, role, asked, found, "nothing has to be done", "info")
            else:
                yield finding(code, role, asked, found, smaller(q, role))


def smaller(q: Question, role: Role, more: str = "") -> Fix:
    """The largest smaller tp that divides the group, and that the model can be split by. The same one for every finding."""
    place = q.placed[role]
    size = max(n for n in range(1, place.tp) if len(place.devices) % n == 0 and can_split(q, n, role))
    return Fix(f"write tp: {size}{more}", as_patch({role: resized(place, size)}))


def can_split(q: Question, tp: int, role: Role) -> bool:
    """Whether the model of a role splits ``tp`` ways. That an engine pads the vocabulary is no harm."""
    if q.shape is None or role not in MODELLED:
        return True
    return not any(code != "WB203" or role is not Role.ROLLOUT for code, _ in _misfits(q.shape, tp, role))


def _misfits(shape: ModelShape, tp: int, role: Role) -> Iterator[tuple[str, str]]:
    """What of a model does not split ``tp`` ways. The engine copies key-value heads where it has more ranks than heads."""
    if shape.heads % tp:
        yield "WB201", f"{counted(shape.heads, 'attention head')} can't be split {tp} ways"
    copied = role is Role.ROLLOUT and tp > shape.kv_heads and tp % shape.kv_heads == 0
    if shape.kv_heads % tp and not copied:
        heads = counted(shape.kv_heads, "key-value head")
        yield "WB202", f"{heads} can't be split {tp} ways" + (" or copied evenly" if role is Role.ROLLOUT else "")
    if shape.vocabulary % tp:
        engine, trainer = "the engine pads it, which costs nothing to speak of", "the trainer keeps the embedding whole on every rank"
        how = engine if role is Role.ROLLOUT else trainer
        yield "WB203", f"a vocabulary of {shape.vocabulary} can't be split {tp} ways: {how}"


def possible(q: Question) -> Iterator[Finding]:
    """WB206: a layout that the role can't have."""
    for role, place in q.placed.items():
        asked = f"{role}: {place}"
        if place.layout == "fsdp" and role is Role.ROLLOUT:
            fix = changed(role, place, "leave fsdp out; tp2 splits a model over two", layout="ddp", sharding_strategy=None)
            yield finding("WB206", role, asked, "the engine splits a model by tensor parallelism", fix)
        elif place.layout == "fsdp" and len(place.devices) == 1:
            fix = changed(role, place, "leave the layout out", layout="ddp", sharding_strategy=None)
            yield finding("WB206", role, asked, "fsdp shards a model over several devices, and this is one", fix)
        elif place.layout == "fsdp" and place.tp > 1:
            fix = changed(role, place, "write one of them", tp=1, dp=None)
            yield finding("WB206", role, asked, "fsdp and tp at once are not supported", fix)
        elif place.sharding_strategy and place.layout != "fsdp":
            fix = changed(role, place, "write layout: fsdp beside it", layout="fsdp")
            yield finding("WB206", role, f"{asked}, {place.sharding_strategy}", "it is a way of fsdp, and the layout is another", fix)


def static(q: Question) -> Iterator[Finding]:
    """WB207: weights that may not be resharded, where the map needs it."""
    if not needs_resharding(q.devices, q.topology):
        return
    for role in (Role.ACTOR, Role.ROLLOUT):
        place = q.places[role]
        if place.placement_policy == "static":
            actor, rollout = q.resolved[Role.ACTOR].layout, q.resolved[Role.ROLLOUT].layout
            found = f"the actor trains as {actor} and the engine samples as {rollout} on the same devices: weights are resharded every step"
            fix = changed(role, place, "write placement_policy: hybrid, give both one layout, or devices apart", placement_policy="hybrid")
            yield finding("WB207", role, f"{role}: placement_policy static", found, fix)


def sync_mode(q: Question) -> Iterator[Finding]:
    """WB208: a way of getting weights into the engine that the map rules out."""
    for role, place in q.places.items():
        reason = _against(q, place) if role is Role.ROLLOUT else "only the rollout's engine gets weights" if place.mode != "auto" else ""
        if reason:
            fix = changed(role, place, "leave the mode out: auto finds one", mode="auto")
            yield finding("WB208", role, f"{role}: mode {place.mode}", reason, fix)


def _against(q: Question, rollout: Placement) -> str:
    """Why the rollout's mode can't be; "" where it can."""
    actor = q.placed.get(Role.ACTOR)
    apart = actor is None or set(q.named(Role.ACTOR)) != set(q.named(Role.ROLLOUT))
    if rollout.mode in ("zero_copy", "merged") and apart:
        return "actor and engine share no devices: there is no storage to share, nor a frozen base to rewrite from"
    if rollout.mode == "zero_copy" and actor is not None and (actor.layout, actor.tp) != ("ddp", rollout.tp):
        return "one storage serves both only where both lie alike: the actor not fsdp, and the same tp on both sides"
    if rollout.mode == "zero_copy" and not q.lora:
        return "without LoRA the trainer writes to the very weights that the engine samples from"
    if rollout.mode in ("adapter", "merged") and not q.lora:
        return "there is no adapter without LoRA: every weight changes"
    return ""


def gradients(q: Question) -> Iterator[Finding]:
    """WB209: a role that trains on several devices, with no group to average its gradients."""
    for role in TRAINED:
        place, count = q.places.get(role), len(q.named(role))
        if place is not None and place.nccl_backend == "none" and count > 1:
            found = f"each of its {count} devices would train a policy of its own"
            fix = changed(role, place, "leave nccl_backend out; none is for roles that don't train", nccl_backend=None)
            yield finding("WB209", role, f"{role}: nccl_backend none", found, fix)


def one_setting(q: Question) -> Iterator[Finding]:
    """WB210: roles of one pool share processes, and NCCL's settings with them."""
    seen: dict[frozenset[str], Role] = {}
    for role, place in q.places.items():
        setting = place.nccl_backend
        if setting not in ("p2p", "ring") or not q.named(role):
            continue
        first = seen.setdefault(frozenset(q.named(role)), role)
        theirs = q.places[first].nccl_backend
        if theirs != setting:
            found = f"it shares its processes with the {first}, whose nccl_backend is {theirs}"
            fix = changed(role, place, f"write {theirs} for both", nccl_backend=theirs)
            yield finding("WB210", role, f"{role}: nccl_backend {setting}", found, fix)


def one_layout(q: Question) -> Iterator[Finding]:
    """WB211: the models of one pool lie in its processes in one way; only the engine has a layout of its own."""
    hosts: dict[frozenset[str], Role] = {}
    for role in (Role.ACTOR, Role.CRITIC, Role.REFERENCE):
        place = q.placed.get(role)
        if place is None:
            continue
        host = hosts.setdefault(frozenset(q.named(role)), role)
        theirs = q.placed[host]
        if _lies(place) == _lies(theirs):
            continue
        if role is Role.REFERENCE:
            found = f"it shares its processes with the {host}, and is laid out as {_lies(theirs)} with it"
        else:
            found = f"it shares its processes with the {host}, which is laid out as {_lies(theirs)}: they hold their models in one way"
        same = {"layout": theirs.layout, "tp": theirs.tp, "dp": theirs.dp, "sharding_strategy": theirs.sharding_strategy}
        fix = changed(role, place, f"write {_lies(theirs)} for both, or give the {role} devices of its own", **same)
        asked = f"{role}: {place}" + (f", {place.sharding_strategy}" if place.sharding_strategy else "")
        yield finding("WB211", role, asked, found, fix, "warning" if role is Role.REFERENCE else None)


def _lies(place: Placement) -> str:
    """ "fsdp SHARD_GRAD_OP": all that two models of one pool have in common."""
    return " ".join(filter(None, (place.layout_name, place.sharding_strategy)))


def no_collectives(q: Question) -> Iterator[Finding]:
    """WB212: NCCL's settings for processes that it never connects: of one device each, or of engines that don't talk to one another."""
    for role, place in q.places.items():
        pool = frozenset(q.named(role))
        if place.nccl_backend not in ("p2p", "ring") or not pool or (place.nccl_backend == "p2p" and place.on_cpu):
            continue  # of the CPU's p2p tells WB307
        roles = [other for other in q.places if frozenset(q.named(other)) == pool]
        models = not {Role.ACTOR, Role.CRITIC, Role.REFERENCE}.isdisjoint(roles)
        if len(pool) > 1 and (models or any(q.places[other].tp > 1 for other in roles)):
            continue
        alone = "it is one process" if len(pool) == 1 else "each of its processes works by itself"
        fix = changed(role, place, "leave nccl_backend out", nccl_backend=None)
        yield finding("WB212", role, f"{role}: nccl_backend {place.nccl_backend}", f"{alone}, and NCCL connects several", fix)
