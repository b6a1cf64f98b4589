"""Which role runs where: one model behind YAML, JSON, Python and compact strings.

A map may say what no machine or no version can obey: ``check`` tells, with a fix for each. ``on`` draws it on a machine.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, model_serializer

from workbench.errors import ConfigError, check_kind
from workbench.findings import Finding
from workbench.mapping.dialect import placements
from workbench.mapping.placement import Placement
from workbench.mapping.resolve import Resolved, name_device, resolve, same_devices
from workbench.mapping.runnable import check_present, check_runnable
from workbench.mapping.source import Source, from_python, read_file, read_text
from workbench.roles import Role
from workbench.topology import Topology

if TYPE_CHECKING:
    from workbench.mapping.checks import Question
    from workbench.mapping.on_machine import OnMachine
    from workbench.mapping.shapes import ModelShape

DEFAULTS = {Role.REFERENCE: Placement(share="actor"), Role.REWARD: Placement(devices=("cpu",))}


class DeviceMap(BaseModel):
    """Role -> devices, as compact strings: "cpu", "0", "0-3", "0,2", "0-3 fsdp", "0-1 tp2", "node1:0-3", "share:actor", "http://host:8080".

    ``DeviceMap()`` is everything on the CPU, ``DeviceMap(actor="0")`` everything on the first GPU. A role may also be a mapping with the
    keys of a map's file (docs/maps.md). ``rollout`` left out: on the actor's devices. ``reference="share:actor"``: the actor with its
    adapter off. ``reward="cpu"``: functions in the driver's process. ``critic`` left out: none. Raises ConfigError on what is no map; what
    a map can't do ``check`` tells.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    actor: Placement | None = None
    critic: Placement | None = None
    rollout: Placement | None = None
    reference: Placement | None = None
    reward: Placement | None = None

    def __init__(self, **roles: Any) -> None:
        written = {name: value for name, value in roles.items() if value is not None and not (isinstance(value, str) and value == "")}
        super().__init__(**_completed(placements(from_python(written))))

    @classmethod
    def of(cls, source: Source) -> "DeviceMap":
        """The map that a text or a file says."""
        return cls(**{str(role): place for role, place in placements(source).items()})

    @classmethod
    def parse(cls, text: str, name: str = "device map") -> "DeviceMap":
        """The map in YAML or JSON text. ``name``: of it, for messages. Raises ConfigError, with the line."""
        check_kind("DeviceMap.parse: text", text, str, "the text of a map, such as 'actor: 0'")
        check_kind("DeviceMap.parse: name", name, str, "a name for messages")
        return cls.of(read_text(text, name))

    @classmethod
    def load(cls, source: "str | Path | Mapping[str, Any] | DeviceMap | None") -> "DeviceMap":
        """A map from what a person writes: devices, a file (YAML or JSON) or its text, a mapping, a map, or None for ``auto``."""
        if source is None or source == "":
            return cls.auto()
        if isinstance(source, DeviceMap):
            return source
        if isinstance(source, Mapping):
            return cls.of(from_python(source))
        if isinstance(source, str) and (": " in source or "\n" in source):
            return cls.parse(source)
        if isinstance(source, Path) or _is_file(source):
            return cls.of(read_file(Path(source)))
        return cls(actor=source)

    @classmethod
    def auto(cls) -> "DeviceMap":
        """Everything on the first visible GPU, or on the CPU where there is none."""
        import torch

        return cls(actor="0" if torch.cuda.is_available() else "cpu")

    @staticmethod
    def json_schema() -> dict[str, Any]:
        """The JSON Schema of a map's file, for editors."""
        from workbench.mapping.entry import json_schema

        return json_schema()

    @property
    def places(self) -> dict[Role, Placement]:
        """Role -> placement, for the roles that the map has."""
        return {role: place for role in Role if (place := getattr(self, role)) is not None}

    def devices_of(self, role: Role) -> tuple[str, ...]:
        """The devices of ``role``, those of the role it shares with included. Empty where the map has no such role, and for a service."""
        place = self.places.get(role, Placement())
        host = self.places.get(Role(place.share)) if place.share in list(Role) else None
        return host.devices if host else place.devices

    @property
    def device(self) -> str:
        """Where the actor is, as torch names the kind: "cpu" or "cuda"."""
        return "cpu" if self.actor is None or self.actor.on_cpu else "cuda"

    @property
    def placement(self) -> dict[str, list[str]]:
        """Role -> devices, as events and files name them: "cpu:0", "local:3"."""
        return {str(role): [name_device(device, None) for device in self.devices_of(role)] for role in self.places}

    def resolve(
        self, topology: Topology | str | None = None, *, lora: bool = True, shape: "ModelShape | None" = None
    ) -> dict[Role, Resolved]:
        """Role -> devices by name, sizes, and how the engine gets its weights. ``shape``: of the model, for whether a second copy fits."""
        return resolve(self, _machine(topology), lora=lora, shape=shape)

    def check(self, topology: Topology | str | None = None, **asked: Any) -> tuple[Finding, ...]:
        """Everything that is wrong with the map, unwise or worth knowing, the gravest first; without a topology what needs none.

        ``topology``: a machine, or a preset's name. ``asked``: model="shape:qwen2.5-7b" (or a config.json), algo="ppo", batch=256
        (completions a step), lora=False (the whole model trains), host=..., probe=True (ask the services).
        """
        from workbench.mapping.checks import check

        return check(self._question(topology, asked))

    def mended(self, topology: Topology | str | None = None, **asked: Any) -> "DeviceMap":
        """The map with the patches of its findings, checked anew after each: one can make another wrong. ``asked``: as for ``check``."""
        from workbench.mapping.checks import mended

        return mended(self._question(topology, asked))[0]

    def on(self, topology: Topology | str | None = None, **asked: Any) -> "OnMachine":
        """The map on a machine (None: this one): as the last line of a cell, a drawing with roles on GPUs, and the findings.

        ``topology``, ``asked``: as for ``check``.
        """
        from workbench.mapping.on_machine import OnMachine

        return OnMachine.of(self._question(Topology.detect() if topology is None else topology, asked))

    def _question(self, topology: Topology | str | None, asked: Mapping[str, Any]) -> "Question":
        from workbench.mapping.checks import Question

        words = {"shape" if name == "model" else name: value for name, value in asked.items()}
        return Question(self, _machine(topology), **words)

    def apply(self, finding: Finding) -> "DeviceMap":
        """The map with the patch of ``finding``; check again before the next (``mended`` does). Raises ConfigError where it has none."""
        check_kind("apply", finding, Finding, "one of the findings of check(...)")
        if finding.fix.patch is None:
            raise ConfigError(f"apply({finding.code})", "it has no patch", finding.fix.text)
        return self.patched(finding.fix.patch)

    def patched(self, patch: Mapping[str, Any]) -> "DeviceMap":
        """The map with other placements. ``patch``: role -> placement, None: no such role."""
        check_kind("patched", patch, Mapping, "{'actor': '0-3 fsdp'}")
        changed = {str(role): place for role, place in self.places.items()} | {str(role): place for role, place in patch.items()}
        if "rollout" not in patch and "actor" in patch and self.rollout == _engine_beside(self.actor):
            changed["rollout"] = None  # it follows the actor, as where it was left out
        return DeviceMap(**changed)

    def __str__(self) -> str:
        """A table of the roles."""
        rows = [("role", "devices", "how"), *((str(role), self._where(role), self._how(role)) for role in self.places)]
        width = max(len(where) for _, where, _ in rows)
        return "\n".join(f"{role:<9}  {where:<{width}}  {how}".rstrip() for role, where, how in rows)

    __repr__ = __str__

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The table, as the last line of a notebook's cell."""
        printer.text(str(self))

    @model_serializer
    def _dumped(self) -> dict[str, Any]:
        """``model_dump`` gives what a file says, so that it can be read again."""
        return self.to_dict()

    def to_dict(self) -> dict[str, Any]:
        """The map as plain values that ``load`` reads."""
        return {str(role): place.to_dict() for role, place in self.places.items()}

    def to_yaml(self) -> str:
        """The map as a file that ``load`` reads."""
        return "".join(f"{role}: {flow(place)}\n" for role, place in self.to_dict().items())

    def check_present(self) -> None:
        """Raise ConfigError where the map wants GPUs of this machine and torch sees none."""
        check_present(self)

    def check_runnable(self, machine: Topology | None = None, *, lora: bool = True) -> None:
        """Raise ConfigError where the map contradicts itself, or this version can't obey it. ``machine``: CPU slots, if any."""
        check_runnable(self, machine, lora=lora)

    def _where(self, role: Role) -> str:
        place = self.places[role]
        return place.url or str(Placement(devices=self.devices_of(role)))

    def _how(self, role: Role) -> str:
        """What a reader wants to know beside the devices."""
        place = self.places[role]
        if place.share:
            return f"shares the {place.share}'s model"
        layout = f"{place.copies} x tp{place.tp}" if place.tp > 1 else place.layout
        turns = role is Role.ROLLOUT and same_devices(self, role, Role.ACTOR)
        rest = {key: value for key, value in place.to_dict().items() if key not in ("devices", "layout", "tp", "dp", "url")}
        said = [key.replace("_", " ") if value is True else f"{key} {value}" for key, value in rest.items()]
        return ", ".join([layout] * (len(place.devices) > 1) + ["takes turns with the actor"] * turns + said)


