"""What lies between the devices that have to work together."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from workbench.findings import Finding, Fix, Severity, finding
from workbench.mapping.checks.memory import overfull
from workbench.mapping.checks.question import Group, Question, changed, counted, listed, relaid
from workbench.mapping.devices import spans
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
        judged = [(*verdict, group) for group in q.tp_groups(role) if (verdict := _judge(q.topology, group))]
        if judged:
            code, worst, group = max(judged, key=lambda one: one[0])
            asked = f"{role}: tp {q.placed[role].tp} on {listed(group)}"
            found = f"{_sentence(code, worst)}; every layer of every token waits for the slowest pair"
            fix = _regroup(q, role)
            best = fix is None and q.shape is not None and not overfull(q)
            severity: Severity = "info" if best else "warning"
            text = "the model fits on no smaller group, and no other here is better: expect slow layers"
            yield finding(
                code, role, asked, found, fix or (text if best else "keep a group within a clique (workbench topo lists them)"), severity
            )


def _judge(topology: Topology, group: Group) -> tuple[str, Link] | None:
    """The code that a group deserves, and its narrowest link; None where all is well, or not known."""
    links = [link for a, b in combinations(group, 2) if (link := topology.link(a, b))]
    if topology.is_clique(group) or not links:
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


def _sentence(code: str, worst: Link) -> str:
    speed = f", about {worst.gb_per_s:g} GB/s" if worst.gb_per_s is not None else ""
    ways = {"WB303": "over the network", "WB302": f"across sockets ({worst.name})"}
    how = ways.get(code, f"over {worst.kind.words} ({worst.name})")
    return f"{worst.a} reaches {worst.b} {how}{speed}, not over a direct link"


def _regroup(q: Question, role: Role) -> Fix | None:
    """Other devices that are linked all to all, else a smaller tp whose groups are; None where the machine has no better place."""
    place = q.placed[role]
    if q.topology is None:
        return None
    count = len(place.devices)
    places = [_exchange(q, role, clique[:count]) for clique in q.topology.cliques if len(clique) >= count == place.tp]
    for fix in sorted(places, key=lambda fix: len(fix.patch or {})):  # the fewest roles moved
        after = q.with_map(fix.patch or {})
        if not any(_judge(q.topology, group) for other in after.placed for group in after.tp_groups(other)) and not overfull(after):
            return fix
    for size in (n for n in range(place.tp - 1, 0, -1) if count % n == 0):
        text = f"write tp: {size}, whose groups are linked all to all" if size > 1 else "write tp: 1, a whole model on each device"
        fix = changed(role, place, text, tp=size, dp=None)
        smaller = q.with_map(fix.patch or {})
        if all(_judge(q.topology, group) is None for group in smaller.tp_groups(role)) and not overfull(smaller):
            return fix
    return None


def _exchange(q: Question, role: Role, devices: Group) -> Fix:
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
    return Fix(text, {str(one): relaid(q.placed[one], to).to_dict() for one, to in written.items()})


def different(q: Question) -> Iterator[Finding]:
    """WB304: members of one group that differ in type or memory: the fast ones wait, the large ones stay part empty."""
    for role, place in q.placed.items():
        gpus = q.gpus(role)
        kinds: dict[tuple[str | None, float], list[GPU]] = {}
        for gpu in gpus:
            size = next((key[1] for key in kinds if key[0] == gpu.name and _same(key[1], gpu.memory_gib)), gpu.memory_gib or 0.0)
            kinds.setdefault((gpu.name, size), []).append(gpu)
        if len(kinds) < 2:
            continue
        words = [f"{listed(g.id for g in members)}: {_kind(*kind)}" for kind, members in kinds.items()]
        most = max(kinds.values(), key=len)
        keep = q.written(gpu.id for gpu in most[: len(most) // place.tp * place.tp] or most)
        fix = q.move(role, keep, f"keep one kind together: {listed(keep)}")
        yield finding("WB304", role, f"{role}: {place}", f"one group of different GPUs ({'; '.join(words)})", fix)


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
    patch = {str(r): q.placed[r].model_copy(update={"devices": first}).to_dict() for r in q.together(Role.ACTOR)}
    patch |= {str(r): q.placed[r].model_copy(update={"devices": second}).to_dict() for r in q.together(Role.ROLLOUT)}
    return Fix(f"{text}: actor {listed(first)}, rollout {listed(second)}", patch)


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
    for role, place in q.placed.items():
        out = [gpu for gpu in q.gpus(role) if is_out(q.topology, gpu)]
        if not out:
            continue
        asked, names = f"{role}: {place}", listed(gpu.id for gpu in out)
        verb = "has" if len(out) == 1 else "have"
        found = f"{names} {verb} no direct link, and the others of that type here have: a broken link, or the fabric manager left it out"
        rest = q.written(gpu.id for gpu in q.gpus(role) if gpu not in out)
        text = "look at `nvidia-smi nvlink -s` and the fabric manager; until then leave it out"
        yield finding("WB306", role, asked, found, q.move(role, rest, text) if rest else text)


def is_out(topology: Topology, gpu: GPU) -> bool:
    """Whether a GPU has no direct link while three or more of its type on its node have. A bridged pair says nothing of the others."""
    if gpu.mig or gpu.kind == "cpu":
        return False  # a slice has no direct links, whatever its GPU has
    mine = next(island for island in topology.islands if gpu.id in island)
    others = [island for island in topology.islands if len(island) > 2 and topology.gpu(island[0]).node == gpu.node]
    linked = [link for other in topology.ids if (link := topology.link(gpu.id, other))]
    return len(mine) == 1 and bool(linked) and any(topology.gpu(island[0]).name == gpu.name for island in others)


def denied(q: Question) -> Iterator[Finding]:
    """WB307: pairs of a group that may not read each other's memory."""
    for role, place in q.placed.items():
        groups = [q.named(role)] if place.nccl_backend == "p2p" else q.tp_groups(role)
        pairs = [link for group in groups for a, b in combinations(group, 2) if (link := _known(q, a, b)) and link.p2p is False]
        if not pairs:
            continue
        names = f"{pairs[0].a} and {pairs[0].b}"
        found = f"the driver denies {names} to read each other's memory ({pairs[0].name})" + _more(pairs)
        if place.nccl_backend == "p2p":
            text = "leave nccl_backend out: NCCL then copies through the host; or allow P2P (IOMMU, ACS)"
            fix = changed(role, place, text, nccl_backend=None)
            yield finding("WB307", role, f"{role}: nccl_backend p2p", found, fix)
        else:
            text = "write tp: 1, or allow P2P (IOMMU off, ACS off, a driver that supports it): every copy goes through the host now"
            fix = changed(role, place, text, tp=1, dp=None)
            best = bool(overfull(q.with_map(fix.patch or {})))
            yield finding("WB307", role, f"{role}: {place}", found, Fix(text) if best else fix, "info" if best else "warning")


def _more(pairs: Sequence[object]) -> str:
    return f", and {counted(len(pairs) - 1, 'pair')} more" if pairs[1:] else ""


def _known(q: Question, a: str, b: str) -> Link | None:
    there = q.topology is not None and q.topology.find(a) and q.topology.find(b)
    return q.link(a, b) if there else None


def not_known(q: Question) -> Iterator[Finding]:
    """WB308: a group whose links the topology does not tell."""
    if q.topology is None or q.topology.is_cpu:
        return
    for role, place in q.placed.items():
        pairs = [(a, b) for group in q.tp_groups(role) for a, b in combinations(group, 2) if q.topology.link(a, b) is None]
        if pairs:
            found = f"what lies between {pairs[0][0]} and {pairs[0][1]} is not known" + _more(pairs)
            yield finding("WB308", role, f"{role}: {place}", found, "give the whole output of nvidia-smi topo -m")
