"""From what stands on the command line to a topology and a map."""

import re
import sys
from pathlib import Path

from workbench.errors import ConfigError
from workbench.mapping.device_map import DeviceMap
from workbench.mapping.source import read_file
from workbench.topology import Topology
from workbench.topology.presets import names

LARGEST = 4 * 2**20  # bytes of a matrix


def topology_of(text: str | None) -> Topology:
    """The topology that ``text`` names: a file with a matrix, "-" (standard input), "preset:NAME", "cpu:4"; None: this machine."""
    if text is None:
        return Topology.detect()
    kind, _, rest = text.partition(":")
    if kind == "preset":
        return Topology.preset(rest)
    if kind == "cpu" and rest.isdecimal():
        return Topology.cpu(slots=int(rest[:9]))
    if text.removeprefix("-") and not Path(text).exists() and (text in names() or re.fullmatch(r"\d+x[\w-]+", text)):
        raise ConfigError(f"topology {text!r}", "there is no such file, but a preset of that name", f"write preset:{text}")
    return Topology.parse(_text(text), "standard input" if text == "-" else Path(text).name)


def map_of(text: str) -> DeviceMap:
    """The map in a file, or on standard input ("-")."""
    if text == "-":
        return DeviceMap.parse(_text("-"), "standard input")
    return DeviceMap.of(read_file(Path(text)))


def _text(path: str) -> str:
    """A file's text. What is no UTF-8 in it is replaced: terminals leave anything behind."""
    asked, fix = f"topology {path[:200]!r}", "give a file with the output of nvidia-smi topo -m, or preset:NAME"
    try:
        if path == "-":
            raw = sys.stdin.buffer.read(LARGEST + 1)
        else:
            with Path(path).open("rb") as file:
                raw = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        raise ConfigError(asked, getattr(error, "strerror", None) or str(error), fix) from error
    if len(raw) > LARGEST:
        raise ConfigError(asked, f"it has more than {LARGEST // 2**20} MiB", fix)
    wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")  # what PowerShell's > writes
    return raw.decode("utf-16" if wide else "utf-8-sig", "replace")
