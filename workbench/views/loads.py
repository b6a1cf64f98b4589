"""How busy and how full devices are, as a fold over the events of kind "load": the newest sample of each, and the last minutes in
buckets of equal width. Its memory does not grow with the run.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from workbench.events import Event
from workbench.records import Load
from workbench.roles import AT_WORK

WIDTH = 1.5  # seconds of a bucket
POINTS = 120  # buckets: three minutes
LEAST = 20  # buckets, also of a run that has just begun: half a minute
WINDOWS = 600  # phases that are remembered, for whose load it was


@dataclass(frozen=True)
class Use:
    """One sample of one device. ``busy``: share of the time with work on it, 0 to 1. None: not known, ``why`` says the reason.

    ``roles``: the roles of a process ("actor, critic"; "" for those of others) -> GiB of it. ``facts``: further numbers in words.
    """

    device: str
    busy: float | None = None
    memory_gib: float | None = None
    total_gib: float | None = None
    roles: Mapping[str, float] = field(default_factory=dict)
    why: str = ""
    facts: str = ""


def use_of(record: Load, at: int) -> Use:
    """The sample of the device at a place in a record."""
    return Use(
        record.devices[at],
        record.busy[at],
        record.memory_gib[at],
        record.total_gib[at],
        record.role_memory_gib[at] or {},
        _why(record, at),
        _facts(record, at),
    )


def _why(record: Load, at: int) -> str:
    """Why it is not known how busy or how full a device is."""
    unknown = [name for name, values in (("busy", record.busy), ("memory_gib", record.memory_gib)) if values[at] is None]
    about = {word for name in unknown for word in (name, f"{name} of {record.devices[at]}")}
    return ", ".join(reason for reason, names in record.missing.items() if about & {*names})


def _facts(record: Load, at: int) -> str:
    """What else is known of a device: traffic, power, heat, and what slows it."""
    pairs = (("PCIe", record.pcie_rx_gb_s, record.pcie_tx_gb_s), ("NVLink", record.nvlink_rx_gb_s, record.nvlink_tx_gb_s))
    traffic = [f"{name} {rx[at]:.1f} in, {tx[at]:.1f} out GB/s" for name, rx, tx in pairs if rx[at] is not None and tx[at] is not None]
    units = (("W", record.watts), ("°C", record.celsius))
    state = [f"{value:.0f} {unit}" for unit, values in units if (value := values[at]) is not None]
    slowed = [f"slowed by {record.throttled[at]}"] if record.throttled[at] else []
    return ", ".join([*traffic, *state, *slowed])


@dataclass
class _Bucket:
    """Samples of one device in one stretch of time."""

    at: int
    busy: float = 0.0
    known: int = 0  # of the samples those that tell how busy
    full: float | None = None

    def add(self, busy: float | None, gib: float | None, of: float | None) -> None:
        self.full = gib / of if gib is not None and of else self.full
        if busy is not None:
            self.busy, self.known = self.busy + busy, self.known + 1

    @property
    def mean(self) -> float | None:
        return self.busy / self.known if self.known else None


@dataclass(frozen=True)
class _Window:
    """A phase that has ended, in seconds of the driver's clock."""

    phase: str
    begin: float
    end: float


