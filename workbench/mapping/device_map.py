"""Which role runs where. This version knows the maps that one process can obey: every model on one device.

Strings as in the design: "0" (one GPU), "cpu", "share:actor". A role on several devices, or on devices of its own, is refused
with the reason.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.roles import Role

ONE = "every model shares one device in this version; roles on their own GPU groups come with the Ray runtime"


@dataclass(frozen=True)
class DeviceMap:
    """Role -> device. ``DeviceMap()`` is everything on the CPU; ``DeviceMap(actor="0", rollout="0")`` everything on the first GPU.

    ``reference="share:actor"`` is the actor with its adapter off. ``reward="cpu"``: reward functions run in this process.
    Raises ConfigError on what can't be obeyed.
    """

    actor: str = "cpu"
    rollout: str = ""  # as the actor
    reference: str = "share:actor"
    reward: str = "cpu"

    def __post_init__(self) -> None:
        for role in ("actor", "rollout", "reference", "reward"):
            object.__setattr__(self, role, str(getattr(self, role)).strip())
        if not self.rollout:
            object.__setattr__(self, "rollout", self.actor)
        self._check_actor()
        if self.rollout != self.actor:
            raise ConfigError(f"rollout: {self.rollout!r} beside actor: {self.actor!r}", ONE, f"write rollout={self.actor!r}")
        if self.reference != "share:actor":
            raise ConfigError(
                f"reference: {self.reference!r}", "the reference is the actor with its adapter off", "write reference='share:actor'"
            )
        if self.reward != "cpu":
            raise ConfigError(f"reward: {self.reward!r}", "rewards are functions in this process", "write reward='cpu'")

    def _check_actor(self) -> None:
        asked = f"actor: {self.actor!r}"
        if self.actor in ("cpu", "0"):
            return
        if self.actor.isdigit():
            found = "in one process every model is on the first visible GPU"
            fix = f"start the kernel with CUDA_VISIBLE_DEVICES={self.actor} and write '0'"
            raise ConfigError(asked, found, fix)
        if any(character in self.actor for character in ",-") or " " in self.actor:
            raise ConfigError(asked, ONE, "write 'cpu' or '0'")
        raise ConfigError(asked, "that is no device", "write 'cpu', or '0' for the first GPU")

    def check_present(self) -> None:
        """Raise ConfigError where the map wants a GPU and there is none that torch can use."""
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            found = "torch sees no GPU here" + ("" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)")
            raise ConfigError(f"actor: {self.actor!r}", found, "write 'cpu', or see `workbench doctor`")

    @classmethod
    def auto(cls) -> "DeviceMap":
        """Everything on the first visible GPU, or on the CPU where there is none."""
        import torch

        return cls(actor="0" if torch.cuda.is_available() else "cpu")

    @classmethod
    def load(cls, source: "str | Path | dict[str, Any] | DeviceMap | None") -> "DeviceMap":
        """A map from what a person writes: a device, a file (YAML or JSON), a mapping, a map, or None for ``auto``."""
        if source is None or source == "":
            return cls.auto()
        if isinstance(source, DeviceMap):
            return source
        if isinstance(source, dict):
            return cls._from_mapping(source, "device map")
        if isinstance(source, str) and (source.isdigit() or source == "cpu"):
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
        places = {}
        for name, value in data.items():
            role = Role.read(str(name))
            if role is Role.CRITIC:
                raise ConfigError(f"{asked}, critic", "no algorithm of this version has one", "leave the critic out")
            places[str(role)] = _place(value, f"{asked}, {name}")
        return cls(**places)

    @property
    def device(self) -> str:
        """Where the models are, as torch names the kind: "cpu" or "cuda"."""
        return "cpu" if self.actor == "cpu" else "cuda"

    @property
    def placement(self) -> dict[str, list[str]]:
        """Role -> devices, as events and files name them."""
        device = "cpu:0" if self.actor == "cpu" else f"local:{self.actor}"
        return {"actor": [device], "rollout": [device], "reference": [device], "reward": ["cpu:0"]}


def _place(value: Any, asked: str) -> str:
    """One role's place as a compact string."""
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, dict) and value.keys() == {"share"}:
        return f"share:{value['share']}"
    if isinstance(value, dict) and value.keys() == {"devices"}:
        devices = value["devices"]
        if isinstance(devices, str | int):
            return str(devices)
        if isinstance(devices, list) and len(devices) == 1:
            return str(devices[0])
        raise ConfigError(f"{asked}, devices: {devices!r}", ONE, "write one of them, the same for actor and rollout")
    raise ConfigError(asked, f"{value!r} is not understood in this version", "write {devices: cpu}, {devices: 0} or {share: actor}")
