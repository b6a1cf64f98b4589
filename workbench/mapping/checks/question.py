"""What a map is asked about: the map, the machine, the algorithm, the model, the batch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, spelled
from workbench.findings import Fix
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
    key = "".join(c for c in name.lower().replace("+", "plus") if c.isalnum())
    if key not in (*WITH_CRITIC, *WITHOUT_CRITIC):
        raise ConfigError(f"algo {name[:40]!r}", f"the algorithms are {', '.join((*WITH_CRITIC, *WITHOUT_CRITIC))}", "use one of these")
    return key


@spelled(model="shape", topo="topology", algorithm="algo")
@dataclass(frozen=True)
class Question:
    """A map and what it is to do.

    ``topology`` None: only what needs no machine. ``algo``: "ppo", "grpo" ... ``shape``: the model's, or what names it ("shape:llama-7b", a
    config.json). ``batch``: completions a step. ``lora``: adapters of ``rank`` are trained, else the whole model. ``host``: facts of this
    machine, where the map is to run on it. ``probe``: ask the services whether they answer.
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

    def __post_init__(self) -> None:
        if self.algo is not None:
            object.__setattr__(self, "algo", read_algo(self.algo))
        if isinstance(self.shape, str | Path):
            object.__setattr__(self, "shape", shape_of(self.shape))
        if self.batch is not None and self.batch < 1:
            raise ConfigError(f"batch={self.batch}", "a step has at least one completion", "give 1 or more")

    @property
    def places(self) -> dict[Role, Placement]:
        """Role -> placement."""
        return self.devices.places

    @cached_property
    def resolved(self) -> dict[Role, Resolved]:
        """Role -> what it comes to on the machine."""
        return resolve(self.devices, self.topology, lora=self.lora, shape=self.shape)

    @property
    def placed(self) -> dict[Role, Placement]:
        """The roles that have devices of their own."""
        return {role: place for role, place in self.places.items() if place.devices}

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
        """The same question of the map with other placements."""
        return replace(self, devices=self.devices.patched(patch))

    def written(self, devices: Iterable[str]) -> Group:
        """Devices by name as a map writes them: bare numbers where there is one node."""
        several = self.topology is not None and len(self.topology.nodes) > 1
        return tuple(device if several or device.startswith("cpu:") else device.rpartition(":")[2] for device in devices)

    def together(self, role: Role) -> list[Role]:
        """The roles that have exactly the devices of ``role``, itself first: they move together."""
        mine = self.placed[role].devices
        return [role, *(other for other, place in self.placed.items() if other is not role and place.devices == mine)]

    def move(self, role: Role, devices: Iterable[str], text: str) -> Fix:
        """Give a role, and those beside it, other devices (as a map writes them); tp is cut to what divides them."""
        listed = tuple(devices)
        patch = {str(one): relaid(self.placed[one], listed).to_dict() for one in self.together(role)}
        return Fix(text, patch)


def relaid(place: Placement, devices: Group) -> Placement:
    """The placement on other devices: tp cut to what divides their number, fsdp only over several."""
    tp = gcd(place.tp, len(devices))
    layout = "ddp" if len(devices) == 1 else place.layout
    sharding = place.sharding_strategy if layout == "fsdp" else None
    return place.model_copy(update={"devices": devices, "tp": tp, "dp": None, "layout": layout, "sharding_strategy": sharding})


def changed(role: Role, place: Placement, text: str, **fields: Any) -> Fix:
    """A fix that writes a role's placement with other fields."""
    return Fix(text, {str(role): place.model_copy(update=fields).to_dict()})


def counted(number: int, word: str) -> str:
    """ "1 device", "2 devices"."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def listed(devices: Iterable[str], most: int = 8) -> str:
    """Devices in a sentence."""
    names = list(devices)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
