"""What a run's stream of events says now, and what has added up while it was followed, as metrics for Prometheus."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.metrics_core import Metric

from workbench.events import Event
from workbench.records import Load, Memory, Queue, Ranks, Record, Restored, RunStarted, Seen, Step, Sync
from workbench.telemetry import series
from workbench.telemetry.idle import AT_REST, IdleTime, seconds
from workbench.telemetry.series import Rows, Series, Times, counter, gauge, histogram, place

FRESH_SECONDS = 5.0  # a sample of the load counts no longer; or 2.5 times as long as it covers, where that is more
REST_SECONDS = 60.0  # what the last step said counts no longer, once no further one is under way: a scrape comes every 15 to 60 s
_BEFORE = ("run_started", "restored", "state", "seen")  # what still counts of the time before
_KINDS = (*_BEFORE, "progress", "load", "memory", "step", "held_out", "sync", "queue", "ranks", "checkpoint")


class Tally:
    """Takes in a stream, gives metrics. ``run``: its label. What came before the event ``first`` is no load and adds to no sum."""

    def __init__(self, run: str, first: int = 0) -> None:
        self._run, self._first = run, first
        self._last: dict[str, Event] = {}  # kind -> the last of its kind
        self._placement: Mapping[str, Sequence[str]] = {}
        self._loads: dict[str, tuple[Event, Load, int]] = {}  # device -> its last sample, and its place there
        self._peaks: dict[tuple[str, str], float] = {}  # node and device -> bytes
        self._ranks: dict[tuple[str, str], Ranks] = {}  # role and phase
        self._findings: dict[str, Seen] = {}  # code -> as it began
        self._sums: defaultdict[str, float] = defaultdict(float)  # name of a series -> its sum
        self._tokens: Counter[str] = Counter()  # kind -> how many
        self._syncs: Counter[str] = Counter()  # mode -> how many
        self._phases: defaultdict[str, Times] = defaultdict(Times)
        self._steps = Times()
        self._idle = IdleTime()

    def take(self, event: Event) -> None:
        """One more event, in the order of the stream."""
        if event.kind not in _BEFORE and event.seq < self._first:
            return
        self._idle.take(event)
        if event.kind in _KINDS and (event.kind != "progress" or event.data["what"] == "steps"):
            self._last[event.kind] = event
            self._note(event)

    def families(self, now: float) -> list[Metric]:
        """All there is to say at ``now`` (monotonic seconds); what is not known, or known no longer, is left out."""
        parts = (self._of_run(), self._of_devices(now), self._of_step(now), self._of_sums())
        return [family for part in parts for family in part if family.samples]

    # ------------------------------------------------------------ taking in

    def _note(self, event: Event) -> None:
        match event.record:
            case RunStarted(placement=placement):
                self._placement = placement
            case Restored() as restored:
                self._go_back(restored)
            case Load() as load:
                self._loads |= {device: (event, load, at) for at, device in enumerate(load.devices)}
            case Memory(peak_gib=peak) if event.device:
                self._peaks[event.node, event.device] = peak * series.GIB
            case Ranks() as ranks:
                self._ranks[event.role or "", event.phase or ""] = ranks
            case Seen() as seen:
                self._findings.pop(seen.code, None)
                self._findings |= {} if seen.ended else {seen.code: seen}
            case Queue() as queue:
                self._add((series.PREEMPTED,), queue)
            case Sync() as sync:
                self._add(series.SYNC_SUMS, sync)
                self._syncs[sync.mode] += 1
            case Step() as step:
                self._end(step)

    def _go_back(self, restored: Restored) -> None:
        """What was said of later steps is so no longer. Sums stay: they are of work that was done."""
        self._placement = restored.placement or self._placement
        self._findings = {code: seen for code, seen in self._findings.items() if seen.step <= restored.step}
        for kind in ("step", "held_out", "queue"):
            self._last.pop(kind, None)
        self._loads, self._peaks, self._ranks = {}, {}, {}

    def _end(self, step: Step) -> None:
        self._add(series.STEP_SUMS, step)
        self._tokens.update({"prompt": step.tokens_prompt, "completion": step.tokens_completion, "trained": step.tokens_trained})
        self._steps.add(step.seconds)
        for phase, took in step.phase_seconds.items():
            self._phases[phase].add(took)

    def _add(self, those: Sequence[Series], record: Record) -> None:
        for one in those:
            self._sums[one.name] += one.of(record) or 0.0

    # ------------------------------------------------------------ giving out

    def _gauge(self, one: Series, rows: Rows) -> Metric:
        return gauge(one, self._run, rows)

    def _of_run(self) -> Iterator[Metric]:
        if "run_started" in self._last:
            yield self._gauge(series.INFO, [(_made_of(self._last["run_started"]), 1.0)])
        if "state" in self._last:
            yield self._gauge(series.STATE, [({"state": self._last["state"].data["state"]}, 1.0)])
        if "progress" in self._last:
            yield self._gauge(series.WANTED, [({}, self._last["progress"].data["total"])])
        if "checkpoint" in self._last:
            yield self._gauge(series.CHECKPOINT_TIME, [({}, self._last["checkpoint"].time)])
        placed = [({**place(device, "local"), "role": role}, 1.0) for role, devices in self._placement.items() for device in devices]
        yield self._gauge(series.PLACED, placed)

    def _of_devices(self, now: float) -> Iterator[Metric]:
        fresh = [
            (place(device, event.node), load, at)
            for device, (event, load, at) in self._loads.items()
            if now - event.mono <= max(FRESH_SECONDS, 2.5 * load.seconds)
        ]
        for one in series.DEVICE:
            yield self._gauge(one, [(where, _scaled(getattr(load, one.field)[at], one)) for where, load, at in fresh])
        for one in series.ROLE:
            shares = [(where, roles, share) for where, load, at in fresh for roles, share in (getattr(load, one.field)[at] or {}).items()]
            yield self._gauge(one, [({**where, "role": roles or "others"}, _scaled(share, one)) for where, roles, share in shares])
        slowed = [({**where, "reason": why}, 1.0) for where, load, at in fresh for why in (load.throttled[at] or "").split(", ") if why]
        yield self._gauge(series.THROTTLED, slowed)

    def _of_step(self, now: float) -> Iterator[Metric]:
        """What was last said of a step; nothing once the run has come to rest for a while."""
        state = self._last.get("state")
        if state is not None and state.data["state"] in AT_REST and now - state.mono > REST_SECONDS:
            return
        for kind, those in (("step", series.STEP), ("held_out", series.HELD_OUT), ("queue", series.QUEUE)):
            if kind in self._last:
                record = self._last[kind].record
                yield from (self._gauge(one, [({}, one.of(record))]) for one in those)
        if "step" in self._last:
            step = self._last["step"]
            yield self._gauge(series.STEP_TIME, [({}, step.time)])
            yield self._gauge(series.REWARD_NUMBER, [({"name": name}, value) for name, value in step.data["reward_numbers"].items()])
        yield self._gauge(series.PEAK, [(place(device, node), peak) for (node, device), peak in self._peaks.items()])
        yield self._gauge(series.RANKS, [row for (role, phase), ranks in self._ranks.items() for row in _rows_of(role, phase, ranks)])
        open_ones = [({"code": seen.code, "severity": seen.severity, "title": seen.title}, 1.0) for seen in self._findings.values()]
        yield self._gauge(series.FINDING, open_ones)

    def _of_sums(self) -> Iterator[Metric]:
        """What has added up: a series begins with the first that it counts."""
        for one in (*series.STEP_SUMS, *series.SYNC_SUMS, series.PREEMPTED):
            yield counter(one, self._run, [({}, self._sums[one.name])] if one.name in self._sums else [])
        yield counter(series.TOKENS, self._run, [({"kind": kind}, float(count)) for kind, count in self._tokens.items()])
        yield counter(series.SYNCS, self._run, [({"mode": mode}, float(count)) for mode, count in self._syncs.items()])
        for one, what, times in ((series.BUSY, "role", self._idle.busy), (series.IDLE, "cause", self._idle.idle)):
            yield counter(one, self._run, [({**place(device, "local"), what: name}, spent) for device, name, spent in seconds(times)])
        if self._steps.count:
            yield counter(series.STEPS, self._run, [({}, float(self._steps.count))])
            yield histogram(series.STEP_SECONDS, self._run, [({}, self._steps)])
            yield histogram(series.PHASE_SECONDS, self._run, [({"phase": phase}, times) for phase, times in self._phases.items()])


def _scaled(value: float | None, one: Series) -> float | None:
    return None if value is None else value * one.factor


def _made_of(started: Event) -> dict[str, str]:
    """What a run is made of, as labels."""
    record = started.record
    if not isinstance(record, RunStarted):
        return {}
    named = {name: str(record.settings.get(name, "")) for name in ("task", "reward", "mode")}
    return {"name": record.name, "model": record.model, "algorithm": str(record.algo.get("name", "")), **named, "seed": str(record.seed)}


def _rows_of(role: str, phase: str, ranks: Ranks) -> list[tuple[dict[str, str], float]]:
    return [({"role": role, "phase": phase, "rank": str(rank)}, took) for rank, took in enumerate(ranks.seconds)]
