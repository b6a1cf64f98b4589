"""Are the devices there, each once, each on one node, and all in use?"""

from collections.abc import Iterator

from workbench.findings import Finding, Fix, Severity, finding
from workbench.mapping.checks.question import Question, changed, counted, listed
from workbench.mapping.checks.wires import is_out
from workbench.mapping.devices import in_order, node_of, spans
from workbench.mapping.resolve import name_device
from workbench.roles import Role
from workbench.topology import Topology


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
            named = in_order(_with_node(device, q.topology) for device in place.devices)
            text = f"name the node: {named[0]}, or another of {listed(nodes)}"
            found = f"there are {len(nodes)} nodes ({listed(nodes)}), and a number alone does not say which one is meant"
            yield finding("WB103", role, f"{role}: {place}", found, q.move(role, named, text))


def _with_node(device: str, topology: Topology) -> str:
    """A number with the node that is probably meant: the first, or, beyond its devices, the one that has it in a count over all."""
    if node_of(device) or device == "cpu":
        return device
    first = f"{topology.nodes[0]}:{device}"
    return first if topology.find(first) or int(device) >= len(topology.ids) else topology.ids[int(device)]


def _ambiguous(q: Question, role: Role) -> bool:
    several = q.topology is not None and len(q.topology.nodes) > 1
    return several and any(not node_of(device) and device != "cpu" for device in q.placed[role].devices)


def unused(q: Question) -> Iterator[Finding]:
    """WB104: GPUs that no role has. Only good to know where most of the machine is left out, or where nobody could use them."""
    if q.topology is None or any(_ambiguous(q, role) for role in q.placed):
        return
    idle = tuple(device for device in q.idle if not is_out(q.topology, q.topology.gpu(device)))
    if not idle:
        return
    total = len(q.topology.gpus)
    found = f"{spans(idle)} {'is' if len(idle) == 1 else 'are'} mapped to nothing"
    fix = _widened(q, idle) if q.means_all else None
    severity: Severity = "warning" if fix else "info"
    text = "name them too if they are for this run, the rollout first; if not, hide them with CUDA_VISIBLE_DEVICES"
    yield finding("WB104", "", f"roles on {total - len(q.idle)} of {counted(total, 'GPU')}", found, fix or text, severity)


def _widened(q: Question, idle: tuple[str, ...]) -> Fix | None:
    """The idle GPUs for the role that takes most of a step; None where they are of another kind, or would have no work."""
    roles = [role for role in (Role.ROLLOUT, *q.placed) if role in q.placed and not q.placed[role].on_cpu]
    if q.topology is None or not roles or not _alike(q, (*q.named(roles[0]), *idle)):
        return None
    place, members = q.placed[roles[0]], {*q.named(roles[0]), *idle}
    order = [device for device in q.topology.ids if device in members]
    if len(order) % place.tp or (q.batch is not None and len(order) // place.tp > q.batch):
        return None
    text = f"give them to the {' and the '.join(q.together(roles[0]))}"
    return q.move(roles[0], q.written(order), f"{text}; or hide them with CUDA_VISIBLE_DEVICES")


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
