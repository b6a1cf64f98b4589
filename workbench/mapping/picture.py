"""A map as the drawing of a machine needs it: which label and colour goes where, and whom each finding concerns."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.findings import CODES, Finding
from workbench.mapping.checks.memory import USABLE
from workbench.mapping.device_map import DeviceMap
from workbench.mapping.devices import node_of, spans
from workbench.mapping.resolve import Resolved
from workbench.palette import ROLE_COLOUR
from workbench.roles import Role
from workbench.topology import Topology
from workbench.topology.drawing.casting import Aside, Casting, Chip, Entry, Held, Note

SHORT = {Role.REFERENCE: "ref"}
_NUMBERS = r"\d{1,4}(?:-\d{1,4})?"
_DEVICES = re.compile(rf"([\w.-]+):({_NUMBERS}(?:,{_NUMBERS})*)\b")
DRIVER = "CPU of the driver"
MODES = {
    "zero_copy": "the engine reads the trainer's own weights",
    "merged": "the engine's copy is rewritten in place",
    "adapter": "only the LoRA adapter goes to the engine",
    "full": "all weights go to the engine",
}


@dataclass(frozen=True)
class Verdict:
    """What was found. ``unchecked``: what was not looked at; ``held``: device -> GiB by what it is; ``budget``: the same in words."""

    findings: Sequence[Finding] = ()
    unchecked: str = ""
    held: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    budget: tuple[str, ...] = ()


def casting(devices: DeviceMap, topology: Topology, resolved: Mapping[Role, Resolved], verdict: Verdict) -> Casting:
    """The roles of a map on a machine, with the findings numbered from 1."""
    known, findings = set(topology.ids), verdict.findings
    notes = tuple(note(number, finding, topology) for number, finding in enumerate(findings, 1))
    chips: dict[str, dict[Role, Chip]] = {}
    for role, one in resolved.items():
        if not aside(devices, topology, role):
            for device, chip in role_chips(role, one):
                if device in known:
                    chips.setdefault(device, {})[role] = chip
    about = {role: tuple(n.number for n, f in zip(notes, findings, strict=True) if f.role == role and not n.devices) for role in resolved}
    return Casting(
        chips={device: tuple(found.values()) for device, found in chips.items()} or {"": ()},
        entries=tuple(
            Entry(ROLE_COLOUR[role], role, words(devices, role, one), about[role], meanings(one)) for role, one in resolved.items()
        ),
        lanes=tuple(Role),
        asides=tuple(_asides(devices, topology, resolved)),
        notes=notes,
        description="; ".join(f"{role} on {words(devices, role, one)}" for role, one in resolved.items()),
        unchecked=verdict.unchecked,
        memory={device: memory_of(parts, topology, device) for device, parts in verdict.held.items()},
        sums=verdict.budget,
    )


def memory_of(parts: Mapping[str, float], topology: Topology, device: str) -> Held:
    """What a device holds, beside its memory."""
    gpu, gib = topology.find(device), sum(parts.values())
    of = gpu.memory_gib if gpu is not None else None
    listing = ", ".join(f"{what} {size:.1f} GiB" for what, size in parts.items())
    return Held(gib, of, of is not None and gib > USABLE * of, f"at least {listing}")


def meanings(one: Resolved) -> dict[str, str]:
    """The words of ``how`` that only who knows this project knows -> what they mean."""
    if one.share:
        return {}
    found = {"copies": "a whole model on each GPU"} if _layout(one).endswith("copies") else {}
    found |= {"fsdp": "one model in shards"} if one.layout == "fsdp" else {}
    found |= {"tp": "each layer split over GPUs"} if one.tp > 1 else {}
    found |= {one.mode: MODES[one.mode]} if one.mode in MODES else {}
    return found | ({"hybrid": "actor and rollout take turns"} if one.residency == "hybrid" else {})


def in_driver(devices: DeviceMap, role: Role) -> bool:
    """Whether a role works in the driver's process, on its CPU, and on no slot."""
    return devices.devices_of(role) == ("cpu",)


def aside(devices: DeviceMap, topology: Topology, role: Role) -> bool:
    """Whether a role's place is beside the devices: in the driver, unless the whole map is there and the devices are slots of its CPU."""
    whole = topology.is_cpu and all(in_driver(devices, other) for other in devices.places)
    return in_driver(devices, role) and not whole


