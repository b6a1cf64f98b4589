"""What the views know of a run: a fold over its events, in bounded memory however long the run is."""

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from workbench.events import Event, standing
from workbench.records import HeldOut, Knob, Notice, Phase, PhaseBegan, Progress, Restored, RunStarted, Samples, Seen, State, Step, Sync
from workbench.views.marks import Turn, add

LIVE = ("starting", "running")
ENDS = ("finished", "stopped", "failed")
TURNS = 40  # of knobs, the latest; more would be a hatching
POINTS = 200  # a panel is some 250 pixels wide: more points can't be seen
_TOPS = ("completion_tokens_max", "logprob_diff_max")  # in a bucket these keep their maximum, all others their mean
_FIELDS = ("reward_mean", "kl", "completion_tokens_mean", "truncated_fraction", "seconds", "logprob_diff_mean", "repetition", *_TOPS)
_WHERE_TOLD = ("kl_weight", "value_loss", "explained_variance", "critic_grad_norm")  # None in a step that has none
_PART = "reward_numbers/"  # before the name of what a reward tells


@dataclass
class Bucket:
    """Steps ``first .. last`` drawn as one point."""

    first: int
    last: int
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    tops: dict[str, float] = field(default_factory=dict)

    def __getitem__(self, name: str) -> float | None:
        """The mean (or, of a maximum, the largest) over the steps that have a finite ``name``; None if none has."""
        if name in _TOPS:
            return self.tops.get(name)
        return self.sums[name] / self.counts[name] if name in self.counts else None

    def absorb(self, other: "Bucket") -> None:
        """Make the steps of ``other``, which follow, part of this one."""
        self.last = other.last
        for name, value in other.sums.items():
            self.sums[name] = self.sums.get(name, 0.0) + value
            self.counts[name] = self.counts.get(name, 0) + other.counts[name]
        for name, value in other.tops.items():
            self.tops[name] = max(value, self.tops.get(name, value))


class Series:
    """The steps of a run in at most ``limit`` buckets of equal width. When they run out, the width doubles and neighbours merge."""

    def __init__(self, limit: int = POINTS) -> None:
        self.limit = limit
        self.width = 1
        self.buckets: list[Bucket] = []

    def add(self, step: Step) -> None:
        """Append one step; a step that was there before (a restored run) replaces it and all that followed."""
        while self.buckets and self.buckets[-1].last >= step.step:
            self.buckets.pop()
        self._append(_bucket(step))
        while len(self.buckets) > self.limit:
            self.width *= 2
            narrow, self.buckets = self.buckets, []
            for bucket in narrow:
                self._append(bucket)

    def _append(self, bucket: Bucket) -> None:
        if self.buckets and (self.buckets[-1].first - 1) // self.width == (bucket.first - 1) // self.width:
            self.buckets[-1].absorb(bucket)
        else:
            self.buckets.append(bucket)

    def column(self, name: str) -> list[float | None]:
        """``name`` of every bucket; a name is a field of ``Step``, a phase (its seconds) or one of ``parts``."""
        return [bucket[name] for bucket in self.buckets]

    @property
    def parts(self) -> dict[str, str]:
        """What the reward tells of itself, in any step: its name for people -> that of its column."""
        columns = (name for bucket in self.buckets for name in bucket.sums if name.startswith(_PART))
        return {column.removeprefix(_PART): column for column in columns}


def _bucket(step: Step) -> Bucket:
    values = {name: float(getattr(step, name)) for name in _FIELDS} | step.phase_seconds
    values |= {name: getattr(step, name) for name in _WHERE_TOLD if getattr(step, name) is not None}
    values |= {_PART + name: value for name, value in step.reward_numbers.items()}
    finite = {name: value for name, value in values.items() if math.isfinite(value)}
    sums = {name: value for name, value in finite.items() if name not in _TOPS}
    tops = {name: value for name, value in finite.items() if name in _TOPS}
    return Bucket(step.step, step.step, sums, dict.fromkeys(sums, 1), tops)


@dataclass(frozen=True)
class Wait:
    """A wait that is not over: its last progress, and for how many seconds it has lasted."""

    progress: Progress
    seconds: float


