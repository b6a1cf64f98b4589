"""Which role runs where. A map may say more than this version can run: ``check_runnable`` tells, before a run is made of it."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.mapping.placement import Placement, parse, read
from workbench.roles import Role

ONE = "every model shares one device in this version; roles on their own GPU groups come with the Ray runtime"


@dataclass(frozen=True)
class DeviceMap:
    """Role -> devices, each as a compact string: "cpu", "0", "0-3", "0,2", "0-3 fsdp", "0-1 tp2", "share:actor".

    ``DeviceMap()`` is everything on the CPU, ``DeviceMap(actor="0")`` everything on the first GPU. ``rollout`` left out: on the actor's
    devices. ``reference="share:actor"``: the actor with its adapter off. ``reward="cpu"``: functions in the driver's process.
    ``critic`` left out: none. Raises ConfigError on what no version could obey; see ``check_runnable`` for what this one can.
    """

    actor: str = "cpu"
    rollout: str = ""
    reference: str = "share:actor"
    reward: str = "cpu"
    critic: str = ""

    def __post_init__(self) -> None:
        written = {role: str(getattr(self, role)).strip() for role in Role}
        written[Role.ROLLOUT] = written[Role.ROLLOUT] or written[Role.ACTOR].split(" ")[0]
        for role, text in written.items():
            object.__setattr__(self, role, str(parse(text, f"{role}: {text!r}")) if text or role is not Role.CRITIC else "")
        for role in self.places:
            self._check(role, f"{role}: {getattr(self, role)!r}")

    @cached_property
    def places(self) -> dict[Role, Placement]:
        """Role -> placement, for the roles that the map has."""
        return {role: parse(text, role) for role in Role if (text := getattr(self, role))}

    def devices_of(self, role: Role) -> tuple[str, ...]:
        """The devices of ``role``, those of the role it shares with included. Empty where the map has no such role."""
        place = self.places.get(role, Placement())
        return self.places[Role(place.share)].devices if place.share else place.devices

    @property
    def device(self) -> str:
        """Where the actor is, as torch names the kind: "cpu" or "cuda"."""
        return "cpu" if self.actor == "cpu" else "cuda"

    @property
    def placement(self) -> dict[str, list[str]]:
        """Role -> devices, as events and files name them: "cpu:0", "local:3"."""
        return {str(role): ["cpu:0" if d == "cpu" else f"local:{d}" for d in self.devices_of(role)] for role in self.places}

    def __str__(self) -> str:
        """A table of the roles."""
        rows = [("role", "devices", "how"), *((role, str(Placement(self.devices_of(role))), self._how(role)) for role in self.places)]
        width = max(len(where) for _, where, _ in rows)
        return "\n".join(f"{role:<9}  {where:<{width}}  {how}".rstrip() for role, where, how in rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """The table, as the last line of a notebook's cell."""
        printer.text(str(self))

    def to_yaml(self) -> str:
        """The map as a file that ``load`` reads."""
        return "".join(f"{role}: {place.to_yaml()}\n" for role, place in self.places.items())

    def check_present(self) -> None:
        """Raise ConfigError where this version can't run the map, or where torch sees no GPU for it."""
        import torch

        self.check_runnable()
        if self.device == "cuda" and not torch.cuda.is_available():
            found = "torch sees no GPU here" + ("" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)")
            raise ConfigError(f"actor: {self.actor!r}", found, "write 'cpu', or see `workbench doctor`")

    def check_runnable(self) -> None:
        """Raise ConfigError where one process can't obey the map: this version runs every role in one process, on one device."""
        if self.critic:
            raise ConfigError(f"critic: {self.critic!r}", "no algorithm of this version has one", "leave the critic out")
        if len(self.places[Role.ACTOR].devices) > 1:
            raise ConfigError(f"actor: {self.actor!r}", ONE, "write 'cpu' or '0'")
        if self.actor not in ("cpu", "0"):
            fix = f"start the kernel with CUDA_VISIBLE_DEVICES={self.actor} and write '0'"
            raise ConfigError(f"actor: {self.actor!r}", "in one process every model is on the first visible GPU", fix)
        if self.rollout != self.actor:
            raise ConfigError(f"rollout: {self.rollout!r} beside actor: {self.actor!r}", ONE, f"write rollout={self.actor!r}")
        if self.reference != "share:actor":
            found = "the reference is the actor with its adapter off"
            raise ConfigError(f"reference: {self.reference!r}", found, "write reference='share:actor'")
        if self.reward != "cpu":
            raise ConfigError(f"reward: {self.reward!r}", "rewards are functions in this process", "write reward='cpu'")

    @classmethod
    def auto(cls) -> "DeviceMap":
        """Everything on the first visible GPU, or on the CPU where there is none."""
        import torch

        return cls(actor="0" if torch.cuda.is_available() else "cpu")

    @classmethod
    def load(cls, source: "str | Path | dict[str, Any] | DeviceMap | None") -> "DeviceMap":
        """A map from what a person writes: devices, a file (YAML or JSON), a mapping, a map, or None for ``auto``."""
        if source is None or source == "":
            return cls.auto()
        if isinstance(source, DeviceMap):
            return source
        if isinstance(source, dict):
            return cls._from_mapping(source, "device map")
        if isinstance(source, str) and re.fullmatch(r"cpu|\d[\d,-]*", source):
            return cls(actor=source)
        return cls._from_file(Path(source))

    @classmethod
    def _from_file(cls, path: Path) -> "DeviceMap":
        import yaml

        asked = f"device map {str(path)!r}"
        try:
            data = yaml.safe_load(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ConfigError(asked, error.strerror or str(error), "give a file that can be read") from error
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ConfigError(asked, f"no YAML: {' '.join(str(error).split())}", "see recipes/maps/ for examples") from error
        if not isinstance(data, dict):
            raise ConfigError(asked, f"holds {type(data).__name__}, not roles", "write lines such as 'actor: {devices: cpu}'")
        return cls._from_mapping(data, asked)

    @classmethod
    def _from_mapping(cls, data: dict[str, Any], asked: str) -> "DeviceMap":
        return cls(**{str(Role.read(str(name))): str(read(value, f"{asked}, {name}")) for name, value in data.items()})

    def _check(self, role: Role, asked: str) -> None:
        """Refuse what no version could obey."""
        place, own = self.places[role], role in (Role.ACTOR, Role.ROLLOUT, Role.REWARD)
        if place.share and (own or place.share != Role.ACTOR):
            found = f"the {role} has a model of its own" if own else "only the actor's model can be shared"
            raise ConfigError(asked, found, "name its devices" if own else f"write {role}='share:actor'")
        if place.layout == "fsdp" and role is Role.ROLLOUT:
            raise ConfigError(asked, "the engine splits a model by tensor parallelism", f"write '{asked.split()[1][1:]}', or tp2 after it")
        mine, actors = self.devices_of(role), self.devices_of(Role.ACTOR)
        if role in (Role.ROLLOUT, Role.CRITIC) and mine != actors and set(mine) & set(actors):
            found = f"both have device {', '.join(d for d in mine if d in actors)}, and not the same ones beside"
            fix = f"give them the same devices, {str(Placement(actors))!r}, or ones apart"
            raise ConfigError(f"{asked} beside actor: {self.actor!r}", found, fix)

    def _how(self, role: Role) -> str:
        """What a reader wants to know beside the devices."""
        place = self.places[role]
        if place.share:
            return f"shares the {place.share}'s model"
        layout = f"{len(place.devices) // place.tp} x tp{place.tp}" if place.tp > 1 else place.layout
        turns = role is Role.ROLLOUT and place.devices == self.devices_of(Role.ACTOR)
        return ", ".join([layout] * (len(place.devices) > 1) + ["takes turns with the actor"] * turns)