class Loads:
    """The newest sample of each device, and the last minutes. Not thread-safe: whoever feeds and reads it holds a lock."""

    def __init__(self) -> None:
        self._newest: dict[str, tuple[Load, int]] = {}  # device -> its record, and its place there
        self._past: dict[str, deque[_Bucket]] = {}
        self._windows: deque[_Window] = deque(maxlen=WINDOWS)
        self._running: dict[str, float] = {}  # phase -> since when
        self._end = 0  # the bucket of the newest sample
        self._newest_mono = 0.0  # and its time
        self._begin: int | None = None  # and that of the first

    def feed(self, event: Event) -> bool:
        """Take in one event. True where it holds samples."""
        if event.kind == "phase_began":
            self._running[event.phase or ""] = event.data["begin_mono"]
        elif event.kind == "phase":
            begin = event.data["begin_mono"]
            self._running.pop(event.phase or "", None)
            self._windows.append(_Window(event.phase or "", begin, begin + event.data["seconds"]))
        elif event.kind == "restored":  # another process, another clock
            self._past.clear()
            self._windows.clear()
            self._running.clear()
            self._end, self._begin = 0, None
        record = event.record if event.kind == "load" else None
        if not isinstance(record, Load):
            return False
        stretch = int(event.mono // WIDTH)
        self._end, self._newest_mono = max(self._end, stretch), event.mono
        self._begin = stretch if self._begin is None else self._begin
        for at, device in enumerate(record.devices):
            self._newest[device] = (record, at)
            past = self._past.setdefault(device, deque(maxlen=POINTS))
            if not past or past[-1].at < stretch:
                past.append(_Bucket(stretch))
            past[-1].add(record.busy[at], record.memory_gib[at], record.total_gib[at])
        return True

    @property
    def latest(self) -> dict[str, Use]:
        """The newest sample of each device."""
        return {device: use_of(record, at) for device, (record, at) in self._newest.items()}

    @property
    def devices(self) -> tuple[str, ...]:
        """Those that were sampled."""
        return tuple(self._newest)

    @property
    def end(self) -> int:
        """Counts the stretches of time up to the newest sample: what is drawn of the past changes with it."""
        return self._end

    @property
    def count(self) -> int:
        """How many stretches are shown: all since the first sample, up to three minutes."""
        return min(POINTS, max(LEAST, self._end - (self._begin or 0) + 1))

    def busy(self, device: str) -> list[float | None]:
        """How busy it was, the newest last; None where there is no sample."""
        return self._column({bucket.at: bucket.mean for bucket in self._past.get(device, ())})

    def full(self, device: str) -> list[float | None]:
        """How full its memory was at the end of each stretch."""
        return self._column({bucket.at: bucket.full for bucket in self._past.get(device, ())})

    def _column(self, values: Mapping[int, float | None]) -> list[float | None]:
        return [values.get(at) for at in range(self._end - self.count + 1, self._end + 1)]

    def of_role(self, role: str, placement: Mapping[str, Sequence[str]]) -> list[float | None]:
        """How busy a role kept its devices: their use, for the share of the time in which only phases of this role ran there.

        Where two roles worked on one device at the same time, the use of that time is nobody's.
        """
        shares: dict[frozenset[str], list[float]] = {}  # of the devices that hold the same roles
        columns = []
        for device in placement.get(role, ()):
            here = frozenset(other for other, devices in placement.items() if device in devices)
            if here not in shares:
                shares[here] = self._shares(role, here)
            pairs = zip(self.busy(device), shares[here], strict=True)
            columns.append([None if value is None else value * share for value, share in pairs])
        return [_mean(values) for values in zip(*columns, strict=True)]

    def at_work(self, device: str, placement: Mapping[str, Sequence[str]]) -> list[str]:
        """Who kept a device busy in each stretch: the role that worked there alone for the longest, "" where none did."""
        here = frozenset(role for role, devices in placement.items() if device in devices)
        shares = {role: self._shares(role, here) for role in here}
        best = [max(shares, key=lambda role: shares[role][at], default="") for at in range(self.count)]
        return [role if role and shares[role][at] > 0 else "" for at, role in enumerate(best)]

    def _shares(self, role: str, here: frozenset[str]) -> list[float]:
        """Of each bucket the share in which phases of ``role`` ran, and none of the other roles in ``here``."""
        first, until = self._end - self.count + 1, self._newest_mono
        spans: list[list[tuple[float, float, bool]]] = [[] for _ in range(self.count)]
        running = [_Window(phase, begin, until) for phase, begin in self._running.items()]
        for window in (*self._windows, *running):
            workers = {*AT_WORK.get(window.phase, ())} & here
            for at in range(max(first, int(window.begin // WIDTH)), min(self._end, int(window.end // WIDTH)) + 1 if workers else first):
                begin, end = at * WIDTH, min(until, (at + 1) * WIDTH)
                spans[at - first].append((max(window.begin, begin), min(window.end, end), role in workers))
        lengths = [WIDTH] * (self.count - 1) + [max(until - self._end * WIDTH, 1e-9)]  # the last stretch is not over
        return [_alone(found) / length for found, length in zip(spans, lengths, strict=True)]


def _alone(spans: Sequence[tuple[float, float, bool]]) -> float:
    """Seconds in which a span that is mine ran, and none that is not. Spans: begin, end, whether it is mine."""
    spans = [span for span in spans if span[0] < span[1]]
    edges = sorted({edge for begin, end, _ in spans for edge in (begin, end)})
    total = 0.0
    for low, high in pairwise(edges):
        there = {mine for begin, end, mine in spans if begin <= low and end >= high}
        total += high - low if there == {True} else 0.0
    return total


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
