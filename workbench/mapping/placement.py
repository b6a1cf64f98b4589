"""Where one role runs and how its model lies there, as people write it: "0-3", "0,2 fsdp", "0-1 tp2", "cpu", "share:actor"."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from itertools import takewhile
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, ValidationError, model_serializer

from workbench.errors import ConfigError
from workbench.mapping.devices import (
    FORMS,
    LONGEST,
    MOST,
    are_devices,
    check_length,
    list_devices,
    node_of,
    number_of,
    parse_devices,
    spans,
)
from workbench.mapping.words import nearest, shown
from workbench.roles import ALIASES, Role

Layout = Literal["ddp", "fsdp"]
Mode = Literal["auto", "zero_copy", "merged", "adapter", "full"]
Size = Annotated[StrictInt, Field(ge=1, le=MOST)]
_TP = re.compile(r"tp=?([1-9][0-9]{0,3})")


class Placement(BaseModel):
    """The devices of a role and how its model lies on them; or the role whose model it shares; or the service that it asks.

    ``devices``: ("cpu",), positions of GPUs among the visible ones ("0", "1"), or on named nodes ("node1:0"). ``layout``: "ddp" (a whole
    model on each group of ``tp`` devices) or "fsdp" (one model in shards). ``tp``: devices that one model is split over. ``dp``: copies
    of the model, where they were written. The other fields have the names and the values of a map's file, see docs/maps.md.
    Raises ConfigError on a value that no file could have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    devices: Annotated[tuple[str, ...], BeforeValidator(lambda value: list_devices(value, "Placement: devices"))] = ()
    layout: Layout = "ddp"
    tp: Size = 1
    dp: Size | None = None
    share: Annotated[str, BeforeValidator(lambda value: read_role(value, "Placement: share") if value != "" else "")] = ""
    url: Annotated[str, BeforeValidator(lambda value: check_url(value, "Placement: url") if value != "" else "")] = ""
    shared_mem_name: str = ""
    mode: Mode = "auto"
    placement_policy: Literal["hybrid", "static"] | None = None
    offload_strategy: Literal["cpu_prefetch"] | None = None
    prompt_loading: Literal["disabled"] | None = None
    nccl_backend: Literal["p2p", "ring", "none"] | None = None
    sharding_strategy: Literal["SHARD_GRAD_OP"] | None = None
    inference_only: StrictBool = False

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            if isinstance(error.errors()[0].get("ctx", {}).get("error"), ConfigError):
                raise error.errors()[0]["ctx"]["error"] from None
            raise _misfit(fields, str(error.errors()[0]["loc"][0])) from error

    @model_serializer
    def _dumped(self) -> dict[str, Any]:
        """``model_dump`` gives what a file says, so that it can be read again."""
        return self.to_dict()

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


def _misfit(fields: Mapping[str, Any], key: str) -> ConfigError:
    """The error for a field that no placement has, or that has a value which it can't have."""
    asked = f"Placement({key[:60]}={shown(fields.get(key))})"
    if key not in Placement.model_fields:
        return ConfigError(asked, "it has no such field", nearest(key, Placement.model_fields, "the fields"))
    kind = Placement.model_fields[key].annotation
    words = [word for part in (kind, *get_args(kind)) for word in get_args(part) if isinstance(word, str)]
    numbers = "a whole number from 1 to 4096" if key in ("tp", "dp") else "text"
    return ConfigError(
        asked, "that does not fit", f"write {' or '.join(map(repr, words)) or (numbers if key != 'inference_only' else 'True or False')}"
    )


def parse(text: str, asked: str) -> Placement:
    """The placement that ``text`` says. ``asked`` begins the message of the ConfigError that a text which says none raises."""
    return Placement(**read_compact(text, asked))


