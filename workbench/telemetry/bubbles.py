"""``run.bubbles()``: of every device the time that each role kept it busy, and the time that it waited, by what for."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from workbench.errors import ConfigError, StateError, check_kind
from workbench.events import Event
from workbench.records import RunStarted
from workbench.telemetry.busy import Span, Use, spans
from workbench.telemetry.work import NS, sessions

SHARED = "shared"  # two roles at once, and nothing tells whose time it was
HEADER = ("device", "roles", "busy", "by role", "idle, waiting for")


@dataclass(frozen=True)
class DeviceTime:
    """One device. ``spans`` follow each other without a gap, in ns since the begin; a restored run's processes one after the other."""

    device: str
    roles: tuple[str, ...]
    spans: tuple[Span, ...]

    @cached_property
    def busy_ns(self) -> dict[str, int]:
        """Role -> ns at work, the most first; ``SHARED``: of two roles at once, n/a whose."""
        found: Counter[str] = Counter()
        for span in self.spans:
            if not span.waits_for:
                found.update(dict(span.shares) or {SHARED: span.length})
        return dict(found.most_common())

    @cached_property
    def idle_ns(self) -> dict[str, int]:
        """What it waited for -> ns, the most first."""
        found: Counter[str] = Counter()
        for span in self.spans:
            if span.waits_for:
                found[span.waits_for] += span.length
        return dict(found.most_common())

    @property
    def busy_seconds(self) -> dict[str, float]:
        """The same in seconds."""
        return {role: ns / NS for role, ns in self.busy_ns.items()}

    @property
    def idle_seconds(self) -> dict[str, float]:
        """The same in seconds."""
        return {cause: ns / NS for cause, ns in self.idle_ns.items()}


@dataclass(frozen=True)
class Bubbles:
    """Steps ``first`` to ``last`` of the run called ``name``, which took ``wall_ns``; of each device busy and idle add up to it exactly."""

    name: str
    first: int
    last: int
    wall_ns: int
    devices: tuple[DeviceTime, ...]

    @property
    def seconds(self) -> float:
        """How long the steps took."""
        return self.wall_ns / NS

    @property
    def idle_fraction(self) -> dict[str, float]:
        """Device -> share of the time in which it waited."""
        return {one.device: sum(one.idle_ns.values()) / self.wall_ns for one in self.devices}

    @property
    def worst(self) -> tuple[str, str, float]:
        """The largest bubble: which device, what it waited for, seconds; ("", "", 0) where none waits."""
        found = [(ns / NS, one.device, cause) for one in self.devices for cause, ns in one.idle_ns.items()]
        seconds, device, cause = max(found, key=lambda bubble: bubble[0], default=(0.0, "", ""))
        return device, cause, seconds

    @property
    def heading(self) -> str:
        """One line: which run, which steps, how long, and how much of it was idle."""
        steps = f"steps {self.first} to {self.last}" if self.last > self.first else f"step {self.first}"
        idle = sum(self.idle_fraction.values()) / len(self.devices) if self.devices else 0.0
        return f"{self.name} · {steps} in {self.seconds:.3g} s · devices idle for {idle:.0%} of it"

    @property
    def rows(self) -> list[tuple[str, str, str, str, str]]:
        """One line of ``HEADER`` for each device, as text."""
        return [
            (
                one.device,
                ", ".join(one.roles),
                f"{1 - self.idle_fraction[one.device]:.0%}",
                self._shares(one.busy_ns),
                self._shares(one.idle_ns),
            )
            for one in self.devices
        ]

    def _shares(self, parts: dict[str, int]) -> str:
        """ "rollout 40 %, actor 12 %"."""
        shares = {name: round(100 * ns / self.wall_ns) for name, ns in parts.items() if ns}
        return ", ".join(f"{name} {share or '<1'} %" for name, share in shares.items()) or "—"

    def __str__(self) -> str:
        table = [HEADER, *self.rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(HEADER))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
        return "\n".join([self.heading, *lines])

    __repr__ = __str__


def bubbles(events: Iterable[Event], first: int | None = None, last: int | None = None) -> Bubbles:
    """Steps ``first`` to ``last`` (all) of the run that wrote ``events``, from the end of the step before to the end of the last.

    Raises StateError before the first step, ConfigError where a step is not there.
    """
    events = list(events)
    parts = sessions(events)
    done = sorted({step for part in parts for step in part.ends})
    if not done:
        raise StateError("run.bubbles()", "no step has been made yet", "train first")
    first, last = done[0] if first is None else first, done[-1] if last is None else last
    _check(first, last, done)
    wall = 0
    roles: dict[str, dict[str, None]] = {}
    found: dict[str, list[Span]] = {}
    for part in parts:
        for role, devices in part.placement.items():
            for device in devices:
                roles.setdefault(device, {})[role] = None
    for part in parts:
        window = part.window(first, last)
        if window is not None:
            use = Use(part.loads)
            for device in roles:
                found.setdefault(device, []).extend(_moved(spans(part, device, window, use), wall - window[0]))
            wall += window[1] - window[0]
    name = next((record.name for event in events if isinstance(record := event.record, RunStarted)), "run")
    return Bubbles(name, first, last, wall, tuple(DeviceTime(device, tuple(roles[device]), tuple(found[device])) for device in roles))


def _moved(those: Sequence[Span], by: int) -> list[Span]:
    return [Span(one.begin + by, one.end + by, one.phases, one.shares, one.waits_for) for one in those]


def _check(first: int, last: int, done: Sequence[int]) -> None:
    check_kind("run.bubbles(first=...)", first, int, "the number of a step")
    check_kind("run.bubbles(last=...)", last, int, "the number of a step")
    if not done[0] <= first <= last <= done[-1]:
        found = f"there are steps {done[0]} to {done[-1]}"
        raise ConfigError(f"run.bubbles(first={first}, last={last})", found, "give two of them, the earlier first")
