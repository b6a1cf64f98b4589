"""A made-up run on a made-up machine: phases with times that can be added in the head, and samples of the load."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import workbench as wb
from workbench.events import Event, EventLog
from workbench.records import Load, Phase, PhaseBegan, Progress, RunStarted, State, Step

PHASES = (("rollout", 4.0), ("reward", 1.0), ("reference", 1.0), ("update_actor", 2.0), ("sync", 1.0))
SMALL = {"actor": ["local:0", "local:1"], "rollout": ["local:2", "local:3"], "reference": ["local:0", "local:1"], "reward": ["cpu:0"]}


def large() -> tuple[wb.Topology, dict[str, list[str]]]:
    """Two machines of eight GPUs, and five roles on them."""
    topology = wb.Topology.preset("2xhgx-h100")
    ids = list(topology.ids)
    placement = {"actor": ids[:8], "critic": ids[:4], "rollout": ids[8:], "reference": ids[4:8], "reward": ["cpu:0"]}
    return topology, placement


def begun(placement: Mapping[str, Sequence[str]], total: int = 50, state: str = "running") -> EventLog:
    """A run that has begun and has made no step."""
    log = EventLog()
    log.emit(RunStarted("a run", "tiny", {"name": "GRPO"}, {}, {role: list(devices) for role, devices in placement.items()}, {}, 0))
    log.emit(Progress("steps", 0, total))
    log.emit(State(state))
    return log


def began(log: EventLog, name: str, step: int) -> None:
    """A phase is under way; ``phase`` ends it."""
    log.emit(PhaseBegan(step, 0.0), phase=name)


def phase(log: EventLog, name: str, step: int, begin: float, seconds: float) -> None:
    log.emit(Phase(step, begin, seconds), phase=name)


def whole(log: EventLog, step: int, begin: float = 0.0) -> float:
    """A step of nine seconds. Returns when it ends."""
    for name, seconds in PHASES:
        phase(log, name, step, begin, seconds)
        begin += seconds
    zeros = {name: 0 for name in Step.__dataclass_fields__ if name not in ("step", "phase_seconds", "reward_numbers")}
    log.emit(Step(step=step, **zeros))
    return begin


def load(device: str, mono: float, busy: float | None, gib: float | None = 8.0, of: float | None = 80.0, **more: Any) -> Event:
    """A sample of the load of one device. ``more``: further fields of the record for it, ``why`` what is missing."""
    fields = {field.name: [None] for field in dataclasses.fields(Load)}
    own = {name: [value] for name, value in more.items() if name != "why"}
    known = {"devices": [device], "busy": [busy], "memory_gib": [gib], "total_gib": [of]}
    missing = {more["why"]: ["busy", f"memory_gib of {device}"]} if "why" in more else {}
    record = Load(**{**fields, "seconds": 0.5, "throttled": [""], **known, **own, "missing": missing})
    return Event(0, 0.0, mono, "local", None, None, None, "load", dataclasses.asdict(record))
