"""``run.profile``: which collectives the roles made in the profiled steps, and how many bytes went over which link, as tables."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from workbench.errors import StateError
from workbench.events import Event
from workbench.metrics import records_of
from workbench.records import LinkTraffic, PhaseProfile, Profiled, Traffic
from workbench.views.tables import Row, Table, as_html, as_text
from workbench.views.text import NOTHING, duration, number, size

ALONE = "One process: it has nobody to exchange anything with, so there are phases and no collectives."
SILENT = "No worker made a collective in this step. What went from process to process otherwise is in run.routes."
READ = (
    "Bytes are of what is reduced, gathered or sent, summed over the calls, of the rank with the most. Seconds are the least and the most "
    "of a rank, by {timed}: they hold the wait for the slowest rank, which waits least itself."
)
ASSUMED = (
    "On links, reductions and gathers are taken to go round a ring of the group's ranks in their order, all-to-all straight; sends go as "
    "they are. NCCL may take a tree, or let the switch add up."
)
TIMED = {"kernel": "NCCL's kernel", "gloo": "gloo's own range", "host": "the call on the host"}


@dataclass(frozen=True)
class Worked:
    """What a role did in a phase."""

    role: str
    phase: str
    record: PhaseProfile


@dataclass(frozen=True)
class Exchanged:
    """Collectives of one kind over one group, by a role in a phase."""

    role: str
    phase: str
    record: Traffic


@dataclass(frozen=True)
class StepProfile:
    """One profiled step; in the order of the work, the most bytes first within a phase."""

    told: Profiled
    phases: tuple[Worked, ...]
    traffic: tuple[Exchanged, ...]
    links: tuple[LinkTraffic, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Phases, collectives, links; those that have rows."""
        return tuple(table for table in (_phases(self), _collectives(self), _links(self)) if table.rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """How to read them, and where the traces are."""
        where = f"Traces for ui.perfetto.dev: {self.told.path}/{self.told.trace}, and one file for each rank of each role."
        if not self.traffic:
            return (ALONE if self.told.processes < 2 else SILENT, where)
        parts = dict.fromkeys(part for one in self.traffic for part in one.record.timed.split(" and "))
        timed = " or ".join(TIMED.get(part, part) for part in parts)
        return (READ.format(timed=timed), *([ASSUMED] if self.links else []), where)


@dataclass(frozen=True, repr=False)
class Profile:
    """The profiled steps of a run. The last is shown; ``steps`` has all."""

    name: str
    steps: tuple[StepProfile, ...]

    @property
    def heading(self) -> str:
        """Which steps there are, and which is shown."""
        numbers = [step.told.step for step in self.steps]
        others = f" (profiled: {', '.join(map(str, numbers))}; run.profile.steps has all)" if len(numbers) > 1 else ""
        return f"{self.name} · communication in step {numbers[-1]}{others}"

    def __repr__(self) -> str:
        last = self.steps[-1]
        return "\n\n".join([self.heading, *map(as_text, last.tables), "\n".join(last.notes)])

    def _repr_html_(self) -> str:
        last = self.steps[-1]
        tables = "".join(f'<div style="margin:0 0 12px">{as_html(table)}</div>' for table in last.tables)
        notes = "".join(f'<div style="font-size:12px;opacity:0.72;max-width:760px">{escape(note)}</div>' for note in last.notes)
        return f'<div><div style="font-weight:600;margin-bottom:8px">{escape(self.heading)}</div>{tables}{notes}</div>'


def profile(events: Sequence[Event], name: str = "run") -> Profile:
    """The profiled steps that ``events`` tell of. Raises StateError where there are none."""
    told = records_of(events, Profiled)
    if not told:
        found = "no step has been profiled"
        raise StateError("run.profile", found, "write Run(profile=range(3, 5)) for steps 3 and 4, and train past them")
    return Profile(name, tuple(_step(events, one) for one in told))


def _step(events: Iterable[Event], told: Profiled) -> StepProfile:
    mine = [event for event in events if event.kind in ("phase_profile", "traffic", "link_traffic") and event.data["step"] == told.step]
    records = [(event.role or "", event.phase or "", event.record) for event in mine]
    return StepProfile(
        told,
        tuple(Worked(role, phase, record) for role, phase, record in records if isinstance(record, PhaseProfile)),
        tuple(Exchanged(role, phase, record) for role, phase, record in records if isinstance(record, Traffic)),
        tuple(record for _, _, record in records if isinstance(record, LinkTraffic)),
    )


# ------------------------------------------------------------ tables


def _phases(step: StepProfile) -> Table:
    rows = tuple(
        (one.role, one.phase, str(len(one.record.devices)), _spread(one.record.seconds), _spread(one.record.collective_seconds))
        for one in step.phases
    )
    return Table("Phases", ("role", "phase", "ranks", "work", "in collectives"), rows, "<<>>>")


def _collectives(step: StepProfile) -> Table:
    names = ("role", "phase", "group", "collective", "ranks", "count", "bytes", "seconds", "seconds of")
    return Table("Collectives", names, tuple(_row(one) for one in step.traffic), "<<<<>>>><")


def _row(one: Exchanged) -> Row:
    told = one.record
    groups = sorted({len(members) for members in told.members})
    ranks = f"{len(told.members)} x {groups[0]}" if len(told.members) > 1 and len(groups) == 1 else str(groups[-1] if groups else NOTHING)
    low, high = min(told.count), max(told.count)
    known = [count for count in told.bytes if count is not None]
    return (
        one.role,
        one.phase,
        told.group,
        told.collective,
        ranks,
        str(high) if low == high else f"{low} to {high}",
        size(max(known)) if known else "n/a",
        _spread(told.seconds),
        " or ".join(TIMED.get(part, part) for part in told.timed.split(" and ")),
    )


def _links(step: StepProfile) -> Table:
    names = ("from", "to", "between them", "there", "back", "at least")
    rows = tuple((link.a, link.b, link.link, size(link.there), size(link.back), _least(link)) for link in step.links)
    return Table("Bytes over links", names, rows, "<<<>>>")


def _least(link: LinkTraffic) -> str:
    """How long the larger direction takes at the link's estimate."""
    if link.gb_per_s is None:
        return "n/a"
    return f"{duration(max(link.there, link.back) / link.gb_per_s / 1e9)} at {number(link.gb_per_s)} GB/s"


def _spread(seconds: Sequence[float]) -> str:
    low, high = duration(min(seconds)), duration(max(seconds))
    return high if low == high else f"{low} to {high}"
