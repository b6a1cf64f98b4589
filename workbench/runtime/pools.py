"""A map as pools: one process per device for the roles that have exactly those devices. Plain data, no torch, no Ray."""

from dataclasses import dataclass
from itertools import pairwise

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.mapping.devices import number_of
from workbench.mapping.placement import Placement
from workbench.mapping.resolve import named
from workbench.roles import Role
from workbench.topology import Topology

TRAINED = (Role.ACTOR, Role.CRITIC)


@dataclass(frozen=True)
class Pool:
    """The roles of one set of devices. Rank r of its world is the process on ``devices[r]``."""

    roles: tuple[Role, ...]
    devices: tuple[str, ...]  # "local:0", "node1:3", "cpu:1"
    layout: str = "ddp"  # of the model that is trained or scored with: "ddp", "fsdp", "tp=2"
    sharding: str = "FULL_SHARD"  # of fsdp
    engine_tp: int = 1  # devices of one engine
    strided: bool = False  # of n engines each has every n-th device, instead of consecutive ones
    nccl: str = ""  # "ring", "p2p", or NCCL's own choice
    on_cpu: bool = False  # its devices are CPU slots

    @property
    def name(self) -> str:
        """ "actor+rollout"."""
        return "+".join(self.roles)

    @property
    def size(self) -> int:
        """Processes."""
        return len(self.devices)

    @property
    def is_world(self) -> bool:
        """Whether its processes work in one torch.distributed world; engines of one device each, and rewards, never talk to one another."""
        trains = not {Role.ACTOR, Role.CRITIC, Role.REFERENCE}.isdisjoint(self.roles)
        return self.size > 1 and (trains or self.engine_tp > 1)

    def layout_of(self, role: Role) -> str:
        """As ``placement.json`` says it: the engine has a layout of its own, and a reward none."""
        if role is Role.ROLLOUT:
            return f"tp={self.engine_tp}" if self.engine_tp > 1 else "ddp"
        return self.layout if role is not Role.REWARD else "ddp"

    def fan(self, role: Role) -> "Fan":
        """How work for ``role`` is spread over the ranks."""
        width = self.engine_tp if role is Role.ROLLOUT else _width(self.layout) if role is not Role.REWARD else 1
        return Fan(self.size // width, width, self.strided and role is Role.ROLLOUT)


@dataclass(frozen=True)
class Fan:
    """``copies`` models of ``width`` ranks each: the copies share the work, the ranks of one copy do the same work.

    ``strided``: each copy has every ``copies``-th rank, instead of consecutive ones.
    """

    copies: int
    width: int = 1
    strided: bool = False

    @property
    def leaders(self) -> tuple[int, ...]:
        """The rank of each copy whose answer counts."""
        return tuple(range(self.copies) if self.strided else range(0, self.copies * self.width, self.width))

    def copy_of(self, rank: int) -> int:
        """Which copy a rank belongs to."""
        return rank % self.copies if self.strided else rank // self.width

    def slices(self, count: int) -> tuple[range, ...]:
        """0 .. count-1 in one run for each copy, of nearly equal length."""
        cuts = [count * copy // self.copies for copy in range(self.copies + 1)]
        return tuple(range(a, b) for a, b in pairwise(cuts))


def machine_of(devices: DeviceMap, topology: Topology | None) -> Topology | None:
    """The machine that names a map's devices: as given; slots of the CPU where the map names them; else None (this machine's GPUs)."""
    if topology is not None:
        return topology
    slots = [number_of(device) for place in devices.places.values() for device in place.devices if device.startswith("cpu:")]
    return Topology.cpu(max(slots) + 1) if slots else None


def in_driver(devices: DeviceMap, role: Role) -> bool:
    """Whether a role works in the driver's process: rewards that are on "cpu" are functions there."""
    return role is Role.REWARD and devices.places[role].devices == ("cpu",)


def homes(devices: DeviceMap, topology: Topology | None = None) -> dict[str, list[str]]:
    """Role -> devices by name, for people and views. Beside CPU slots the driver's own CPU is "driver:0": it is none of them."""
    machine = machine_of(devices, topology)
    here = "driver:0" if machine is not None and machine.is_cpu else "cpu:0"
    return {role.value: [here] if in_driver(devices, role) else list(named(devices, role, machine)) for role in devices.places}


def split(devices: DeviceMap, topology: Topology | None = None) -> tuple[Pool, ...]:
    """The pools of a map, the actor's first. Raises ConfigError where two roles of one pool are laid out differently."""
    grouped: dict[frozenset[str], list[Role]] = {}
    for role, place in devices.places.items():
        if not in_driver(devices, role) and not place.url:
            grouped.setdefault(frozenset(named(devices, role, topology)), []).append(role)
    return tuple(_pool(devices, tuple(roles), topology) for roles in grouped.values())


def _pool(devices: DeviceMap, roles: tuple[Role, ...], topology: Topology | None) -> Pool:
    places = {role: devices.places[role] for role in roles if not devices.places[role].share}
    model = _model_place(places)
    engine = places.get(Role.ROLLOUT)
    devices_of = named(devices, roles[0], topology)
    backends = {backend for role in roles if (backend := devices.places[role].nccl_backend) in ("ring", "p2p")}
    return Pool(
        roles=roles,
        devices=devices_of,
        layout=model.layout_name if model else "ddp",
        sharding=(model.sharding_strategy if model else None) or "FULL_SHARD",
        engine_tp=engine.tp if engine else 1,
        nccl=min(filter(None, backends), default=""),
        on_cpu=_is_cpu(devices_of[0], topology),
    )


def _model_place(places: dict[Role, Placement]) -> Placement | None:
    """The layout of the model in a pool's trainers; a reference has that of the actor beside it, whose base it is."""
    trained = {role: place for role, place in places.items() if role in TRAINED}
    layouts = {(place.layout_name, place.sharding_strategy) for place in trained.values()}
    if len(layouts) > 1:
        words = ", ".join(f"{role}: {str(place)!r}" for role, place in trained.items())
        found = "they share their processes, and a process lays its models out in one way"
        raise ConfigError(words, found, "give both one layout, or devices of their own")
    return next(iter(trained.values()), None) or places.get(Role.REFERENCE)


def _is_cpu(device: str, topology: Topology | None) -> bool:
    gpu = topology.find(device) if topology is not None else None
    return gpu.kind == "cpu" if gpu is not None else device.startswith("cpu:")


def _width(layout: str) -> int:
    return int(layout.removeprefix("tp=")) if layout.startswith("tp=") else 1
