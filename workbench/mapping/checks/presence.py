"""Are the devices there, each once, each on one node, and all in use?"""

from collections.abc import Iterator

from workbench.findings import Finding, Fix, Severity, finding
from workbench.mapping.checks.balance import together, widened
from workbench.mapping.checks.question import Question, changed, counted, listed
from workbench.mapping.checks.repair import repaired, there
from workbench.mapping.checks.wires import is_out
from workbench.mapping.devices import in_order, node_of, spans
from workbench.roles import Role
from workbench.topology import Topology


def absent(q: Question) -> Iterator[Finding]:
    """WB101: a device that the machine does not have."""
    if q.topology is None:
        return
    for role, place in q.spoken.items():
        names = tuple(dict.fromkeys(q.named(role)))
        lacking = tuple(name for name in names if not there(q, name))
        if _ambiguous(q, role) or not lacking:
            continue
        has = f"{q.topology.name} has {spans(q.topology.ids) or 'no devices'}"
        if place.on_cpu and not q.topology.is_cpu:
            fix = q.move(role, ("cpu",), "write cpu: slots of it are on machines without GPUs (Topology.cpu)")
        else:
            fix = repaired(q, role, tuple(name for name in names if name not in lacking), "name devices that are there")
        yield finding("WB101", role, f"{role}: {place}", f"no {spans(lacking)}; {has}", fix)


def twice(q: Question) -> Iterator[Finding]:
    """WB102: a device named twice in one role."""
    for role, place in q.spoken.items():
        names = q.named(role)
        doubled = tuple(dict.fromkeys(name for at, name in enumerate(names) if name in names[:at]))
        if doubled:
            once = dict(zip(names, place.devices, strict=True))
            text = f"name {spans(doubled)} once"
            right = tuple(name for name in once if there(q, name))
            fix = q.move(role, in_order(once.values()), text) if _ambiguous(q, role) else repaired(q, role, right, text)
            yield finding("WB102", role, f"{role}: {place}", f"{spans(doubled)} {_are(doubled)} named twice", fix)


def _are(devices: tuple[str, ...]) -> str:
    return "is" if len(devices) == 1 else "are"


def ambiguous(q: Question) -> Iterator[Finding]:
    """WB103: a number without a node, where there are several nodes."""
    for role, place in q.spoken.items():
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
    found = f"{spans(idle)} {_are(idle)} mapped to nothing"
    fix = widened(q) if q.means_all else None
    severity: Severity = "warning" if fix else "info"
    if fix and any(one.severity == "warning" for one in together(q)):
        fix = Fix("give them to the critic, see there (WB401); or hide them with CUDA_VISIBLE_DEVICES")  # nobody gets them twice
    text = "name them too if they are for this run, the rollout first; if not, hide them with CUDA_VISIBLE_DEVICES"
    yield finding("WB104", "", f"roles on {total - len(q.idle)} of {counted(total, 'GPU')}", found, fix or text, severity)


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
