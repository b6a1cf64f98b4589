"""Where one role runs and how its model lies there, as people write it: "0-3", "0,2 fsdp", "0-1 tp2", "cpu", "share:actor"."""

import re
from difflib import get_close_matches
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

from workbench.errors import ConfigError
from workbench.mapping.devices import FORMS, node_of, number_of, parse_devices, spans
from workbench.mapping.words import nearest, shown
from workbench.roles import ALIASES, Role

Layout = Literal["ddp", "fsdp"]
Mode = Literal["auto", "zero_copy", "merged", "adapter", "full"]


class Placement(BaseModel):
    """The devices of a role and how its model lies on them; or the role whose model it shares; or the service that it asks.

    ``devices``: ("cpu",), positions of GPUs among the visible ones ("0", "1"), or on named nodes ("node1:0"). ``layout``: "ddp" (a whole
    model on each group of ``tp`` devices) or "fsdp" (one model in shards). ``tp``: devices that one model is split over. ``dp``: copies
    of the model, where they were written. The other fields have the names and the values of a map's file, see docs/maps.md.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: tuple[str, ...] = ()
    layout: Layout = "ddp"
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
    words = re.sub(r"\s*,\s*", ",", text.strip()).split()
    if not words:
        raise ConfigError(asked, "that is no device", FORMS)
    if words[0].startswith("share:") or "://" in words[0]:
        if len(words) > 1:
            raise ConfigError(asked, f"{shown(text)} says more than {words[0][:60]!r}", "a layout stands only beside devices")
        name = words[0].removeprefix("share:")
        return Placement(share=read_role(name, asked)) if name != words[0] else Placement(url=check_url(name, asked))
    devices = parse_devices(words[0], asked)
    layouts, sizes = set(), set()
    for word in words[1:]:
        layout, tp = read_layout(word, asked)
        layouts |= {layout} if tp == 1 else set()
        sizes |= {tp} if tp > 1 else set()
    if len(layouts) > 1 or len(sizes) > 1:
        raise ConfigError(asked, f"{' '.join(words[1:])[:60]!r} says two layouts", "write one of them")
    return Placement(devices=devices, layout=min(layouts, default="ddp"), tp=min(sizes, default=1))


def read_layout(word: str, asked: str) -> tuple[Layout, int]:
    """ "ddp", "fsdp", "tp2" or "tp=2" as layout and tensor-parallel size."""
    match = re.fullmatch(r"tp=?([1-9][0-9]{0,3})", word)
    if match:
        return "ddp", int(match[1])
    if word in ("ddp", "fsdp"):
        return ("fsdp" if word == "fsdp" else "ddp"), 1
    near = get_close_matches(word[:60], ("ddp", "fsdp"), n=1)
    fix = f"write {near[0]!r}" if near else "write ddp (a whole model on each device), fsdp (one in shards), or tp2 (a model over 2)"
    raise ConfigError(asked, f"{shown(word)} is no layout", fix)


def read_role(name: str, asked: str) -> Role:
    """The role called ``name``, other names of it included."""
    key = ALIASES.get(name, name)
    if key not in list(Role):
        raise ConfigError(asked, f"{shown(name)} is no role", nearest(name, [*Role, *ALIASES], "the roles"))
    return Role(key)


def check_url(text: str, asked: str) -> str:
    """``text``, where it is the address of a service."""
    try:
        right = re.fullmatch(r"https?://[^\s/?#@]+(?:/[^\s]*)?", text) and urlsplit(text).hostname and urlsplit(text).port != 0
    except ValueError:  # a port beyond 65535, an IPv6 address that is none
        right = False
    if not right:
        raise ConfigError(asked, f"{shown(text)} is no address of a service", "write http://HOST:PORT")
    return text
