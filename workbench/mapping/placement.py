"""Where one role runs, as people write it: "0-3", "0,2 fsdp", "0-1 tp2", "cpu", "share:actor"."""

import re
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from workbench.errors import ConfigError

FORMS = "write 'cpu', '0' for the first GPU, '0-3' or '0,2' for several, '0-3 fsdp', '0-3 tp2', or 'share:actor'"


@dataclass(frozen=True)
class Placement:
    """The devices of a role and how its model lies on them, or the role whose model it shares.

    ``devices``: ("cpu",), or positions of GPUs among the visible ones, ("0", "1"); empty where the role shares. ``layout``: "ddp" (a whole
    model on each device), "fsdp" (one model in shards), "tp2" (a model split over 2 devices, one such pair beside the other).
    """

    devices: tuple[str, ...] = ()
    layout: str = "ddp"
    share: str = ""

    @property
    def tp(self) -> int:
        """Devices that one model is split over."""
        return int(self.layout[2:]) if self.layout.startswith("tp") else 1

    def __str__(self) -> str:
        if self.share:
            return f"share:{self.share}"
        return _spans(self.devices) + ("" if self.layout == "ddp" else f" {self.layout}")

    def to_yaml(self) -> str:
        """The placement as a device map's file says it."""
        if self.share:
            return f"{{share: {self.share}}}"
        devices = "cpu" if self.devices == ("cpu",) else f"[{', '.join(self.devices)}]"
        layout = {"ddp": "", "fsdp": ", layout: fsdp"}.get(self.layout, f", tp: {self.tp}")
        return f"{{devices: {devices}{layout}}}"


def parse(text: str, asked: str) -> Placement:
    """The placement that ``text`` says. ``asked`` begins the message of the ConfigError that a text which says none raises."""
    words = text.split()
    if len(words) == 1 and words[0].startswith("share:"):
        return Placement(share=words[0].removeprefix("share:"))
    if not 1 <= len(words) <= 2:
        raise ConfigError(asked, "that is no device", FORMS)
    devices = _devices(words[0], asked)
    return Placement(devices, _layout(words[1], devices, asked) if len(words) == 2 else "ddp")


def read(value: Any, asked: str) -> Placement:
    """The placement in a file's or mapping's value: a compact string, ``{devices:, layout:}``, ``{devices:, tp:}``, ``{share:}``."""
    if isinstance(value, str | int) and not isinstance(value, bool):
        return parse(str(value), f"{asked}: {str(value)!r}")
    keys = set(value) if isinstance(value, dict) else set()
    if keys not in ({"share"}, {"devices"}, {"devices", "layout"}, {"devices", "tp"}):
        fix = "write {devices: cpu}, {devices: [0, 1], layout: fsdp}, {devices: [0, 1], tp: 2} or {share: actor}"
        raise ConfigError(asked, f"{value!r} is not understood", fix)
    if keys == {"share"}:
        return Placement(share=str(value["share"]))
    devices = value["devices"]
    listed = ",".join(str(one) for one in devices) if isinstance(devices, list | tuple) else str(devices)
    layout = f"tp{value['tp']}" if "tp" in keys else str(value.get("layout", "ddp"))
    return parse(f"{listed} {layout}", f"{asked}: {value!r}")


def _devices(text: str, asked: str) -> tuple[str, ...]:
    """ "0-2,5" as ("0", "1", "2", "5")."""
    if text == "cpu":
        return ("cpu",)
    numbers: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,3})(?:-(\d{1,3}))?", part)
        span = range(int(match[1]), int(match[2] or match[1]) + 1) if match else ()
        if not span:
            raise ConfigError(asked, f"{part!r}: that is no device", FORMS)
        numbers += span
    if len(set(numbers)) < len(numbers):
        raise ConfigError(asked, "a device is named twice", "name each once")
    return tuple(str(number) for number in sorted(numbers))


def _layout(text: str, devices: tuple[str, ...], asked: str) -> str:
    """ "ddp", "fsdp" or "tpN", as it fits the number of devices."""
    match = re.fullmatch(r"tp=?([1-9]\d{0,2})", text)
    if match is None and text not in ("ddp", "fsdp"):
        raise ConfigError(
            asked, f"{text!r} is no layout", "write ddp (a whole model on each device), fsdp, or tp2 for a model over 2 devices"
        )
    size = int(match[1]) if match else 1
    if len(devices) % size:
        raise ConfigError(asked, f"groups of {size} can't be made of {len(devices)}", f"name a multiple of {size} devices")
    if text == "fsdp" and len(devices) == 1:
        raise ConfigError(asked, "fsdp shards a model over several devices, and this is one", "leave the layout out")
    return "fsdp" if text == "fsdp" else f"tp{size}" if size > 1 else "ddp"


def _spans(devices: tuple[str, ...]) -> str:
    """("0", "1", "2", "5") as "0-2,5"."""
    if devices == ("cpu",):
        return "cpu"
    runs = [[int(device) for _, device in run] for _, run in groupby(enumerate(devices), lambda pair: int(pair[1]) - pair[0])]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
