"""Is the work where the machine can do it?"""

import re
from collections.abc import Iterable, Iterator

from workbench.findings import Finding, Fix, Severity, finding
from workbench.mapping.checks.question import TRAINED, WITH_CRITIC, Question, as_patch, counted, relaid
from workbench.mapping.checks.wires import is_out
from workbench.mapping.devices import spans
from workbench.mapping.placement import Placement
from workbench.roles import Role

# Dense bf16 TFLOPS (fp16 before Ampere) of the vendors' data sheets. For telling a fast GPU from a slow one, nothing else.
SPEED = (
    (r"B200|B300", 2250.0),
    (r"MI300|MI325", 1307.0),
    (r"H100|H200|H800", 989.0),
    (r"MI250", 362.0),
    (r"L40S", 362.0),
    (r"A100|A800", 312.0),
    (r"5090", 210.0),
    (r"6000 Ada", 364.0),
    (r"L40\b", 181.0),
    (r"4090", 165.0),
    (r"A30\b", 165.0),
    (r"A6000", 155.0),
    (r"A40\b", 150.0),
    (r"H20\b", 148.0),
    (r"V100", 125.0),
    (r"A10\b", 125.0),
    (r"L4\b", 121.0),
    (r"3090", 71.0),
    (r"T4\b", 65.0),
    (r"P100", 21.0),
)
FASTER = 1.3  # a ratio from which on a swap pays
# A heavy role and those that it may swap with. Actor and critic train the same batch: a swap of them wins nothing.
LIGHTER = {Role.ACTOR: (Role.REFERENCE, Role.REWARD), Role.ROLLOUT: (Role.CRITIC, Role.REFERENCE, Role.REWARD)}


def speed(name: str | None) -> float | None:
    """TFLOPS of a GPU by its name; None where not known."""
    return next((value for pattern, value in SPEED if name and re.search(pattern, name, re.I)), None)


def together(q: Question) -> Iterator[Finding]:
    """WB401: actor and critic take turns on the same GPUs while others idle.

    Of one role's work on one GPU as the unit, turns on ``a`` GPUs take 2/a; apart, the slower takes 1/min(a, c): that pays from c > a/2 on.
    Turns of all on a + c GPUs take no longer, and the rollout, where it is among them, samples on more: then WB104 gives them to all.
    """
    if q.algo not in (None, *WITH_CRITIC) or Role.CRITIC not in q.places or Role.ACTOR not in q.placed or not q.idle:
        return
    if set(q.named(Role.CRITIC)) != set(q.named(Role.ACTOR)):
        return
    actor, count = q.placed[Role.ACTOR], min(len(q.idle), len(q.placed[Role.ACTOR].devices))
    found = f"they take turns on {spans(q.named(Role.ACTOR))} while {spans(q.idle)} {'idles' if len(q.idle) == 1 else 'idle'}"
    devices = q.written(q.idle[:count])
    pays, apart = 2 * count > len(actor.devices), _better_apart(q)
    text = f"give the critic GPUs of its own: {spans(devices)}; it then computes values and trains beside the actor"
    if not pays:
        text = f"{spans(devices)} would be too few for the critic: alone there it takes longer than the turns; give them to the rollout"
    elif not apart:
        text += "; or give all roles all GPUs (WB104), which takes no longer and samples on more"
    ours = pays and apart and q.means_all  # GPUs that are for somebody else are not to be taken unasked
    patch = {"critic": relaid(Placement(layout=actor.layout, tp=actor.tp), devices).to_dict()}
    severity: Severity = "warning" if ours else "info"
    yield finding("WB401", Role.CRITIC, f"critic: {q.places[Role.CRITIC]}", found, Fix(text, patch if ours else None), severity)


def _better_apart(q: Question) -> bool:
    """Not where the rollout takes turns with them, and all of them could have the idle GPUs."""
    return set(q.named(Role.ROLLOUT)) != set(q.named(Role.ACTOR)) or widened(q) is None


def widened(q: Question) -> Fix | None:
    """The idle GPUs for the role that takes most of a step, and those with it; None where they are of another kind or without work."""
    roles = [role for role in (Role.ROLLOUT, *q.placed) if role in q.placed and not q.placed[role].on_cpu]
    if q.topology is None or not roles or not all(q.topology.find(device) for device in q.named(roles[0])):
        return None
    idle = tuple(gpu.id for gpu in map(q.topology.gpu, q.idle) if not is_out(q.topology, gpu))
    members, moved = {*q.named(roles[0]), *idle}, q.together(roles[0])
    order = [device for device in q.topology.ids if device in members]
    busy = q.batch is None or len(order) // q.placed[roles[0]].tp <= q.batch
    if not idle or not busy or any(len(order) % q.placed[role].tp for role in moved) or not _alike(q, order):
        return None
    return q.move(roles[0], q.written(order), f"give them to the {' and the '.join(moved)}; or hide them with CUDA_VISIBLE_DEVICES")


