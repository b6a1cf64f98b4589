"""``run.timeline()``: who worked when, and who waited, over a few steps: one row per device, drawn from the run's ``phase`` events.

The driver times the phases, so a bar says that work for a role of that device was under way. Where a role has several devices each
of them has the bar: who among them was done first is not known here.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError, StateError, check_kind
from workbench.events import Event, standing
from workbench.mapping.devices import spans
from workbench.metrics import records_of
from workbench.records import Phase, Restored, RunStarted, Step
from workbench.roles import AT_WORK
from workbench.topology.drawing.display import bundle, save
from workbench.topology.drawing.scene import Scene
from workbench.topology.drawing.svg import Theme
from workbench.views.text import columns, duration
from workbench.views.timeline_figure import draw

SHOWN = 3  # steps, where it is not said which
MOST_ROWS = 16  # with more devices, those with the same roles share one


@dataclass(frozen=True)
class Bar:
    """One phase of one step, as far as it is in the picture. ``begin``: seconds from the picture's left edge."""

    phase: str
    step: int
    begin: float
    seconds: float

    @property
    def end(self) -> float:
        """Seconds from the left edge."""
        return self.begin + self.seconds


@dataclass(frozen=True)
class Row:
    """A device, the roles on it, and what they did."""

    device: str
    roles: tuple[str, ...]
    bars: tuple[Bar, ...]

    @property
    def busy_seconds(self) -> float:
        """Seconds with any work under way; work at the same time counts once."""
        busy = reached = 0.0
        for bar in sorted(self.bars, key=lambda bar: bar.begin):
            busy += max(0.0, bar.end - max(reached, bar.begin))
            reached = max(reached, bar.end)
        return busy


@dataclass(frozen=True)
class Timeline:
    """Steps ``first`` to ``last`` of the run called ``name``, which took ``seconds``. ``ends``: when each was over.

    ``span``: seconds that the picture is wide, so that several runs can have one scale.
    """

    name: str
    first: int
    last: int
    seconds: float
    rows: tuple[Row, ...]
    ends: Mapping[int, float]
    span: float

    @property
    def busy_fraction(self) -> dict[str, float]:
        """Device -> share of the time with work under way there; 0 where no time has passed."""
        return {row.device: row.busy_seconds / self.seconds if self.seconds else 0.0 for row in self.rows}

    def phase_seconds(self, phase: str) -> float:
        """What a phase took in all, of the steps that are shown."""
        bars = {bar for row in self.rows for bar in row.bars if bar.phase == phase}
        return sum(bar.seconds for bar in bars)

    @property
    def heading(self) -> str:
        """One line: which run, which steps, how long."""
        count = self.last - self.first + 1
        steps = f"steps {self.first} to {self.last}" if count > 1 else f"step {self.first}"
        each = f", {duration(self.seconds / count)} each" if count > 1 else ""
        return f"{self.name} · {steps} in {duration(self.seconds)}{each}"

    @property
    def scene(self) -> Scene:
        """The drawing, as plain data."""
        return draw(self)

    def save(self, path: str | Path, theme: Theme | None = None) -> Path:
        """Write the drawing as .svg or .png. Raises ConfigError where it can't be written."""
        return save(self.scene, path, theme)

    def __repr__(self) -> str:
        busy = self.busy_fraction
        lines = [("device", "busy", "roles"), *((row.device, f"{busy[row.device]:.0%}", ", ".join(row.roles)) for row in self.rows)]
        return "\n".join([self.heading, *columns(lines, "<><")])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return bundle(self.scene, repr(self))


def timeline(events: Iterable[Event], first: int | None = None, last: int | None = None, seconds: float | None = None) -> Timeline:
    """Steps ``first`` to ``last`` of the run that wrote ``events`` (the last three), in a picture ``seconds`` wide (as long as they took).

    Of a restored run those since its restore: clocks of before say nothing to those of after. Raises StateError before the first
    step, ConfigError where a step is not there.
    """
    events = list(events)
    begun, recent = records_of(events, RunStarted)[0], _of_this_process(standing(events))
    done = [record.step for record in records_of(recent, Step)]
    if not done:
        raise StateError("run.timeline()", "no step has been made yet", "train first")
    last = done[-1] if last is None else last
    first = max(done[0], last - SHOWN + 1) if first is None else first
    _check(first, last, seconds, done)
    return _shown(begun.name, _placement(begun, events), _phases(recent), range(first, last + 1), seconds)


