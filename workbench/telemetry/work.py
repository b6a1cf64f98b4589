"""What went on in a run, from its events alone: phases, and what else everybody may wait for, each with when and on which devices.

Times are whole nanoseconds of the driver's monotonic clock, so that sums are exact. A restored run has another clock: each process of
it is a ``Session`` of its own.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from workbench.events import Event, standing
from workbench.records import Checkpoint, Phase, Progress, Restored, RunStarted, State, Step
from workbench.roles import AT_WORK, Role

NS = 10**9
WORKERS: Mapping[str, Sequence[str]] = {**AT_WORK, "evaluation": (Role.ROLLOUT,)}
Placement = Mapping[str, Sequence[str]]  # role -> devices


@dataclass(frozen=True)
class Activity:
    """Something that took from ``begin`` to ``end`` (ns). ``where``: device -> the role at work there; empty: a wait, or the driver's."""

    name: str  # a phase, or "evaluation", "data", "service", "checkpoint", "paused"
    begin: int
    end: int
    where: Mapping[str, str] = field(default_factory=dict)
    step: int | None = None


@dataclass(frozen=True)
class Session:
    """One process of a run: where its roles were, and what it did, by begin. ``ends``: step -> when its last phase ended.

    ``loads``: its samples of the devices' load.
    """

    placement: Placement
    activities: tuple[Activity, ...]
    ends: Mapping[int, int]
    loads: tuple[Event, ...] = ()

    def window(self, first: int, last: int) -> tuple[int, int] | None:
        """From the end of the step before ``first`` (else the first begin) to the end of ``last``; None where it made none of them."""
        made = [step for step in self.ends if first <= step <= last]
        if not made:
            return None
        begins = [one.begin for one in self.activities if one.step in made]
        return self.ends.get(min(made) - 1, min(begins)), max(self.ends[step] for step in made)


def sessions(events: Iterable[Event]) -> list[Session]:
    """The processes of the run that wrote ``events``. What a restored run left behind and made again is left out."""
    parts: list[list[Event]] = [[]]
    for event in standing(events):
        if event.kind == "restored":
            parts.append([])
        parts[-1].append(event)
    found: list[Session] = []
    for part in parts:
        found.append(_session(part, found[-1].placement if found else {}))
    return found


def _session(events: Sequence[Event], placement: Placement) -> Session:
    for event in events:
        match event.record if event.kind in ("run_started", "restored") else None:
            case RunStarted(placement=given) | Restored(placement=given) if given:
                placement = given
    steps = {record.step: record for event in events if event.kind == "step" and isinstance(record := event.record, Step)}
    beside = [*_rests(events), *_evaluations(events, placement), *_checkpoints(events)]
    phases = list(_phases(events, placement, steps, [one for one in beside if one.name == "service"]))
    loads = tuple(event for event in events if event.kind == "load")
    ends: dict[int, int] = {}
    for one in phases:
        if one.step in steps:
            ends[one.step] = max(ends.get(one.step, one.end), one.end)
    return Session(placement, tuple(sorted([*phases, *beside], key=lambda one: (one.begin, one.end))), ends, loads)


def _ns(seconds: float) -> int:
    return round(seconds * NS)


def _phases(events: Sequence[Event], placement: Placement, steps: Mapping[int, Step], rests: Sequence[Activity]) -> Iterator[Activity]:
    """Phases at work, and the waits for prompts in them. What waited for a rollout ahead is left out: it is no work."""
    told = [(event, record) for event in events if event.kind == "phase" and isinstance(record := event.record, Phase)]
    # Completions are scored once they are sampled: a rollout that ends later than its step's last scoring began was a wait.
    scored = {record.step: record.begin_mono for event, record in told if event.phase == "reward"}
    starved = {number: _ns(step.data_wait_seconds) for number, step in steps.items()}
    for event, record in told:
        name, begin, length = event.phase or "", _ns(record.begin_mono), max(0, _ns(record.seconds))
        if name == "rollout" and record.begin_mono + record.seconds > scored.get(record.step, math.inf):
            continue
        if name == "rollout" and (waited := min(starved.get(record.step, 0), length)):
            starved[record.step] -= waited
            yield Activity("data", begin, begin + waited, step=record.step)
            begin, length = begin + waited, length - waited
        where = _where(name, event.role, placement)
        for low, high in _spread(begin, length, rests if name == "reward" else ()):
            yield Activity(name, low, high, where, record.step)


def _where(phase: str, told: str | None, placement: Placement) -> dict[str, str]:
    """Device -> role. On a device that holds two of a phase's roles it is that of the event."""
    roles = sorted(WORKERS.get(phase, ()), key=lambda role: role != told)
    found: dict[str, str] = {}
    for role in roles:
        for device in placement.get(role, ()):
            found.setdefault(device, role)
    return found


def _spread(begin: int, length: int, rests: Sequence[Activity]) -> Iterator[tuple[int, int]]:
    """``length`` of work from ``begin`` on, without the rests within it: a phase's seconds don't hold those."""
    for rest in rests:
        if length > 0 and rest.end > begin and rest.begin < begin + length:
            if rest.begin > begin:
                yield begin, rest.begin
                length -= rest.begin - begin
            begin = rest.end
    if length > 0:
        yield begin, begin + length


def _rests(events: Sequence[Event]) -> Iterator[Activity]:
    """Pauses; those with a reason are waits for a reward service."""
    states = [(event.mono, record) for event in events if event.kind == "state" and isinstance(record := event.record, State)]
    for (begin, record), (end, _) in pairwise(states):
        if record.state == "paused":
            yield Activity("service" if record.error else "paused", _ns(begin), _ns(end))


def _evaluations(events: Sequence[Event], placement: Placement) -> Iterator[Activity]:
    """Held-out prompts are answered and scored outside the steps: from the first word of it to the last."""
    told = [event for event in events if event.kind == "progress" and event.data["what"] == "held_out"]
    for begin, end in pairwise(told):
        if isinstance(begin.record, Progress) and begin.record.done == 0 and end.data["done"]:
            yield Activity("evaluation", _ns(begin.mono), _ns(end.mono), _where("evaluation", "rollout", placement))


def _checkpoints(events: Sequence[Event]) -> Iterator[Activity]:
    for event in events:
        if event.kind == "checkpoint" and isinstance(record := event.record, Checkpoint):
            yield Activity("checkpoint", _ns(event.mono) - _ns(record.seconds), _ns(event.mono))
