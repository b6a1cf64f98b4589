"""What a map is asked about: the map, the machine, the algorithm, the model, the batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations
from math import gcd
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, check_kind, spelled
from workbench.findings import Fix
from workbench.mapping.devices import parse_devices
from workbench.mapping.placement import Placement
from workbench.mapping.resolve import Resolved, name_device, resolve
from workbench.mapping.shapes import ModelShape
from workbench.mapping.shapes import shape as shape_of
from workbench.roles import Role
from workbench.topology import GPU, Link, Topology
from workbench.topology.detection.host import Host

if TYPE_CHECKING:
    from workbench.mapping.device_map import DeviceMap

Group = tuple[str, ...]
WITH_CRITIC = ("ppo",)
WITHOUT_CRITIC = ("grpo", "drgrpo", "rloo", "dapo", "gspo", "reinforce", "reinforceplusplus")
TRAINED = (Role.ACTOR, Role.CRITIC)


def read_algo(name: str) -> str:
    """An algorithm's name as this room compares it: "Dr. GRPO" is "drgrpo", "REINFORCE++" is "reinforceplusplus"."""
    check_kind("algo", name, str, "a name such as 'ppo' or 'grpo'")
    key = "".join(c for c in name.lower().replace("+", "plus") if c.isalnum())
    if key not in (*WITH_CRITIC, *WITHOUT_CRITIC):
        raise ConfigError(f"algo {name[:40]!r}", f"the algorithms are {', '.join((*WITH_CRITIC, *WITHOUT_CRITIC))}", "use one of these")
    return key


class Wires:
    """What the links of a topology say of groups, looked up once however many maps are tried on it."""

    def __init__(self, topology: Topology | None) -> None:
        self.topology = topology
        self._found: dict[Group, tuple[Link, ...]] = {}

    def within(self, devices: Group) -> tuple[Link, ...]:
        """What the machine says of the pairs of those ``devices`` that it has."""
        if devices not in self._found:
            known = [device for device in devices if self.topology is not None and self.topology.find(device)]
            links = (self.topology.link(a, b) for a, b in combinations(known, 2)) if self.topology is not None else ()
            self._found[devices] = tuple(link for link in links if link is not None)
        return self._found[devices]