def role_chips(role: Role, one: Resolved) -> Iterator[tuple[str, Chip]]:
    """Device -> chip. What holds one model together has one group: a tensor-parallel group, all shards of fsdp, a single device."""
    size = len(one.devices) if one.layout == "fsdp" else one.tp
    whole = len(one.devices) // max(1, size) * size
    for at, device in enumerate(one.devices):
        number = at // max(1, size)
        texts = _labels(role, one, number) if at < whole else (f"{role}, left over", str(role))
        hint = f"{role} on {device}: {one.layout}" + (f", shares the {one.share}'s model" if one.share else "")
        yield device, Chip(role, ROLE_COLOUR[role], (*texts, SHORT.get(role, "")), f"{role} {number}", bool(one.share), hint)


def _labels(role: Role, one: Resolved, number: int) -> tuple[str, ...]:
    if one.layout == "fsdp":
        return f"{role} fsdp", str(role)
    if one.tp == 1:
        return (str(role),)
    count = f" #{number}" if len(one.devices) // one.tp > 1 else ""
    return f"{role} tp{one.tp}{count}", f"{role}{count}", str(role)


def words(devices: DeviceMap, role: Role, one: Resolved) -> str:
    """Where a role is and how, in a line: "0-3 · 2 x tp2, merged"."""
    return " · ".join(part for part in (_where(devices, role, one), how(one)) if part)


def _where(devices: DeviceMap, role: Role, one: Resolved) -> str:
    places = devices.devices_of(role)
    nodes = len({node_of(place) for place in places})
    if one.url or in_driver(devices, role):
        return one.url or DRIVER
    return spans(places) if nodes < 3 else f"{len(places)} GPUs on {nodes} nodes"


def how(one: Resolved) -> str:
    """The layout, how the engine gets its weights, and whether it takes turns: "2 x tp2, merged, hybrid"."""
    if one.share:
        return f"shares the {one.share}'s model"
    return ", ".join(part for part in (_layout(one), one.mode or "", "hybrid" if one.residency == "hybrid" else "") if part)


def _layout(one: Resolved) -> str:
    copies = len(one.devices) // one.tp
    if one.layout == "fsdp":
        return "fsdp"
    if one.tp > 1:
        return f"{copies} x tp{one.tp}" if copies > 1 else f"tp{one.tp}"
    return f"{copies} copies" if copies > 1 else ""


def _asides(devices: DeviceMap, topology: Topology, resolved: Mapping[Role, Resolved]) -> Iterator[Aside]:
    """The driver's CPU, each service, and devices that the machine does not have."""
    places: dict[str, list[Role]] = {}
    for role, one in resolved.items():
        absent = tuple(device for device in one.devices if topology.find(device) is None)
        if one.url:
            places.setdefault(f"service {one.url.removeprefix('http://')}", []).append(role)
        elif aside(devices, topology, role):
            places.setdefault(DRIVER, []).append(role)
        elif absent:
            places.setdefault(f"not on this machine: {spans(absent)}", []).append(role)
    for title in sorted(places, key=lambda title: (title != DRIVER, title)):
        yield Aside(title, tuple((ROLE_COLOUR[role], str(role)) for role in places[title]))


def note(number: int, finding: Finding, topology: Topology) -> Note:
    """A finding with its number, and the devices that its message names."""
    code = CODES.get(finding.code)
    title = f"{finding.code} · {code.title}" if code else finding.code
    return Note(number, finding.severity, title, f"{finding.asked}: {finding.found}", finding.fix.text, named(finding, topology))


def named(finding: Finding, topology: Topology) -> tuple[str, ...]:
    """The devices of the machine that a message says something of: "local:3", "node1:0-3,6". What comes after a ";" explains."""
    found = set()
    for node, numbers in _DEVICES.findall(finding.found.partition(";")[0]):
        for first, _, last in (part.partition("-") for part in numbers.split(",")):
            found |= {f"{node}:{number}" for number in range(int(first), int(last or first) + 1)}
    return tuple(id for id in topology.ids if id in found)
