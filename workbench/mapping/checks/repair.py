"""Which devices a role gets instead of those that are not there, named twice, or another role's.

As many as it has, with the tp that it has, where that can be; those of the role it works with, where it was meant to be with it.
What it has to give up is said.
"""

from workbench.findings import Fix
from workbench.mapping.checks.question import Group, Question, relaid, whole_groups
from workbench.mapping.devices import spans
from workbench.mapping.placement import Placement
from workbench.roles import Role

PARTNERS = {
    Role.ACTOR: (Role.ROLLOUT, Role.CRITIC),
    Role.ROLLOUT: (Role.ACTOR, Role.CRITIC),
    Role.CRITIC: (Role.ACTOR, Role.ROLLOUT),
    Role.REFERENCE: (Role.ACTOR,),
}


def repaired(q: Question, role: Role, kept: Group, text: str) -> Fix:
    """A role, of whose devices only ``kept`` are right, with others beside or instead. ``text``: what to do, for the devices to follow."""
    place = q.placed[role]
    given = q.written(_as_many(q, role, kept) or _fewer(q, role, kept))
    if not given:
        return Fix("name devices that are there: the machine has none")
    return q.move(role, given, f"{text}: {spans(given)}{_given_up(place, relaid(place, whole_groups(place, given)))}")


def _given_up(place: Placement, after: Placement) -> str:
    return f", in a group of {after.tp} instead of {place.tp}" if after.tp != place.tp else ""


def _as_many(q: Question, role: Role, kept: Group) -> Group:
    """As many devices as the role has: those of its partner where what is right of them is the partner's, else free ones."""
    count = len(q.placed[role].devices)
    partner = next((devices for devices in partners(q, role) if len(devices) == count and set(kept) <= set(devices)), ())
    pool = in_order(q, (*kept, *free(q, kept)[: count - len(kept)]))
    return partner if (kept and partner) or len(pool) < count else pool


def _fewer(q: Question, role: Role, kept: Group) -> Group:
    """Whole groups of what is left and free; the partner's devices, or the machine's first, where nothing is."""
    pool = (*kept, *free(q, kept))
    if pool:
        return in_order(q, whole_groups(q.placed[role], pool))
    first = q.topology.ids[: len(q.placed[role].devices)] if q.topology else ()
    return next(iter(partners(q, role)), first)


def partners(q: Question, role: Role) -> list[Group]:
    """The devices of the roles that a role works with, where they are all right."""
    moved = q.together(role)
    named = [q.named(other) for other in PARTNERS.get(role, ()) if other in q.placed and other not in moved]
    return [devices for devices in named if len(set(devices)) == len(devices) and all(there(q, device) for device in devices)]


def there(q: Question, device: str) -> bool:
    """Whether the machine has a device. The CPU of a machine with GPUs is "cpu:0"; without a machine every device is."""
    if q.topology is None:
        return True
    return q.topology.find(device) is not None or (device == "cpu:0" and not (q.topology.gpus and q.topology.is_cpu))


def free(q: Question, beside: Group) -> Group:
    """Idle devices that could work in one group with ``beside``: of their type, those linked with them first, then those of their node."""
    if q.topology is None:
        return ()
    known = [gpu for device in beside if (gpu := q.topology.find(device))]
    alike = [device for device in q.idle if not known or q.topology.gpu(device).name == known[0].name]
    if not known:
        return tuple(alike)
    first, topology = known[0], q.topology
    return tuple(sorted(alike, key=lambda device: (not topology.is_clique((first.id, device)), topology.gpu(device).node != first.node)))


def in_order(q: Question, devices: Group) -> Group:
    """Devices in the machine's order."""
    order = {device: at for at, device in enumerate(q.topology.ids)} if q.topology else {}
    return tuple(sorted(devices, key=lambda device: order.get(device, len(order))))