class History:
    """The state of a run as its events tell it. Not thread-safe: whoever feeds and reads it holds a lock.

    Of the events that it is made of only those count that a restore let stand. A restore that is fed later undoes nothing here: what
    it undid may be merged with what stands, so that a new History is to be made of all events.
    """

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.started: RunStarted | None = None
        self.state = State("new")
        self.ended = ""  # how training ended, where it did
        self.failed_in = ""  # the error, kept when the run is closed after it; gone when the run goes on
        self.series = Series()
        self.recent: deque[Step] = deque(maxlen=20)
        self.step = 0  # the last that ended
        self.total = 0  # 0: not known
        self.seconds = 0.0  # inside steps
        self.held_out: dict[int, HeldOut] = {}
        self.syncs = 0
        self.sync: Sync | None = None
        self.diff_max = 0.0
        self.samples: Samples | None = None
        self.turns: list[Turn] = []  # of knobs
        self.restores: list[Restored] = []
        self.phases: list[tuple[str, float]] = []  # that have ended in the step now under way
        self.begun: list[str] = []  # phases that run
        self.open: dict[str, Seen] = {}  # findings that are not over: code -> as it began
        self.notice = ""
        self.drawn = 0  # counts the events that change the curves
        self._waits: dict[str, tuple[Progress, float]] = {}
        self._mono = 0.0
        for event in standing(events):
            self.feed(event)

    @property
    def wait(self) -> Wait | None:
        """The newest wait that isn't over, the steps themselves aside."""
        for progress, begin in reversed(self._waits.values()):
            return Wait(progress, self._mono - begin)
        return None

    def feed(self, event: Event) -> None:
        """Take in one event. Kinds that no view shows are passed over."""
        self._mono = event.mono
        if event.kind == "load":  # many, and shown elsewhere
            return
        match event.record:
            case RunStarted() as record:
                self.started = record
            case State() as record:
                self._set_state(record)
            case Progress() as record:
                self._progress(record, event.mono)
            case PhaseBegan():
                self.begun.append(event.phase or "")
            case Phase() as record:
                self.phases.append((event.phase or "", record.seconds))
                self.begun = [phase for phase in self.begun if phase != event.phase]
            case Step() as record:
                self.drawn += 1
                self._end_step(record)
            case HeldOut() as record:
                self.drawn += 1
                self.held_out[record.step] = record
            case Sync() as record:
                self.syncs, self.sync = self.syncs + 1, record
            case Samples() as record:
                self.samples = record
            case Knob() as record:
                self.drawn += 1
                self.turns = add(self.turns, record, TURNS)
            case Seen(code=code, ended=True):
                self.open.pop(code, None)
            case Seen() as record:
                self.open[record.code] = record
            case Notice() as record:
                self.notice = record.text
            case Restored() as record:
                self._restore(record)

    def _restore(self, record: Restored) -> None:
        """A new process goes on: what the old one waited for or failed of is over."""
        self.drawn += 1
        self.restores.append(record)
        self.failed_in = ""
        self._waits.clear()
        self.phases.clear()
        self.begun.clear()

    @property
    def has_critic(self) -> bool:
        """As the run says of itself at its beginning."""
        return self.started is not None and "critic" in self.started.placement

    @property
    def shown(self) -> str:
        """The state for people: of a closed run how training ended; that the memory was given back says less."""
        return self.ended if self.state.state == "closed" and self.ended else self.state.state

    def _set_state(self, record: State) -> None:
        if record.state != "closed":
            self.ended = record.state if record.state in ENDS else ""
        self.state = record
        if record.state in LIVE:
            self.failed_in = ""
        else:
            self.failed_in = record.error or self.failed_in
            self._waits.clear()
            self.phases.clear()
            self.begun.clear()

    def _progress(self, record: Progress, mono: float) -> None:
        if record.what == "steps":
            self.drawn += self.total != int(record.total)
            self.total = int(record.total)
            return
        _, begin = self._waits.pop(record.what, (record, mono))
        if record.total <= 0 or record.done < record.total:
            self._waits[record.what] = (record, begin)

    def _end_step(self, record: Step) -> None:
        self.series.add(record)
        self.recent.append(record)
        self.step = record.step
        self.seconds += record.seconds
        self.diff_max = max(self.diff_max, record.logprob_diff_max)
        self.phases.clear()
