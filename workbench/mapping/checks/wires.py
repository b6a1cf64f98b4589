"""What lies between the devices that have to work together."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations

from workbench.findings import Finding, Fix, Severity, finding
from workbench.mapping.checks.layouts import can_split
from workbench.mapping.checks.memory import overfull
from workbench.mapping.checks.question import Group, Question, as_patch, changed, counted, relaid, resized, whole_groups
from workbench.mapping.devices import spans
from workbench.mapping.placement import Placement
from workbench.roles import Role
from workbench.topology import GPU, Link, LinkKind, Topology

KINDS = tuple(LinkKind)
SWITCHED = (LinkKind.PIX, LinkKind.PXB)
SAME_MEMORY = 0.05  # GPUs of one type differ by less


def tensor_groups(q: Question) -> Iterator[Finding]:
    """WB301, WB302, WB303: a group that reduces after every layer wants direct links between all its members."""
    if q.topology is None or q.topology.is_cpu:
        return
    for role in q.placed:
        judged = [(*verdict, group) for group in q.tp_groups(role) if (verdict := _judge(q, group))]
        if judged:
            code, worst, group = max(judged, key=lambda one: one[0])
            asked = f"{role}: tp {q.placed[role].tp} on {spans(group)}"
            found = f"{_sentence(q.topology, code, worst)}; every layer of every token waits for the slowest pair"
            fix = _regroup(q, role)
            best = fix is None and q.shape is not None and not overfull(q)
            severity: Severity = "info" if best else "warning"
            yield finding(code, role, asked, found, fix or Fix(_BEST if best else _FIRST_OTHERS), severity)


_BEST = "the model fits on no smaller group, and no other here is better: expect slow layers"
_FIRST_OTHERS = "mend the errors first: no smaller group that the model can be split for fits, and no other here is better"


def _judge(q: Question, group: Group) -> tuple[str, Link] | None:
    """The code that a group deserves, and its narrowest link; None where all is well, or not known."""
    links, topology = q.wires.within(group), q.topology
    if topology is None or not links or topology.is_clique(group):
        return None
    worst = min(links, key=lambda link: (-KINDS.index(link.kind), not _crosses(topology, link), link.gb_per_s or 0.0))
    if worst.kind is LinkKind.NETWORK:
        return "WB303", worst
    if worst.kind.is_fabric:
        return None  # what lies between the others is not known: WB308
    return ("WB302" if _crosses(topology, worst) else "WB301"), worst


def _crosses(topology: Topology, link: Link) -> bool:
    """Whether a link leaves the socket. SYS says so, unless both ends are on one NUMA node (seen where the firmware hides the others)."""
    a, b = topology.gpu(link.a).numas, topology.gpu(link.b).numas
    return link.kind is LinkKind.SYS and not (a and a == b)


def _sentence(topology: Topology, code: str, worst: Link) -> str:
    speed = f", about {worst.gb_per_s:g} GB/s" if worst.gb_per_s is not None else ""
    ways = {"WB303": "over the network", "WB302": f"across sockets ({worst.name})"}
    within = worst.kind is LinkKind.SYS and not _crosses(topology, worst)
    how = f"through the host ({worst.name}, though both are on one NUMA node)" if within else f"over {worst.kind.words} ({worst.name})"
    return f"{worst.a} reaches {worst.b} {ways.get(code, how)}{speed}, not over a direct link"


def _regroup(q: Question, role: Role) -> Fix | None:
    """Other devices that are linked all to all, else a smaller tp whose groups are; None where the machine has no better place."""
    place = q.placed[role]
    if q.topology is None:
        return None
    count = len(place.devices)
    places = [_exchange(q, role, clique[:count]) for clique in q.topology.cliques if len(clique) >= count == place.tp]
    for text, moved in sorted(places, key=lambda place: len(place[1])):  # the fewest roles moved
        after = q.trying(moved)
        if not any(_judge(after, group) for other in after.placed for group in after.tp_groups(other)) and not overfull(after):
            return Fix(text, as_patch(moved))
    for size in (n for n in range(place.tp - 1, 0, -1) if count % n == 0 and can_split(q, n, role)):
        split = {role: resized(place, size)}
        after = q.trying(split)
        if all(_judge(after, group) is None for group in after.tp_groups(role)) and not overfull(after):
            text = f"write tp: {size}, whose groups are linked all to all" if size > 1 else "write tp: 1, a whole model on each device"
            return Fix(text, as_patch(split))
    return None


def _exchange(q: Question, role: Role, devices: Group) -> tuple[str, dict[Role, Placement]]:
    """Give a role, and those beside it, ``devices``; roles that have some of them get those that become free."""
    mine = q.named(role)
    swap = dict(zip((d for d in devices if d not in mine), (d for d in mine if d not in devices), strict=True))
    moved = dict.fromkeys(q.together(role), devices)
    for other, place in q.placed.items():
        if other not in moved and (named := q.named(other)) and not place.on_cpu and set(named) & set(swap):
            moved[other] = tuple(swap.get(device, device) for device in named)
    order = q.topology.ids if q.topology else ()
    written = {one: q.written(sorted(new, key=lambda d: order.index(d) if d in order else len(order))) for one, new in moved.items()}
    others = "".join(f"; {one} then {spans(to)}" for one, to in written.items() if one not in q.together(role))
    text = f"use devices that are linked all to all: {spans(written[role])}{others}"
    return text, {one: relaid(q.placed[one], to) for one, to in written.items()}


def different(q: Question) -> Iterator[Finding]:
    """WB304: members of one group that differ in type or memory: the fast ones wait, the large ones stay part empty."""
    for role, place in q.spoken.items():
        gpus = q.gpus(role)
        kinds: dict[tuple[str | None, float], list[GPU]] = {}
        for gpu in gpus:
            size = next((key[1] for key in kinds if key[0] == gpu.name and _same(key[1], gpu.memory_gib)), gpu.memory_gib or 0.0)
            kinds.setdefault((gpu.name, size), []).append(gpu)
        if len(kinds) < 2:
            continue
        words = [f"{_spans(members)}: {_kind(*kind)}" for kind, members in kinds.items()]
        keep = whole_groups(place, q.written(gpu.id for gpu in max(kinds.values(), key=len)))
        fix = q.move(role, keep, f"keep one kind together: {spans(keep)}")
        yield finding("WB304", role, f"{role}: {place}", f"one group of different GPUs ({'; '.join(words)})", fix)


def _spans(gpus: Iterable[GPU]) -> str:
    return spans(tuple(gpu.id for gpu in gpus))


def _kind(name: str | None, memory_gib: float) -> str:
    return (name or "unknown") + (f" {memory_gib:.0f} GiB" if memory_gib else "")


def _same(a: float, b: float | None) -> bool:
    return b is None or abs(a - b) <= SAME_MEMORY * max(a, b)


def one_switch(q: Question) -> Iterator[Finding]:
    """WB305: actor and rollout on GPUs of their own, behind one PCIe switch: their copies to the host share one uplink."""
    actor, rollout = q.placed.get(Role.ACTOR), q.placed.get(Role.ROLLOUT)
    if q.topology is None or actor is None or rollout is None or set(q.named(Role.ACTOR)) & set(q.named(Role.ROLLOUT)):
        return
    pairs = [(a.id, b.id) for a in q.gpus(Role.ACTOR) for b in q.gpus(Role.ROLLOUT)]
    shared = [link for a, b in pairs if (link := q.link(a, b)) and link.kind in SWITCHED]
    if not shared:
        return
    asked = f"actor: {actor}, rollout: {rollout}"
    where = f"{shared[0].a} and {shared[0].b} are behind one PCIe switch ({shared[0].name})" + _more(shared)
    fix = _apart(q)
    severity: Severity = "warning" if fix.patch else "info"
    found = f"{where}: while both work, their copies from and to the host share its one uplink"
    yield finding("WB305", Role.ROLLOUT, asked, found, fix, severity)


def _apart(q: Question) -> Fix:
    """The same numbers of GPUs, with every switch on one side only; text where the machine has no such split."""
    actor, rollout = q.placed[Role.ACTOR], q.placed[Role.ROLLOUT]
    used = set(q.named(Role.ACTOR)) | set(q.named(Role.ROLLOUT)) | set(q.idle)
    switches = [group for group in _switches(q.topology) if set(group) <= used] if q.topology else []
    mine: list[str] = []
    for group in switches:
        if len(mine) < len(actor.devices):
            mine += group
    theirs = [device for group in switches for device in group if not set(group) & set(mine)]
    text = "keep the GPUs of one switch in one role"
    if len(mine) < len(actor.devices) or len(theirs) < len(rollout.devices):
        return Fix(f"{text}; these roles and this machine have no such split, unless actor and rollout take turns on all of them")
    first, second = q.written(mine[: len(actor.devices)]), q.written(theirs[: len(rollout.devices)])
    moved = dict.fromkeys(q.together(Role.ACTOR), first) | dict.fromkeys(q.together(Role.ROLLOUT), second)
    places = {role: q.placed[role].model_copy(update={"devices": devices}) for role, devices in moved.items()}
    return Fix(f"{text}: actor {spans(first)}, rollout {spans(second)}", as_patch(places))


def _switches(topology: Topology) -> list[Group]:
    """GPUs in groups behind one switch."""
    left, found = list(topology.ids), []
    while left:
        members = [left[0]]
        for device in left[1:]:
            if any((link := topology.link(device, one)) and link.kind in SWITCHED for one in members):
                members.append(device)
        found.append(tuple(members))
        left = [device for device in left if device not in members]
    return found


def out_of_fabric(q: Question) -> Iterator[Finding]:
    """WB306: a GPU without NVLink on a node whose others of that type have it."""
    if q.topology is None:
        return
    for role, place in q.spoken.items():
        out = [gpu for gpu in q.gpus(role) if is_out(q.topology, gpu)]
        if not out:
            continue
        asked, names = f"{role}: {place}", _spans(out)
        verb = "has" if len(out) == 1 else "have"
        found = f"{names} {verb} no direct link, and the others of that type here have: a broken link, or the fabric manager left it out"
        rest = q.written(gpu.id for gpu in q.gpus(role) if gpu not in out)
        text = "look at `nvidia-smi nvlink -s` and the fabric manager; until then leave it out"
        yield finding("WB306", role, asked, found, q.move(role, rest, text) if rest else text)


def is_out(topology: Topology, gpu: GPU) -> bool:
    """Whether a GPU has no direct link while three or more of its type on its node have. A bridged pair says nothing of the others."""
    if gpu.mig or gpu.kind == "cpu":
        return False  # a slice has no direct links, whatever its GPU has
    if len(next(island for island in topology.islands if gpu.id in island)) > 1:
        return False
    others = [island for island in topology.islands if len(island) > 2 and topology.gpu(island[0]).node == gpu.node]
    same = any(topology.gpu(island[0]).name == gpu.name for island in others)
    return same and any(topology.link(gpu.id, other) for other in topology.ids)


def denied(q: Question) -> Iterator[Finding]:
    """WB307: pairs of a group that may not read each other's memory."""
    for role, place in q.places.items():
        if place.nccl_backend == "p2p":
            yield from _peer_access(q, role)
            continue
        pairs = [link for group in q.tp_groups(role) for link in q.wires.within(group) if link.p2p is False]
        if pairs:
            found = f"{_denies(pairs)}: every copy goes through the host"
            allow = "allow P2P (IOMMU off, ACS off, a driver that supports it)"
            whole = {role: resized(place, 1)}
            if overfull(q.trying(whole)):
                yield finding("WB307", role, f"{role}: {place}", found, f"{allow}; a whole model on each device would not fit", "info")
            else:
                yield finding("WB307", role, f"{role}: {place}", found, Fix(f"write tp: 1, or {allow}", as_patch(whole)), "warning")