def flow(value: Any) -> str:
    """A value as YAML in one line."""
    import yaml

    text: str = yaml.safe_dump(value, default_flow_style=True, sort_keys=False, width=10**6, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _engine_beside(actor: Placement | None) -> Placement | None:
    """The rollout of a map that names none: on the actor's devices, one engine on each."""
    return None if actor is None else Placement(devices=actor.devices)


def _completed(places: Mapping[Role, Placement]) -> dict[str, Placement]:
    """The roles with those that a map may leave out. An empty map is everything on the CPU."""
    found = {str(role): place for role, place in places.items()} or {"actor": Placement(devices=("cpu",))}
    engine = _engine_beside(found.get("actor"))
    if engine is not None and engine.devices:
        found = {"rollout": engine} | found
    return {str(role): place for role, place in DEFAULTS.items()} | found


def _machine(topology: Topology | str | None) -> Topology | None:
    """A machine, or the preset of that name."""
    if isinstance(topology, str):
        return Topology.preset(topology)
    if topology is not None:
        check_kind("topology", topology, Topology, "a topology, or a preset's name such as 'dgx-a100'")
    return topology


def _is_file(text: object) -> bool:
    """Whether ``text`` is the path of a map rather than devices."""
    try:
        return isinstance(text, str) and (text.endswith((".yaml", ".yml", ".json")) or "/" in text or Path(text).is_file())
    except OSError:  # a name too long for one
        return False
