"""``run.watch("timeline")``: the phases of the last steps on every device as they end, with the time in which a device had nothing to do.

The browser gets a window of ten steps, never the history; a person can ask for an earlier one. Zooming is the browser's own.
"""

import threading
import weakref
from collections import deque
from typing import Any

import traitlets

from workbench.events import Event, EventLog
from workbench.records import PHASES
from workbench.topology.drawing.display import bundle
from workbench.views.badge import in_text, on_scene
from workbench.views.described import COLOURS, heading
from workbench.views.live import Live, Shown, source, words_alone
from workbench.views.now import Now
from workbench.views.timeline import Timeline, recent
from workbench.views.timeline_figure import SOFT

STEPS = 10  # in a window
_KINDS = {"phase", "step", "restored"}


class TimelineView(Live):
    """The live view of the phases in one stream. ``watch_timeline`` makes it. ``badge``: "replayed", "simulated" or nothing."""

    _esm = source("heading.js", "machine.js", "asking.js", "phases.js", "timeline.js")
    _css = source("heading.css", "timeline.css")
    palette = traitlets.Dict(COLOURS).tag(sync=True)
    now = traitlets.Dict().tag(sync=True)
    window = traitlets.Dict().tag(sync=True)

    def __init__(self, log: EventLog, badge: str = "") -> None:
        self._log, self._badge = weakref.ref(log), badge
        self._now = Now()
        self._begun: Event | None = None
        self._recent: deque[Event] = deque()  # of the last steps
        self._last: int | None = None  # the last step of the window that was asked for; None: the newest
        self._fresh = False  # whether something came that the window does not show
        self._answers = 0
        self._lock = threading.Lock()
        super().__init__(log)
        self.on_msg(self._asked)

    @property
    def state(self) -> str:
        """The run's state after the events so far; "new" before the first."""
        return self._now.state

    def take(self, event: Event) -> bool:
        """Take in one event; quick, and draws nothing."""
        with self._lock:
            if event.kind == "run_started":
                self._begun = event
            if event.kind in _KINDS:
                self._recent.append(event)
                self._fresh = True
                self._forget()
            return self._now.feed(event)

    def _forget(self) -> None:
        """Let go of the steps before the window, and one more: where that ended the window begins."""
        kept = self._now.step - STEPS - 2
        while self._recent and self._recent[0].kind != "restored" and self._recent[0].data["step"] < kept:
            self._recent.popleft()

    def send(self) -> None:
        """The words, and the window where something came into it."""
        with self._lock:
            head = heading(self._now, self._badge)
            window = self._described() if self._fresh and self._last is None else None
            self._fresh = self._fresh and self._last is not None
        with self.hold_sync():
            if window is not None:
                self.window = window
            self.now = head

    def _described(self) -> dict[str, Any] | None:
        found = self._newest()
        return None if found is None else _plain(*found, self._now.step, self._answers)

    def _newest(self) -> tuple[Timeline, float] | None:
        return recent([self._begun, *self._recent], STEPS) if self._begun else None

    def _asked(self, _: object, content: Any, __: object) -> None:
        """A person asked for the window that ends with a step; None: the newest again."""
        log = self._log()
        if log is None or not isinstance(content, dict) or not _is_step(content.get("last", "")):
            return
        last = content["last"]
        self._answers += 1
        past = None if last is None else recent([event for event in log.events if _until(event, last)], STEPS)
        with self._lock:
            self._last = None if past is None else last
            window = self._described() if past is None else _plain(*past, self._now.step, self._answers)
        if window is not None:
            self.window = window

    @property
    def timeline(self) -> Timeline | None:
        """The newest window; None before the first phase has ended."""
        with self._lock:
            found = self._newest()
        return found[0] if found else None

    def twin(self) -> dict[str, str]:
        """The newest window as it is now, drawn once."""
        shown = self.timeline
        return bundle(on_scene(shown.scene, self._badge), repr(self)) if shown else words_alone(repr(self))

    def __repr__(self) -> str:
        shown = self.timeline
        return in_text(repr(shown) if shown else f"{self._now.sentence}\nno phase has ended yet", self._badge)


def _is_step(last: object) -> bool:
    return last is None or (isinstance(last, int) and last > 0)


def _until(event: Event, last: int) -> bool:
    """Whether an event is needed for the steps up to ``last``."""
    return event.kind in ("run_started", "restored") or (event.kind in _KINDS and event.data["step"] <= last)


def _plain(shown: Timeline, origin: float, newest: int, answer: int) -> dict[str, Any]:
    """For a browser: bars as [number of the phase, step, begin, seconds], to the tenth of a millisecond."""
    rows = [
        {
            "device": row.device,
            "roles": ", ".join(row.roles),
            "busy": round(shown.busy_fraction[row.device], 3),
            "bars": [[PHASES.index(bar.phase), bar.step, round(bar.begin, 4), round(bar.seconds, 4)] for bar in row.bars],
        }
        for row in shown.rows
    ]
    phases = [{"name": name, "fill": SOFT.get(name, f"{name}-soft"), "stroke": name} for name in PHASES]
    ends = [[step, round(seconds, 4)] for step, seconds in shown.ends.items()]
    span = {"first": shown.first, "last": shown.last, "newest": newest, "seconds": round(shown.seconds, 4), "origin": round(origin, 4)}
    return {**span, "phases": phases, "rows": rows, "ends": ends, "answer": answer, "count": STEPS}


_views: Shown[TimelineView] = Shown()


def watch_timeline(log: EventLog, badge: str = "") -> TimelineView:
    """The view of the phases in ``log``. Asked again it is the same one: shown twice, run once."""
    return _views.of(log) or _views.keep(log, TimelineView(log, badge))


def refresh(log: EventLog) -> None:
    """Bring the static twin in the outputs of ``log``'s view up to date, where there is one."""
    _views.refresh(log)
