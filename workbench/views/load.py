"""``run.watch("load")``: how busy and how full each device was over the last minutes, up to three, and which role kept it busy.

The browser gets a bounded description, never a history: the last stretches of each device as whole percents, a few kilobytes, when one
more stretch has passed; and the numbers of now at most four times a second.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import traitlets

from workbench.events import Event, EventLog
from workbench.palette import ROLE_COLOUR
from workbench.roles import Role
from workbench.topology.drawing.display import bundle
from workbench.views.badge import in_text, on_scene
from workbench.views.described import described, numbers, percent
from workbench.views.live import Live, Shown, source, words_alone
from workbench.views.load_figure import draw
from workbench.views.loads import WIDTH, Loads
from workbench.views.now import Now
from workbench.views.text import columns, spark

Percents = tuple[int | None, ...]


@dataclass(frozen=True)
class Course:
    """One device over the last minutes. ``who``: the role that kept it busy in each stretch, "" for none."""

    device: str
    roles: tuple[str, ...]
    busy: Percents
    full: Percents
    who: tuple[str, ...]
    now: tuple[str, str]  # how busy and how full, in words


@dataclass(frozen=True)
class RoleCourse:
    """One role: how busy it kept its devices, on average."""

    role: str
    busy: Percents


@dataclass(frozen=True)
class Courses:
    """All devices and roles. ``seconds``: of one stretch."""

    title: str
    devices: tuple[Course, ...]
    roles: tuple[RoleCourse, ...]
    seconds: float = WIDTH


def courses(now: Now, loads: Loads) -> Courses:
    """The last minutes of the devices that have a role or a sample."""
    latest = loads.latest
    names = dict.fromkeys((*now.devices, *latest))
    same: dict[tuple[str, ...], list[str]] = {}  # roles of a device -> who worked there, which is the same for all of them
    rows = []
    for name in (name for name in names if name in latest):
        here = now.roles_on(name)
        if here not in same:
            same[here] = loads.at_work(name, now.placement)
        sampled = numbers(latest[name])
        rows.append(Course(name, here, _percents(loads.busy(name)), _percents(loads.full(name)), tuple(same[here]), sampled))
    roles = [RoleCourse(role, _percents(loads.of_role(role, now.placement))) for role in Role if role in now.placement]
    return Courses(now.sentence, tuple(rows), tuple(roles))


def _percents(values: Sequence[float | None]) -> Percents:
    return tuple(None if value is None else round(100 * value) for value in values)


class LoadView(Live):
    """The live view of the load in one stream. ``watch_load`` makes it. ``badge``: "replayed", "simulated" or nothing."""

    _esm = source("heading.js", "machine.js", "load.js")
    _css = source("heading.css", "load.css")
    chart = traitlets.Dict().tag(sync=True)
    now = traitlets.Dict().tag(sync=True)

    def __init__(self, log: EventLog, badge: str = "") -> None:
        self._badge = badge
        self._now, self._loads = Now(), Loads()
        self._lock = threading.Lock()  # around both: the writer feeds them, a timer reads them
        self._drawn: tuple[object, ...] = ()  # what the chart that the front ends have was made of
        super().__init__(log)

    @property
    def state(self) -> str:
        """The run's state after the events so far; "new" before the first."""
        return self._now.state

    def take(self, event: Event) -> bool:
        """Take in one event; quick, and draws nothing."""
        with self._lock:
            told, sampled = self._now.feed(event), self._loads.feed(event)
            return told or sampled

    def send(self) -> None:
        """The numbers, and the courses where a stretch has passed."""
        with self._lock:
            now, chart = described(self._now, self._loads, self._badge), None
            made_of = (self._loads.end, self._now.placement, self._loads.devices)
            if made_of != self._drawn:
                self._drawn, chart = made_of, _plain(courses(self._now, self._loads))
        with self.hold_sync():
            if chart is not None:
                self.chart = chart
            self.now = now

    @property
    def courses(self) -> Courses:
        """What the view shows at this moment."""
        with self._lock:
            return courses(self._now, self._loads)

    def twin(self) -> dict[str, str]:
        """The same as it is now, drawn once; words alone where nothing was sampled."""
        shown = self.courses
        return bundle(on_scene(draw(shown), self._badge), repr(self)) if shown.devices else words_alone(repr(self))

    def __repr__(self) -> str:
        return in_text(text(self.courses), self._badge)


def text(shown: Courses) -> str:
    """The load as a table for a terminal, its course as blocks."""
    if not shown.devices:
        return f"{shown.title}\nno load was sampled yet"
    rows = [(row.device, row.now[0], row.now[1], spark(row.busy), ", ".join(row.roles)) for row in shown.devices]
    means = [(row.role, _mean(row.busy), "", spark(row.busy), "") for row in shown.roles if any(row.busy)]
    seconds = len(shown.devices[0].busy) * shown.seconds
    span = f"the last {seconds / 60:.3g} min" if seconds >= 60 else f"the last {seconds:.0f} s"
    return "\n".join([shown.title, *columns([("device", "busy", "memory", span, "roles"), *rows, *means], "<>><<")])


def _mean(values: Percents) -> str:
    known = [value for value in values if value is not None]
    return percent(sum(known) / len(known) / 100 if known else None)


def _plain(shown: Courses) -> dict[str, Any]:
    """For a browser: of a role its number in ``names``, as it is there in every stretch."""
    names = [str(role) for role in Role]
    rows = [
        {"device": row.device, "roles": row.roles, "busy": row.busy, "full": row.full, "who": [_index(names, who) for who in row.who]}
        for row in shown.devices
    ]
    roles = [{"role": row.role, "busy": row.busy} for row in shown.roles if any(value is not None for value in row.busy)]
    return {"seconds": shown.seconds, "names": names, "colours": _colours(names), "devices": rows, "roles": roles}


def _index(names: Sequence[str], who: str) -> int:
    return names.index(who) if who else -1


def _colours(names: Sequence[str]) -> list[str]:
    by_name: Mapping[str, str] = {str(role): colour for role, colour in ROLE_COLOUR.items()}
    return [by_name[name] for name in names]


_views: Shown[LoadView] = Shown()


def watch_load(log: EventLog, badge: str = "") -> LoadView:
    """The view of the load in ``log``. Asked again it is the same one: shown twice, run once."""
    return _views.of(log) or _views.keep(log, LoadView(log, badge))


def refresh(log: EventLog) -> None:
    """Bring the static twin in the outputs of ``log``'s view up to date, where there is one."""
    _views.refresh(log)