def _alike(q: Question, devices: Iterable[str]) -> bool:
    """All of one type, so that they may work in one group."""
    gpus = [q.topology.find(device) for device in devices] if q.topology else []
    return len({gpu.name for gpu in gpus if gpu}) <= 1


def slow(q: Question) -> Iterator[Finding]:
    """WB402: the heavy role on the slow GPUs, a light one (or nothing) on the fast ones."""
    for heavy, lighter in LIGHTER.items():
        place, mine = q.placed.get(heavy), _slowest(q, q.named(heavy))
        if place is None or mine is None:
            continue
        for light in lighter:
            other = q.placed.get(light)
            if other is None or set(q.named(light)) & set(q.named(heavy)):
                continue
            theirs = _slowest(q, q.named(light))
            if theirs is not None and theirs > FASTER * mine and len(other.devices) >= len(place.devices):
                yield _swap(q, heavy, light, theirs / mine)
                return
        fast = tuple(device for device in q.idle if (_slowest(q, (device,)) or 0) > FASTER * mine)
        ratio = (_slowest(q, fast) or mine) / mine
        if len(fast) >= len(place.devices):
            devices = q.written(fast[: len(place.devices)])
            found = f"{spans(fast)} would be {ratio:.1f} times as fast, and {'idles' if len(fast) == 1 else 'idle'}"
            yield finding("WB402", heavy, f"{heavy}: {place}", found, q.move(heavy, devices, f"use {spans(devices)}"))
            return


def _swap(q: Question, heavy: Role, light: Role, ratio: float) -> Finding:
    place, other = q.placed[heavy], q.placed[light]
    fast = other.devices[: len(place.devices)]
    moved = {role: relaid(q.placed[role], fast) for role in q.together(heavy)} | {light: relaid(other, place.devices)}
    found = f"the {light} has GPUs {ratio:.1f} times as fast ({spans(q.named(light))})"
    text = f"swap them: {heavy} {spans(fast)}, {light} {spans(place.devices)}"
    return finding("WB402", heavy, f"{heavy}: {place}", found, Fix(text, as_patch(moved)))


def _slowest(q: Question, devices: tuple[str, ...]) -> float | None:
    """TFLOPS of the slowest device; None where one is not known."""
    gpus = [q.topology.find(device) for device in devices] if q.topology else []
    speeds = [speed(gpu.name) if gpu else None for gpu in gpus]
    return None if not speeds or None in speeds else min(value for value in speeds if value is not None)


def sharing_pays(q: Question) -> Iterator[Finding]:
    """WB403: a frozen model of its own, where the actor's base would do."""
    actor = q.placed.get(Role.ACTOR)
    if actor is None or not q.lora or (q.topology is None and actor.on_cpu):
        return
    reference, critic = q.placed.get(Role.REFERENCE), q.placed.get(Role.CRITIC)
    if reference is not None:
        found = "with LoRA the actor with its adapter off is the reference, and takes no memory of its own"
        fix = Fix("write reference: share:actor", {"reference": {"share": "actor"}})
        yield finding("WB403", Role.REFERENCE, f"reference: {reference}", found, fix)
    if critic is not None and set(q.named(Role.CRITIC)) == set(q.named(Role.ACTOR)) and not any(together(q)):
        found = "on the actor's GPUs one frozen base can serve both, each with an adapter of its own"
        fix = Fix("write critic: share:actor", {"critic": {"share": "actor"}})
        yield finding("WB403", Role.CRITIC, f"critic: {critic}", found, fix)


def no_work(q: Question) -> Iterator[Finding]:
    """WB404: fewer completions than ranks."""
    for role in (Role.ACTOR, Role.CRITIC, Role.ROLLOUT, Role.REFERENCE, Role.REWARD):
        place = q.spoken.get(role)
        if place is None or q.batch is None:
            continue
        ranks = len(place.devices) if place.layout == "fsdp" else place.copies
        if ranks > q.batch:
            idle = ranks - q.batch
            found = f"{ranks} ranks share {counted(q.batch, 'completion')} a step: {idle} {'has' if idle == 1 else 'have'} none"
            fewer = place.devices[: q.batch * place.tp]
            fix = q.move(role, fewer, f"make the batch at least {ranks}, or use {len(fewer)} devices")
            yield finding("WB404", role, f"{role}: {place}", found, fix)
        elif q.batch % ranks and role in TRAINED:
            short = ranks - q.batch % ranks
            shares = f"{short} {'has' if short == 1 else 'have'} one fewer, and {'waits' if short == 1 else 'wait'} for the others"
            found = f"{ranks} ranks share {q.batch} completions a step: {shares}"
            size = -(-q.batch // ranks) * ranks
            yield finding("WB404", role, f"{role}: {place}", found, f"make the batch a multiple of {ranks}: {size}", "info")
