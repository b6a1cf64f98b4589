"""Where one role runs and how its model lies there, as people write it: "0-3", "0,2 fsdp", "0-1 tp2", "cpu", "share:actor"."""

import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from workbench.errors import ConfigError
from workbench.mapping.devices import FORMS, node_of, number_of, parse_devices, spans

Mode = Literal["auto", "zero_copy", "merged", "adapter", "full"]


class Placement(BaseModel):
    """The devices of a role and how its model lies on them; or the role whose model it shares; or the service that it asks.

    ``devices``: ("cpu",), positions of GPUs among the visible ones ("0", "1"), or on named nodes ("node1:0"). ``layout``: "ddp" (a whole
    model on each group of ``tp`` devices) or "fsdp" (one model in shards). ``tp``: devices that one model is split over. ``dp``: copies
    of the model, where they were written. The other fields have the names and the values of a map's file, see docs/maps.md.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: tuple[str, ...] = ()
    layout: Literal["ddp", "fsdp"] = "ddp"
    tp: int = 1
    dp: int | None = None
    share: str = ""
    url: str = ""
    shared_mem_name: str = ""
    mode: Mode = "auto"
    placement_policy: Literal["hybrid", "static"] | None = None
    offload_strategy: Literal["cpu_prefetch"] | None = None
    prompt_loading: Literal["disabled"] | None = None
    nccl_backend: Literal["p2p", "ring", "none"] | None = None
    sharding_strategy: Literal["SHARD_GRAD_OP"] | None = None
    inference_only: bool = False

    @property
    def layout_name(self) -> str:
        """As a map's file says it: "ddp", "fsdp" or "tp=2"."""
        return "fsdp" if self.layout == "fsdp" else f"tp={self.tp}" if self.tp > 1 else "ddp"

    @property
    def on_cpu(self) -> bool:
        """Whether it is on the CPU, or on slots of it."""
        return bool(self.devices) and all(device == "cpu" or device.startswith("cpu:") for device in self.devices)

    @property
    def copies(self) -> int:
        """Copies of the model that work beside one another; where the sizes don't fit, as many as there is room for."""
        return max(1, len(self.devices) // self.tp)

    def groups(self, devices: tuple[str, ...]) -> list[tuple[str, ...]]:
        """``devices`` in tensor-parallel groups: consecutive ones."""
        return [devices[at : at + self.tp] for at in range(0, len(devices) - self.tp + 1, self.tp)]

    def __str__(self) -> str:
        """The compact string. Says devices and layout; what else is set only a file says, see ``to_dict``."""
        if self.share or self.url:
            return f"share:{self.share}" if self.share else self.url
        words = [spans(self.devices), *(["fsdp"] if self.layout == "fsdp" else []), *([f"tp{self.tp}"] if self.tp > 1 else [])]
        return " ".join(words)

    def to_dict(self) -> dict[str, Any]:
        """As a map's file says it: plain values, what is as usual left out."""
        found: dict[str, Any] = {}
        if self.devices:
            plain = [number_of(device) if not node_of(device) else device for device in self.devices]
            found["devices"] = "cpu" if self.devices == ("cpu",) else plain
        found |= {"layout": "fsdp"} if self.layout == "fsdp" else {}
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            if name not in ("devices", "layout") and value != field.default:
                found[name] = value
        return found


def parse(text: str, asked: str) -> Placement:
    """The placement that ``text`` says. ``asked`` begins the message of the ConfigError that a text which says none raises."""
    words = re.sub(r",\s+", ",", text.strip()).split()
    if len(words) == 1 and words[0].startswith("share:"):
        return Placement(share=words[0].removeprefix("share:"))
    if len(words) == 1 and "://" in words[0]:
        return Placement(url=check_url(words[0], asked))
    if not words:
        raise ConfigError(asked, "that is no device", FORMS)
    layout, tp = "ddp", 1
    for word in words[1:]:
        layout, tp = _layout(word, layout, tp, asked)
    return Placement(devices=parse_devices(words[0], asked), layout=layout, tp=tp)  # type: ignore[arg-type]


def _layout(word: str, layout: str, tp: int, asked: str) -> tuple[str, int]:
    """Layout and tensor-parallel size with one more word."""
    found = read_layout(word, asked)
    return (found[0] if found[0] != "ddp" else layout), (found[1] if found[1] > 1 else tp)


def read_layout(word: str, asked: str) -> tuple[str, int]:
    """ "ddp", "fsdp", "tp2" or "tp=2" as layout and tensor-parallel size."""
    match = re.fullmatch(r"tp=?([1-9]\d{0,3})", word)
    if match:
        return "ddp", int(match[1])
    if word not in ("ddp", "fsdp"):
        fix = "write ddp (a whole model on each device), fsdp (one in shards), or tp2 for a model over 2 devices"
        raise ConfigError(asked, f"{word[:60]!r} is no layout", fix)
    return word, 1


def check_url(text: str, asked: str) -> str:
    """``text``, where it is the address of a service."""
    if not re.fullmatch(r"https?://(?:[\w.-]+|\[[0-9A-Fa-f:]+\])(?::\d{1,5})?(?:/[^\s]*)?", text):
        raise ConfigError(asked, f"{text[:80]!r} is no address of a service", "write http://HOST:PORT")
    return text