def recent(events: Iterable[Event], count: int) -> tuple[Timeline, float] | None:
    """The last ``count`` steps that have a phase, the one under way among them, and when on the driver's clock the picture begins.

    None before the first phase has ended.
    """
    events = list(events)
    phases = _phases(_of_this_process(standing(events)))
    if not phases:
        return None
    begun, last = records_of(events, RunStarted)[0], max(record.step for _, record in phases)
    first = max(min(record.step for _, record in phases), last - count + 1)
    shown = _shown(begun.name, _placement(begun, events), phases, range(first, last + 1), None)
    return shown, max(_end(record) for _, record in phases if record.step <= last) - shown.seconds


def _placement(begun: RunStarted, events: Sequence[Event]) -> Mapping[str, Sequence[str]]:
    """Where every role is now: a restore may have put it elsewhere."""
    moved = [restored.placement for restored in records_of(events, Restored) if restored.placement]
    return moved[-1] if moved else begun.placement


def _of_this_process(events: Sequence[Event]) -> list[Event]:
    """What came after the last restore."""
    begin = max((at for at, event in enumerate(events) if event.kind == "restored"), default=-1)
    return list(events[begin + 1 :])


def _check(first: int, last: int, seconds: float | None, done: Sequence[int]) -> None:
    check_kind("run.timeline(first=...)", first, int, "the number of a step")
    check_kind("run.timeline(last=...)", last, int, "the number of a step")
    if not done[0] <= first <= last <= done[-1]:
        asked = f"run.timeline(first={first}, last={last})"
        raise ConfigError(asked, f"there are steps {done[0]} to {done[-1]}", "give two of them, the earlier first")
    if seconds is not None:
        check_kind("run.timeline(seconds=...)", seconds, float, "how wide the picture is, such as 4.0")
        if not seconds > 0:
            raise ConfigError(f"run.timeline(seconds={seconds})", "a picture is some seconds wide", "give more than 0, or leave it out")


def _phases(events: Sequence[Event]) -> list[tuple[str, Phase]]:
    """What was worked at, by name. A step that was sampled ahead has further "rollout" events: of waiting for that, which is no work."""
    told = [event for event in events if event.kind == "phase"]
    found = [(event.phase or "", record) for event, record in zip(told, records_of(told, Phase), strict=True)]
    # Completions are scored once they are sampled: a rollout that ends later than its step's last scoring began was a wait.
    scored = {record.step: record.begin_mono for phase, record in found if phase == "reward"}
    return [(phase, record) for phase, record in found if phase != "rollout" or _end(record) <= scored.get(record.step, math.inf)]


def _end(record: Phase) -> float:
    return record.begin_mono + record.seconds


def _shown(
    name: str, placement: Mapping[str, Sequence[str]], phases: Sequence[tuple[str, Phase]], steps: range, span: float | None
) -> Timeline:
    """From the end of the step before to the end of the last."""
    ends: dict[int, float] = {}
    for _, record in phases:
        ends[record.step] = max(ends.get(record.step, 0.0), _end(record))
    own = min(record.begin_mono for _, record in phases if record.step in steps)
    begin, end = ends.get(steps[0] - 1, own), ends[steps[-1]]
    bars = [_cut(phase, record, begin, end) for phase, record in phases if record.begin_mono < end and _end(record) > begin]
    inside = {step: ends[step] - begin for step in steps}
    return Timeline(name, steps[0], steps[-1], end - begin, _rows(placement, bars), inside, span or end - begin)


def _cut(phase: str, record: Phase, begin: float, end: float) -> Bar:
    """The part between two moments."""
    left, right = max(record.begin_mono, begin), min(_end(record), end)
    return Bar(phase, record.step, left - begin, right - left)


def _rows(placement: Mapping[str, Sequence[str]], bars: Sequence[Bar]) -> tuple[Row, ...]:
    """One for each device, in the map's order; of many one for those that have the same roles."""
    roles: dict[str, tuple[str, ...]] = {}
    for role, devices in placement.items():
        for device in devices:
            roles[device] = (*roles.get(device, ()), role)
    if len(roles) > MOST_ROWS:
        alike = {names: spans([device for device in roles if roles[device] == names]) for names in roles.values()}
        roles = {devices: names for names, devices in alike.items()}
    return tuple(
        Row(device, names, tuple(bar for bar in bars if not set(AT_WORK.get(bar.phase, ())).isdisjoint(names)))
        for device, names in roles.items()
    )