@spelled(model="shape", topo="topology", algorithm="algo")
@dataclass(frozen=True)
class Question:
    """A map and what it is to do.

    ``topology`` None: only what needs no machine. ``algo``: "ppo", "grpo" ... ``shape``: the model's, or what names it ("shape:llama-7b", a
    config.json). ``batch``: completions a step. ``lora``: adapters of ``rank`` are trained, else the whole model. ``host``: facts of this
    machine, where the map is to run on it. ``probe``: ask the services whether they answer. ``brief``: only what is so; what to do about
    it is left out where that takes long to find. ``wires``: handed on to the questions of other maps. Raises ConfigError on what is
    none of these.
    """

    devices: "DeviceMap"
    topology: Topology | None = None
    algo: str | None = None
    shape: ModelShape | None = None
    batch: int | None = None
    lora: bool = True
    rank: int = 16
    host: Host | None = None
    probe: bool = False
    brief: bool = False
    wires: Wires = field(default_factory=lambda: Wires(None), repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.algo is not None:
            object.__setattr__(self, "algo", read_algo(self.algo))
        if self.shape is not None and not isinstance(self.shape, ModelShape):
            object.__setattr__(self, "shape", shape_of(self.shape))
        if self.topology is not None:
            check_kind("topology", self.topology, Topology, "a topology, such as Topology.preset('dgx-a100')")
        if self.host is not None:
            check_kind("host", self.host, Host, "facts of this machine, as workbench.topology.detection.host.host() finds them")
        if self.batch is not None:
            _check_count("batch", self.batch, "a step has at least one completion")
        _check_count("rank", self.rank, "an adapter has rank 1 or more")
        for name in ("lora", "probe"):
            check_kind(name, getattr(self, name), bool, "True or False")
        if self.wires.topology is not self.topology:
            object.__setattr__(self, "wires", Wires(self.topology))

    @cached_property
    def places(self) -> Mapping[Role, Placement]:
        """Role -> placement."""
        return self.devices.places

    @cached_property
    def resolved(self) -> dict[Role, Resolved]:
        """Role -> what it comes to on the machine."""
        return resolve(self.devices, self.topology, lora=self.lora, shape=self.shape)

    @cached_property
    def placed(self) -> dict[Role, Placement]:
        """The roles that have devices of their own."""
        return {role: place for role, place in self.places.items() if place.devices}

    @property
    def spoken(self) -> dict[Role, Placement]:
        """Those of ``placed`` whose devices somebody wrote: a rollout that only follows the actor is no second mistake."""
        actor = self.placed.get(Role.ACTOR)
        follows = actor is not None and self.placed.get(Role.ROLLOUT) == Placement(devices=actor.devices)
        return {role: place for role, place in self.placed.items() if not (follows and role is Role.ROLLOUT)}

    def named(self, role: Role) -> Group:
        """The devices of a role by name, those of its host included."""
        return self.resolved[role].devices if role in self.resolved else ()

    def gpus(self, role: Role) -> tuple[GPU, ...]:
        """The GPUs of a role that the machine has."""
        found = [self.topology.find(device) for device in self.named(role)] if self.topology else []
        return tuple(gpu for gpu in found if gpu is not None)

    def tp_groups(self, role: Role) -> list[Group]:
        """The tensor-parallel groups of a role with own devices that the machine has whole."""
        place = self.placed.get(role)
        if place is None or place.tp < 2 or self.topology is None:
            return []
        groups = place.groups(tuple(name_device(device, self.topology) for device in place.devices))
        return [group for group in groups if all(self.topology.find(device) for device in group)]

    def link(self, a: str, b: str) -> Link | None:
        """What lies between two devices of the machine."""
        return self.topology.link(a, b) if self.topology else None

    @cached_property
    def idle(self) -> Group:
        """GPUs of the machine that no role has."""
        if self.topology is None or self.topology.is_cpu:
            return ()
        used = {device for role in self.places for device in self.named(role)}
        return tuple(device for device in self.topology.ids if device not in used)

    @property
    def means_all(self) -> bool:
        """Whether the map has at least half of the machine's GPUs; else the rest is probably for somebody else."""
        return self.topology is not None and 2 * len(self.idle) <= len(self.topology.gpus)

    def with_map(self, patch: Mapping[str, Any]) -> "Question":
        """The same question of the map with other placements, as JSON."""
        return replace(self, devices=self.devices.patched(patch))

    def trying(self, places: Mapping[Role, Placement]) -> "Question":
        """As ``with_map``, of placements that need not be read: quick enough for trying many."""
        written = dict(self.places) | dict(places)
        if Role.ACTOR in places and Role.ROLLOUT not in places and Role.ROLLOUT in self.placed and Role.ROLLOUT not in self.spoken:
            written[Role.ROLLOUT] = Placement(devices=places[Role.ACTOR].devices)  # it follows the actor
        named: dict[str, Any] = {str(role): place for role, place in written.items()}
        return replace(self, devices=type(self.devices).model_construct(None, **named))

    def written(self, devices: Iterable[str]) -> Group:
        """Devices by name as a map writes them: bare numbers where there is one node."""
        if self.topology is None:
            return tuple(device.removeprefix("local:") for device in devices)
        several = len(self.topology.nodes) > 1
        return tuple(device if several or device.startswith("cpu:") else device.rpartition(":")[2] for device in devices)

    def together(self, role: Role) -> list[Role]:
        """The roles that have exactly the devices of ``role``, itself first: they move together."""
        return [role, *(other for other in self.placed if other is not role and self.named(other) == self.named(role))]

    def move(self, role: Role, devices: Iterable[str], text: str) -> Fix:
        """Give a role, and those beside it, other devices (as a map writes them): whole groups of its tp, or one smaller one."""
        given = whole_groups(self.placed[role], tuple(devices))
        if not given:
            return Fix(text)
        moved = {one: relaid(self.placed[one], given) for one in self.together(role)}
        split = [f"{one} then tp {place.tp}" for one, place in moved.items() if place.tp != self.placed[one].tp]
        return Fix("; ".join([text, *split]), as_patch(moved))


def _check_count(name: str, value: object, found: str) -> None:
    check_kind(name, value, int, "a whole number, 1 or more")
    if isinstance(value, int) and value < 1:
        raise ConfigError(f"{name}={value}", found, "give 1 or more")


def as_patch(places: Mapping[Role, Placement]) -> dict[str, Any]:
    """Placements as JSON."""
    return {str(role): place.to_dict() for role, place in places.items()}


def can_be_said(patch: Mapping[str, Any]) -> bool:
    """Whether a map's file can name the devices of a patch: not those of a node whose name has letters that no map knows."""
    named = [place["devices"] for place in patch.values() if isinstance(place, Mapping) and "devices" in place]
    try:
        return all(parse_devices(str(one), "patch") for devices in named for one in (devices if isinstance(devices, list) else [devices]))
    except ConfigError:
        return False


def whole_groups(place: Placement, devices: Group) -> Group:
    """The first of ``devices``, as many as make whole groups of the placement's tp; all of them where there are too few for one."""
    return devices[: len(devices) // place.tp * place.tp] or devices


def relaid(place: Placement, devices: Group) -> Placement:
    """The placement on other devices: tp cut to what divides their number, dp to what is left, fsdp only over several."""
    layout = "ddp" if len(devices) == 1 else place.layout
    sharding = place.sharding_strategy if layout == "fsdp" else None
    moved = place.model_copy(update={"devices": devices, "layout": layout, "sharding_strategy": sharding})
    return resized(moved, gcd(place.tp, len(devices)))


def resized(place: Placement, tp: int, **fields: Any) -> Placement:
    """The placement with another tp, and, where it says dp, the dp that goes with it."""
    dp = None if place.dp is None else max(1, len(place.devices) // tp)
    return place.model_copy(update={"tp": tp, "dp": dp, **fields})


def changed(role: Role, place: Placement, text: str, **fields: Any) -> Fix:
    """A fix that writes a role's placement with other fields."""
    return Fix(text, as_patch({role: place.model_copy(update=fields)}))


def counted(number: int, word: str) -> str:
    """ "1 device", "2 devices"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def listed(names: Iterable[str], most: int = 8) -> str:
    """Names in a sentence. Devices are shorter as spans."""
    found = list(names)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")
