"""Lists of devices as people write them: "cpu", "0-3", "0,2", "node1:0-3,node2:0-3", "cpu:0-1".

A device is "cpu" (the CPU of the driver's machine), a position among the visible GPUs ("3"), or one on a named node ("node1:3"; "cpu:1" is
a CPU slot). Devices without a node come first, then the nodes in the order in which they are named; numbers ascend within a node.
"""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from workbench.errors import ConfigError
from workbench.mapping.words import shown

FORMS = (
    "write 'cpu', '0' for the first GPU, '0-3' or '0,2' for several, 'node1:0-3' on a named node, "
    "'0-3 fsdp', '0-3 tp2', 'share:actor', or 'http://host:8080'"
)
MOST = 4096  # devices of one role
LONGEST = 64 * 1024  # characters of what is written, in a file or in Python
_PART = re.compile(r"(?:([A-Za-z_][\w.-]*):)?([0-9]{1,4})(?:-([0-9]{1,4}))?")
_ONE = re.compile(r"(?:(?!localhost:)[A-Za-z_][\w.-]*:)?(?:0|[1-9][0-9]{0,2})")  # as this module itself writes one
_SERVICE = re.compile(r"([\w.-]+):([0-9]{1,5})(?:/\S*)?")
_ELSEWHERE = re.compile(r"(?:cuda|gpu|hip|rocm|xpu|npu|nvidia|device)[:_-]?([0-9]{1,4}(?:-[0-9]{1,4})?)?", re.IGNORECASE)


def parse_devices(text: str, asked: str) -> tuple[str, ...]:
    """ "0-2,5" as ("0", "1", "2", "5"); a node's name holds for the parts after it. Devices named twice stay twice (a check tells)."""
    check_length(text, asked)
    if text == "cpu":
        return ("cpu",)
    node, found = "", []
    for part in text.split(","):
        named, numbers = _read_part(part.strip(), asked)
        node = named or node
        found += [f"{node}:{number}" if node else str(number) for number in numbers]
        _check_count(found, asked)
    return in_order(found)


def _read_part(part: str, asked: str) -> tuple[str, range]:
    """ "node1:0-3" as its node and its numbers; the node of "0-3" is ""."""
    other = _ELSEWHERE.fullmatch(part)
    if other:
        raise ConfigError(asked, f"{part!r} is no device: a GPU is its position among the visible ones", f"write {other[1] or '0'!r}")
    _check_no_service(part, asked)
    match = _PART.fullmatch(part)
    numbers = range(int(match[2]), int(match[3] or match[2]) + 1) if match else range(0)
    if match is None or not numbers:
        raise ConfigError(asked, f"{shown(part)} is no device", FORMS)
    return match[1] or "", numbers


def _check_no_service(part: str, asked: str) -> None:
    """Raise ConfigError for "localhost:8080": device 8080 of a node of that name is nobody's meaning."""
    match = _SERVICE.fullmatch(part)
    if match and (int(match[2]) >= 1024 or match[1] == "localhost"):
        raise ConfigError(
            asked, f"{shown(part)} would be a device of a node", f"write 'http://{part[:60]}' for a service, '0' for a GPU of this machine"
        )


def check_length(text: str, asked: str) -> None:
    """Raise ConfigError for text that is longer than a whole map."""
    if len(text) > LONGEST:
        raise ConfigError(asked, f"it has {len(text)} characters, and a map at most {LONGEST}", "write devices such as '0-3'")


def list_devices(value: Any, asked: str) -> tuple[str, ...]:
    """The devices of a file's value: a number, a compact string, or a list of both."""
    found: list[str] = []
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, str) and _ONE.fullmatch(part) and not _ELSEWHERE.fullmatch(part):
            found.append(part)
            continue
        if not isinstance(part, int | str) or isinstance(part, bool):
            raise ConfigError(asked, f"{shown(part)} is no device", FORMS)
        if isinstance(part, int) and not 0 <= part <= 9999:
            raise ConfigError(asked, f"'{shown(part)}' is no device", FORMS)
        found += parse_devices(str(part).strip(), asked)
        _check_count(found, asked)
    _check_count(found, asked)
    if "cpu" in found and len(found) > 1:
        raise ConfigError(asked, "the CPU stands beside other devices", "write 'cpu' alone, 'cpu:0-1' for slots, or GPUs alone")
    return in_order(found)


def are_devices(word: str) -> bool:
    """Whether a word has the form of devices: "0-3,5", "node1:0"."""
    return all(_PART.fullmatch(part) for part in word.split(","))


def _check_count(devices: list[str], asked: str) -> None:
    if len(devices) > MOST:
        raise ConfigError(asked, f"it has more than {MOST} devices", "name fewer")


def in_order(devices: Iterable[str]) -> tuple[str, ...]:
    """Devices node by node: those without a node first, since a node's name holds for all that follows in a compact string."""
    listed = list(devices)
    rank = {"": -1} | {node: at for at, node in enumerate(dict.fromkeys(node_of(device) for device in listed)) if node}
    return tuple(sorted(listed, key=lambda device: (rank[node_of(device)], number_of(device))))


def node_of(device: str) -> str:
    """The node's name in "node1:3"; "" where none is named."""
    return device.rpartition(":")[0]


def number_of(device: str) -> int:
    """The position in "3" and "node1:3"; -1 for "cpu"."""
    number = device.rpartition(":")[2]
    return int(number) if number.isdecimal() else -1


def spans(devices: tuple[str, ...]) -> str:
    """("0", "1", "2", "5") as "0-2,5"; ("node1:0", "node1:1", "node1:4") as "node1:0-1,4": a node's name holds for what follows."""
    if devices == ("cpu",):
        return "cpu"
    parts = []
    for node, members in groupby(devices, node_of):
        head = f"{node}:" if node else ""
        for _, run in groupby(enumerate(map(number_of, members)), lambda pair: pair[1] - pair[0]):
            numbers = [number for _, number in run]
            text = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
            parts.append(head + text)
            head = ""
    return ",".join(parts)
