"""Are the devices there, each once, each on one node, and all in use?"""

from collections.abc import Iterator

from workbench.findings import Finding, Fix, finding
from workbench.mapping.checks.question import Question, changed, listed
from workbench.mapping.devices import in_order, node_of
from workbench.mapping.resolve import name_device
from workbench.roles import Role


def absent(q: Question) -> Iterator[Finding]:
    """WB101: a device that the machine does not have."""
    if q.topology is None:
        return
    there = set(q.topology.ids)
    for role, place in q.placed.items():
        if _ambiguous(q, role):
            continue
        names = [name_device(device, q.topology) for device in place.devices]
        lacking = [name for name in names if name not in there and not (name.startswith("cpu:") and not q.topology.is_cpu)]
        lacking = [name for name in lacking if name != "cpu:0" or not q.topology.is_cpu]
        if not lacking:
            continue
        left = q.written(name for name in names if name in there) or q.written(q.topology.ids[: len(names)])
        has = f"{q.topology.name} has {listed(q.topology.ids)}"
        fix = q.move(role, left, f"name devices that are there: {listed(left)}")
        yield finding("WB101", role, f"{role}: {place}", f"no {listed(lacking)}; {has}", fix)


def twice(q: Question) -> Iterator[Finding]:
    """WB102: a device named twice in one role."""
    for role, place in q.placed.items():
        names = [name_device(device, q.topology) for device in place.devices]
        doubled = [name for at, name in enumerate(names) if name in names[:at]]
        if doubled:
            once = tuple(dict(zip(names, place.devices, strict=True)).values())
            fix = q.move(role, in_order(list(once)), f"name {listed(dict.fromkeys(doubled))} once")
            yield finding("WB102", role, f"{role}: {place}", f"{listed(dict.fromkeys(doubled))} is named twice", fix)


def ambiguous(q: Question) -> Iterator[Finding]:
    """WB103: a number without a node, where there are several nodes."""
    for role, place in q.placed.items():
        if q.topology is not None and _ambiguous(q, role):
            nodes = q.topology.nodes
            named = [device if node_of(device) or device == "cpu" else f"{nodes[0]}:{device}" for device in place.devices]
            text = f"name the node: {nodes[0]}:{place.devices[0]}, or whichever of {listed(nodes)} is meant"
            found = f"there are {len(nodes)} nodes ({listed(nodes)}), and each has a device of that number"
            yield finding("WB103", role, f"{role}: {place}", found, q.move(role, in_order(named), text))


def _ambiguous(q: Question, role: Role) -> bool:
    several = q.topology is not None and len(q.topology.nodes) > 1
    return several and any(not node_of(device) and device != "cpu" for device in q.placed[role].devices)


def unused(q: Question) -> Iterator[Finding]:
    """WB104: GPUs that no role has."""
    idle = q.idle
    mapped = [role for role, place in q.placed.items() if not place.on_cpu]
    if not idle or q.topology is None or any(_ambiguous(q, role) for role in q.placed):
        return
    asked = f"{len(q.topology.gpus) - len(idle)} of {len(q.topology.gpus)} GPUs"
    found = f"{listed(idle)} {'is' if len(idle) == 1 else 'are'} mapped to nothing"
    wide = Role.ROLLOUT if Role.ROLLOUT in mapped else mapped[0] if mapped else None
    text = "give them to the rollout, which takes most of a step; or hide them with CUDA_VISIBLE_DEVICES"
    if wide is None or not _alike(q, (*q.named(wide), *idle)):
        yield finding("WB104", "", asked, found, text)
        return
    together = (*q.named(wide), *idle)
    order = [device for device in q.topology.ids if device in together]
    fits = len(order) % q.placed[wide].tp == 0
    yield finding("WB104", "", asked, found, q.move(wide, q.written(order), text) if fits else text)


def _alike(q: Question, devices: tuple[str, ...]) -> bool:
    """All of one type, so that they may work in one group."""
    gpus = [q.topology.find(device) for device in devices] if q.topology else []
    return len({gpu.name for gpu in gpus if gpu}) <= 1


def mixed(q: Question) -> Iterator[Finding]:
    """WB105: actor and rollout on different kinds of device."""
    actor, rollout = q.placed.get(Role.ACTOR), q.placed.get(Role.ROLLOUT)
    if actor is None or rollout is None or actor.on_cpu == rollout.on_cpu or (q.topology is not None and q.topology.is_cpu):
        return
    on_cpu, other = (Role.ACTOR, rollout) if actor.on_cpu else (Role.ROLLOUT, actor)
    fix = changed(on_cpu, q.placed[on_cpu], f"put the {on_cpu} on GPUs too: {other}", devices=other.devices)
    asked = f"actor: {actor}, rollout: {rollout}"
    yield finding("WB105", on_cpu, asked, f"the {on_cpu} is on the CPU, and the other on GPUs: one dtype and one engine serve both", fix)


def forms(q: Question) -> Iterator[Finding]:
    """WB116: a service for a role that works here."""
    for role, place in q.places.items():
        if place.url and role is not Role.REWARD:
            own = {Role.CRITIC: "share:actor", Role.REFERENCE: "share:actor"}.get(role)
            text = f"write {role}: {own}" if own else f"give the {role} devices"
            found = "only rewards can come from a service: the weights of every other role change, or are compared, here"
            yield finding("WB116", role, f"{role}: {place.url}", found, Fix(text, {str(role): own} if own else None))
