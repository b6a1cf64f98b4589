"""Lists of devices as people write them: "cpu", "0-3", "0,2", "node1:0-3,node2:0-3", "cpu:0-1".

A device is "cpu" (the CPU of the driver's machine), a position among the visible GPUs ("3"), or one on a named node ("node1:3"; "cpu:1" is
a CPU slot). Lists keep the order in which nodes are named first; numbers are sorted within a node.
"""

import re
from itertools import groupby
from typing import Any

from workbench.errors import ConfigError

FORMS = (
    "write 'cpu', '0' for the first GPU, '0-3' or '0,2' for several, 'node1:0-3' on a named node, "
    "'0-3 fsdp', '0-3 tp2', 'share:actor', or 'http://host:8080'"
)
MOST = 4096  # devices of one role
_PART = re.compile(r"(?:([A-Za-z_][\w.-]*):)?(\d{1,4})(?:-(\d{1,4}))?")


def parse_devices(text: str, asked: str) -> tuple[str, ...]:
    """ "0-2,5" as ("0", "1", "2", "5"); a node's name holds for the parts after it. Devices named twice stay twice (a check tells)."""
    if text == "cpu":
        return ("cpu",)
    node, found = "", []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        span = range(int(match[2]), int(match[3] or match[2]) + 1) if match else ()
        if match is None or not span:
            raise ConfigError(asked, f"{part[:60]!r} is no device", FORMS)
        node = match[1] or node
        found += [f"{node}:{number}" if node else str(number) for number in span]
        if len(found) > MOST:
            raise ConfigError(asked, f"more than {MOST} devices", FORMS)
    return in_order(found)


def list_devices(value: Any, asked: str) -> tuple[str, ...]:
    """The devices of a file's value: a number, a compact string, or a list of both."""
    parts = value if isinstance(value, list | tuple) else [value]
    if len(parts) > MOST:
        raise ConfigError(asked, f"more than {MOST} devices", FORMS)
    found: list[str] = []
    for part in parts:
        if not isinstance(part, int | str) or isinstance(part, bool):
            raise ConfigError(asked, f"{part!r:.60} is no device", FORMS)
        found += parse_devices(str(part).strip(), asked)
    if "cpu" in found and len(found) > 1:
        raise ConfigError(asked, "the CPU beside other devices", "write 'cpu' alone, 'cpu:0-1' for slots, or GPUs alone")
    return in_order(found)


def in_order(devices: list[str]) -> tuple[str, ...]:
    """Devices node by node, in the order in which the nodes are first named; numbers ascending."""
    nodes = list(dict.fromkeys(node_of(device) for device in devices))
    return tuple(sorted(devices, key=lambda device: (nodes.index(node_of(device)), number_of(device))))


def node_of(device: str) -> str:
    """The node's name in "node1:3"; "" where none is named."""
    return device.rpartition(":")[0]


def number_of(device: str) -> int:
    """The position in "3" and "node1:3"; -1 for "cpu"."""
    number = device.rpartition(":")[2]
    return int(number) if number.isdecimal() else -1


def spans(devices: tuple[str, ...]) -> str:
    """("0", "1", "2", "5") as "0-2,5"; ("node1:0", "node1:1") as "node1:0-1"."""
    if devices == ("cpu",):
        return "cpu"
    parts = []
    for node, members in groupby(devices, node_of):
        for _, run in groupby(enumerate(map(number_of, members)), lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in run]
            text = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
            parts.append(f"{node}:{text}" if node else text)
    return ",".join(parts)