def _peer_access(q: Question, role: Role) -> Iterator[Finding]:
    """WB307 of a role that asks for peer access, with the devices of the role whose model it may share."""
    place, asked, links = q.places[role], f"{role}: nccl_backend p2p", q.wires.within(q.named(role))
    text = "leave nccl_backend out: NCCL then takes the way that there is"
    without = changed(role, place, text, nccl_backend=None)
    wrong = [link for link in links if link.p2p is False or link.kind is LinkKind.NETWORK]
    unsaid = [link for link in links if link.p2p is None and not link.kind.is_fabric]
    if q.named(role) and all(device.startswith("cpu:") for device in q.named(role)):
        yield finding("WB307", role, asked, "it is on the CPU, and peer access is between the memories of GPUs", without)
    elif wrong and wrong[0].kind is LinkKind.NETWORK:
        found = f"{wrong[0].a} and {wrong[0].b} are on different nodes, and no GPU reads another node's memory" + _more(wrong)
        yield finding("WB307", role, asked, found, without)
    elif wrong:
        yield finding("WB307", role, asked, _denies(wrong), Fix(f"{text}; or allow P2P (IOMMU, ACS)", without.patch))
    elif unsaid:
        found = f"nobody said whether {unsaid[0].a} and {unsaid[0].b} may read each other's memory ({unsaid[0].name})" + _more(unsaid)
        yield finding("WB307", role, asked, found, "look at `nvidia-smi topo -p2p r`; where it is denied, leave nccl_backend out", "info")


def _denies(pairs: Sequence[Link]) -> str:
    return f"the driver denies {pairs[0].a} and {pairs[0].b} to read each other's memory ({pairs[0].name})" + _more(pairs)


def _more(pairs: Sequence[object]) -> str:
    return f", and {counted(len(pairs) - 1, 'pair')} more" if pairs[1:] else ""


def not_known(q: Question) -> Iterator[Finding]:
    """WB308: a group whose links the topology does not tell."""
    if q.topology is None or q.topology.is_cpu:
        return
    for role, place in q.placed.items():
        pairs = [(a, b) for group in q.tp_groups(role) for a, b in combinations(group, 2) if q.topology.link(a, b) is None]
        if pairs:
            found = f"what lies between {pairs[0][0]} and {pairs[0][1]} is not known" + _more(pairs)
            yield finding("WB308", role, f"{role}: {place}", found, "give the whole output of nvidia-smi topo -m")