def read_compact(text: str, asked: str) -> dict[str, Any]:
    """The keys that ``text`` says, no more: "0-1 tp2" says devices and tp."""
    check_length(text, asked)
    words = split_words(text)
    if not words:
        raise ConfigError(asked, "that is no device", FORMS)
    if words[0].startswith("share:") or "://" in words[0]:
        if len(words) > 1:
            raise ConfigError(asked, f"{shown(text)} says more than {words[0][:60]!r}", "a layout stands only beside devices")
        name = words[0].removeprefix("share:")
        return {"share": read_role(name, asked)} if name != words[0] else {"url": check_url(name, asked)}
    check_commas(words, asked)
    devices = parse_devices(words[0], asked)
    _check_copies(words, asked)
    said = [read_layout(word, asked) for word in words[1:]]
    layouts, sizes = {layout for layout, _ in said if layout}, {tp for _, tp in said if tp}
    if len(layouts) > 1 or len(sizes) > 1:
        raise ConfigError(asked, f"{' '.join(words[1:])[:60]!r} says two layouts", "write one of them")
    plain = "cpu" if devices == ("cpu",) else list(devices)
    keys = {"devices": plain, "layout": min(layouts, default=None), "tp": min(sizes, default=None)}
    return {key: value for key, value in keys.items() if value is not None}


def split_words(text: str) -> list[str]:
    """The words of a compact string, without the blanks around its commas: "0 , 1 tp2" as "0,1" and "tp2"."""
    return ",".join(part.strip() for part in text.split(",")).split()


def check_commas(words: list[str], asked: str) -> None:
    """Raise ConfigError for "0 8": devices with a blank between them."""
    devices = list(takewhile(are_devices, words))
    if len(devices) > 1:
        right = " ".join([",".join(devices), *words[len(devices) :]])
        raise ConfigError(asked, f"{shown(' '.join(words))} has blanks between its devices", f"write {shown(right)}")


def _check_copies(words: list[str], asked: str) -> None:
    """Raise ConfigError for "0-7 tp2 dp4": a compact string does not say copies."""
    copies = next((match[1] for word in words[1:] if (match := re.fullmatch(r"dp=?([1-9][0-9]{0,3})", word))), None)
    if copies is not None:
        keys = {
            "layout": "fsdp" if "fsdp" in words else None,
            "tp": next((match[1] for word in words if (match := _TP.fullmatch(word))), None),
        }
        said = "".join(f", {key}: {value}" for key, value in keys.items() if value)
        raise ConfigError(
            asked,
            f"'dp{copies}' is no layout, and copies are a key of their own",
            f"write {{devices: {words[0][:60]}{said}, dp: {copies}}}",
        )


def read_layout(word: str, asked: str) -> tuple[Layout | None, int | None]:
    """What a word says: "ddp" and "fsdp" a layout, "tp2" and "tp=2" a tensor-parallel size."""
    match = _TP.fullmatch(word)
    if match and int(match[1]) > MOST:
        raise ConfigError(asked, f"{shown(word)} is more than the {MOST} devices that a role can have", "write a smaller one")
    if match:
        return None, int(match[1])
    if word in ("ddp", "fsdp"):
        return ("fsdp" if word == "fsdp" else "ddp"), None
    near = get_close_matches(word[:60], ("ddp", "fsdp"), n=1)
    fix = f"write {near[0]!r}" if near else "write ddp (a whole model on each device), fsdp (one in shards), or tp2 (a model over 2)"
    raise ConfigError(asked, f"{shown(word)} is no layout", fix)


def read_role(name: str, asked: str) -> Role:
    """The role called ``name``, other names of it included."""
    key = ALIASES.get(name, name) if isinstance(name, str) else name
    if key not in list(Role):
        raise ConfigError(asked, f"{shown(name)} is no role", nearest(str(name), [*Role, *ALIASES], "the roles"))
    return Role(key)


def check_url(text: str, asked: str) -> str:
    """``text``, where it is the address of a service."""
    right: Any = isinstance(text, str) and text.isprintable() and len(text) <= LONGEST
    try:
        right = right and re.fullmatch(r"https?://[^\s/?#@]+(?:/[^\s]*)?", text) and urlsplit(text).hostname and urlsplit(text).port != 0
    except ValueError:  # a port beyond 65535, an IPv6 address that is none
        right = False
    if not right:
        raise ConfigError(asked, f"{shown(text)} is no address of a service", "write http://HOST:PORT")
    return text
