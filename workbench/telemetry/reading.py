"""What is read of one device at one moment, and how the readings of a node become one record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from workbench.records import Load

Shares = dict[str, float]  # roles of a process, as "actor, rollout" -> a number


@dataclass(frozen=True)
class Reading:
    """One device. What ``Load`` has lists of; ``missing``: the name of a field that is None -> why."""

    busy: float | None = None
    sm: float | None = None
    memory_gib: float | None = None
    total_gib: float | None = None
    pcie_rx_gb_s: float | None = None
    pcie_tx_gb_s: float | None = None
    nvlink_rx_gb_s: float | None = None
    nvlink_tx_gb_s: float | None = None
    watts: float | None = None
    celsius: float | None = None
    sm_mhz: float | None = None
    memory_mhz: float | None = None
    throttled: str | None = None
    role_memory_gib: Shares | None = None
    role_busy: Shares | None = None
    missing: Mapping[str, str] = field(default_factory=dict)


VALUES = tuple(one.name for one in fields(Reading) if one.name != "missing")


def nothing(reason: str) -> Reading:
    """A device of which nothing can be read."""
    return Reading(missing=dict.fromkeys(VALUES, reason))


def load_of(readings: Mapping[str, Reading], seconds: float) -> Load:
    """One record of ``readings`` (device -> what was read), which cover ``seconds``."""
    columns: dict[str, Any] = {name: [_short(getattr(reading, name)) for reading in readings.values()] for name in VALUES}
    return Load(seconds=round(seconds, 3), devices=list(readings), missing=_missing(readings), **columns)


def _short(value: float | str | Shares | None) -> float | str | Shares | None:
    """Three digits after the point: a stream of samples is long."""
    match value:
        case float():
            return round(value, 3)
        case dict():
            return {name: round(number, 3) for name, number in value.items()}
        case _:
            return value


def _missing(readings: Mapping[str, Reading]) -> dict[str, list[str]]:
    """Reason -> what it is the reason for. What all devices lack for one reason is said once."""
    found: dict[str, list[str]] = {}
    for name in VALUES:
        reasons = {device: reading.missing[name] for device, reading in readings.items() if name in reading.missing}
        for reason in dict.fromkeys(reasons.values()):
            those = [device for device in reasons if reasons[device] == reason]
            found.setdefault(reason, []).extend(_named(name, those, len(readings)))
    return found


def _named(name: str, devices: Sequence[str], of: int) -> list[str]:
    return [name] if len(devices) == of else [f"{name} of {device}" for device in devices]


def why(load: Load, name: str, device: str) -> str:
    """Why ``name`` of ``device`` is None in ``load``, as "n/a: MIG"; "" where it isn't."""
    return next((reason for reason, what in load.missing.items() if name in what or f"{name} of {device}" in what), "")
