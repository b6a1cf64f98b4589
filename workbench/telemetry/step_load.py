"""The load of a run, step by step: what its samples say of each device while it worked, and what ranks and engine told."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from workbench.events import Event
from workbench.records import Load, Phase, Queue, Ranks, Step, mean
from workbench.telemetry.work import WORKERS, Placement

Values = Iterable[float | None]


@dataclass(frozen=True)
class DeviceLoad:
    """One device in one step. Means are over its samples at work: those taken while a phase of one of its roles ran. None: not known."""

    device: str
    busy: float | None = None  # share of the time with any kernel at work
    use: float | None = None  # share of its multiprocessors at work; where that is not counted the same as ``busy``
    full: float | None = None  # the highest share of its memory in use, at work or not
    pcie_gb_s: float | None = None  # both directions
    nvlink_gb_s: float | None = None
    slowed: Mapping[str, float] = field(default_factory=dict)  # what slows its clocks -> share of all samples
    by_phase: Mapping[str, float] = field(default_factory=dict)  # a phase of any device -> how busy this one was in it


@dataclass(frozen=True)
class StepLoad:
    """One step."""

    record: Step
    devices: tuple[DeviceLoad, ...] = ()
    ranks: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # phase -> seconds of each rank's own work
    queue: Queue | None = None

    @property
    def step(self) -> int:
        """Its number."""
        return self.record.step

    def of(self, device: str) -> DeviceLoad | None:
        """The load of a device; None where it was not sampled."""
        return next((one for one in self.devices if one.device == device), None)


@dataclass(frozen=True)
class _Sample:
    """One device at one moment."""

    load: Load
    at: int  # the device's place in the lists
    phases: frozenset[str]  # that ran then, anywhere
    works: bool  # a phase of one of its roles is among them


def step_load(record: Step, events: Sequence[Event], placement: Placement) -> StepLoad:
    """The load of a step. ``events``: those since the step before. What runs ahead and has not ended is not among them."""
    told = [(event, event.record) for event in events if event.kind in ("load", "phase", "ranks", "queue")]
    phases = [(event.phase or "", one.begin_mono, one.begin_mono + one.seconds) for event, one in told if isinstance(one, Phase)]
    samples: dict[str, list[_Sample]] = {}
    for event, load in told:
        if isinstance(load, Load):
            middle = event.mono - load.seconds / 2
            running = frozenset(phase for phase, begin, end in phases if begin <= middle <= end)
            workers = {role for phase in running for role in WORKERS.get(phase, ())}
            busy = {device for role in workers for device in placement.get(role, ())}
            for at, device in enumerate(load.devices):
                samples.setdefault(device, []).append(_Sample(load, at, running, device in busy))
    ranks: dict[str, tuple[float, ...]] = {}
    for event, one in told:
        if isinstance(one, Ranks) and one.step == record.step:
            before = ranks.get(event.phase or "", (0.0,) * len(one.seconds))
            ranks[event.phase or ""] = tuple(a + b for a, b in zip(before, one.seconds, strict=True))
    queues = [one for _, one in told if isinstance(one, Queue) and one.step == record.step]
    return StepLoad(record, tuple(_device(device, those) for device, those in samples.items()), ranks, _all_rounds(queues))


def _all_rounds(queues: Sequence[Queue]) -> Queue | None:
    """One step's, where it sampled in several rounds."""
    if not queues:
        return None
    running, waiting = mean([one.running_mean for one in queues]), mean([one.waiting_mean for one in queues])
    return Queue(queues[0].step, running, waiting, sum(one.preempted for one in queues))


def _device(device: str, samples: Sequence[_Sample]) -> DeviceLoad:
    at_work = [one for one in samples if one.works]
    phases = {phase for one in samples for phase in one.phases}
    by_phase = {phase: _mean(one.load.busy[one.at] for one in samples if phase in one.phases) for phase in phases}
    return DeviceLoad(
        device,
        busy=_mean(one.load.busy[one.at] for one in at_work),
        use=_mean(_use(one) for one in at_work),
        full=max((share for one in samples if (share := _full(one)) is not None), default=None),
        pcie_gb_s=_mean(_both(one, "pcie") for one in at_work),
        nvlink_gb_s=_mean(_both(one, "nvlink") for one in at_work),
        slowed=_slowed(samples),
        by_phase={phase: busy for phase, busy in by_phase.items() if busy is not None},
    )


def _mean(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _use(one: _Sample) -> float | None:
    sm = one.load.sm[one.at]
    return one.load.busy[one.at] if sm is None else sm


def _full(one: _Sample) -> float | None:
    used, total = one.load.memory_gib[one.at], one.load.total_gib[one.at]
    return used / total if used is not None and total else None


def _both(one: _Sample, link: str) -> float | None:
    received, sent = getattr(one.load, f"{link}_rx_gb_s")[one.at], getattr(one.load, f"{link}_tx_gb_s")[one.at]
    return None if received is None or sent is None else received + sent


def _slowed(samples: Sequence[_Sample]) -> dict[str, float]:
    """Of all samples that say whether anything slows the clocks."""
    told = [one.load.throttled[one.at] for one in samples]
    known = [text.split(", ") for text in told if text is not None]
    reasons = {reason for those in known for reason in those if reason}
    return {reason: mean([reason in those for those in known]) for reason in sorted(reasons)}


@dataclass(frozen=True)
class LoadWindow:
    """A run as of its last step. Steps are oldest first."""

    steps: Sequence[StepLoad]  # the latest, at least one
    begin: Sequence[StepLoad]  # the first, of the run or since a knob was turned
    placement: Placement

    def recent(self, count: int) -> Sequence[StepLoad]:
        """The last ``count`` steps; none where there are fewer."""
        return self.steps[-count:] if len(self.steps) >= count else ()

    @property
    def devices(self) -> list[str]:
        """Those that the last step has samples of."""
        return [one.device for one in self.steps[-1].devices]


Value = Callable[[DeviceLoad], float | None]


def values(steps: Sequence[StepLoad], device: str, value: Value) -> list[float]:
    """A number of a device in each of the steps; empty where any of them does not have it."""
    found = [None if (one := step.of(device)) is None else value(one) for step in steps]
    return [number for number in found if number is not None] if None not in found else []
