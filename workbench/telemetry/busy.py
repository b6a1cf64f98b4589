"""Who kept which device busy, and what idle devices waited for: every moment of a run's steps, device by device.

A device is busy for a role while a phase of that role runs: the driver times phases, so that a rank which is done before the others
counts as busy. Where phases of two roles run on one device at once, the use by process says whose the time was, as far as it was
sampled; else it is nobody's.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from workbench.events import Event
from workbench.records import Load, mean
from workbench.telemetry.work import Activity, Session

NOTHING, ABSENT = "nothing", "no role here"


@dataclass(frozen=True)
class Span:
    """A stretch of one device's time (ns). Idle where ``waits_for`` says for what; else at work at ``phases``.

    ``shares``: role -> ns of it, which add up to the stretch; empty where two roles worked and nothing tells whose it was.
    """

    begin: int
    end: int
    phases: tuple[str, ...] = ()
    shares: tuple[tuple[str, int], ...] = ()
    waits_for: str = ""

    @property
    def length(self) -> int:
        """In ns."""
        return self.end - self.begin


@dataclass(frozen=True)
class Sample:
    """How long each process kept a device at work in the ``seconds`` before ``when`` (s)."""

    when: float
    seconds: float
    shares: Mapping[str, float]  # roles of a process -> share of the time


class Use:
    """The samples of each device, from the ``load`` events of one session."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._samples: dict[str, list[Sample]] = {}
        for event in events:
            load = event.record
            if isinstance(load, Load):
                for device, shares in zip(load.devices, load.role_busy, strict=True):
                    self._samples.setdefault(device, []).append(Sample(event.mono, load.seconds, shares or {}))

    def shares(self, device: str, begin: float, end: float, roles: Sequence[str]) -> list[float] | None:
        """How the time between two moments (s) divides between ``roles``; None where no sample tells, or they are one process."""
        samples = self._samples.get(device, [])
        near: list[Mapping[str, float]] = []
        for sample in samples[bisect_right(samples, begin, key=lambda sample: sample.when) :]:
            if sample.when - sample.seconds >= end:
                break
            near.append(sample.shares)
        used = [mean([_of(role, shares) for shares in near]) for role in roles]
        together = any(len(set(roles) & set(names.split(", "))) > 1 for shares in near for names in shares)
        return [one / sum(used) for one in used] if sum(used) > 0 and not together else None


def _of(role: str, shares: Mapping[str, float]) -> float:
    return sum(share for names, share in shares.items() if role in names.split(", "))


def spans(session: Session, device: str, window: tuple[int, int], use: Use) -> list[Span]:
    """All of ``device``'s time in ``window`` (ns): stretches that follow each other without a gap."""
    if not any(device in devices for devices in session.placement.values()):
        return [Span(*window, waits_for=ABSENT)]
    begins = sorted(one.begin for one in session.activities if device in one.where)
    found: list[Span] = []
    for begin, end, running in _slices(session.activities, window):
        mine = [one for one in running if device in one.where]
        span = _busy(device, (begin, end), mine, use) if mine else Span(begin, end, waits_for=_cause(running, _next(begins, end)))
        if found and _alike(found[-1], span):
            span = _joined(found.pop(), span)
        found.append(span)
    return found


def _slices(activities: Sequence[Activity], window: tuple[int, int]) -> Iterator[tuple[int, int, list[Activity]]]:
    """The window, cut wherever something begins or ends, with what runs in each piece. ``activities`` are ordered by begin."""
    inside = [one for one in activities if one.begin < window[1] and one.end > window[0] and one.end > one.begin]
    edges = sorted({*window, *(edge for one in inside for edge in (one.begin, one.end) if window[0] < edge < window[1])})
    running: list[Activity] = []
    at = 0
    for begin, end in pairwise(edges):
        running = [one for one in running if one.end > begin]
        while at < len(inside) and inside[at].begin <= begin:
            running.append(inside[at])
            at += 1
        yield begin, end, running


def _busy(device: str, between: tuple[int, int], mine: Sequence[Activity], use: Use) -> Span:
    begin, end = between
    phases = tuple(dict.fromkeys(one.name for one in mine))
    roles = sorted({one.where[device] for one in mine})
    if len(roles) == 1:
        return Span(begin, end, phases, ((roles[0], end - begin),))
    shares = use.shares(device, begin / 1e9, end / 1e9, roles)
    if shares is None:
        return Span(begin, end, phases)
    parts = [int((end - begin) * share) for share in shares[:-1]]
    return Span(begin, end, phases, tuple(zip(roles, [*parts, end - begin - sum(parts)], strict=True)))


def _next(begins: Sequence[int], after: int) -> int | None:
    """When this device works again."""
    place = bisect_left(begins, after)
    return begins[place] if place < len(begins) else None


def _cause(running: Sequence[Activity], until: int | None) -> str:
    """What a device waits for that works again at ``until``: of what runs elsewhere the last that is over by then."""
    if not running:
        return NOTHING
    before = [one for one in running if until is None or one.end <= until]
    return max(before, key=lambda one: one.end).name if before else min(running, key=lambda one: one.end).name


def _alike(one: Span, other: Span) -> bool:
    return (one.phases, one.waits_for, [role for role, _ in one.shares]) == (other.phases, other.waits_for, [r for r, _ in other.shares])


def _joined(one: Span, other: Span) -> Span:
    shares = tuple((role, mine + theirs) for (role, mine), (_, theirs) in zip(one.shares, other.shares, strict=True))
    return Span(one.begin, other.end, one.phases, shares, one.waits_for)
