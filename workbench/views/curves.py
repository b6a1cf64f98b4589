"""``run.watch()``: the curves of a run, live in the notebook while the kernel stays free.

The browser gets two bounded descriptions, never a history: ``head`` (the state in words, a few hundred bytes) at most four
times a second, and ``chart`` (at most 200 points a line) when a step has ended. ``curves.js`` draws both, each panel by
``panel.js``, and computes nothing but pixels. Whatever is synced is also saved in the notebook, so its size does not grow
with the run.
"""

import threading
import weakref
from dataclasses import asdict

import traitlets

from workbench.events import Event, EventLog
from workbench.views.chart import chart
from workbench.views.frame import frame
from workbench.views.history import History
from workbench.views.live import OVER, Live, Shown, source
from workbench.views.report import Report

_STOOD = '<div style="opacity:0.72">This is how it stood when it was drawn; run.summary() shows the end.</div>'


class Watch(Live):
    """The live view of one event stream. ``watch(log)`` makes it; every output that shows it is a view of the same model.

    ``badge``: "replayed", "simulated" or nothing.
    """

    _esm = source("panel.js", "curves.js")
    _css = source("curves.css")
    head = traitlets.Dict().tag(sync=True)
    chart = traitlets.Dict().tag(sync=True)

    def __init__(self, log: EventLog, badge: str = "") -> None:
        self._log, self._badge = weakref.ref(log), badge
        self._history = History()
        self._lock = threading.Lock()  # around the history: the writer feeds it, a timer reads it
        self._drawn = -1  # state of the curves that the front ends have
        super().__init__(log)

    @property
    def state(self) -> str:
        """The run's state after the events so far; "new" before the first."""
        return self._history.state.state

    def take(self, event: Event) -> bool:
        """Take in one event; quick, and draws nothing. After a restore the whole is read again, without what no longer counts."""
        log = self._log() if event.kind == "restored" else None
        with self._lock:
            if log is None:
                self._history.feed(event)
            else:
                self._history = History([past for past in log.events if past.seq <= event.seq])
                self._drawn = -1
        return True

    def send(self) -> None:
        """The words, and the curves where they have changed."""
        with self._lock:
            history = self._history
            head = asdict(frame(history)) | {"badge": self._badge}
            panels = asdict(chart(history)) if history.drawn != self._drawn else None
            self._drawn = history.drawn
        with self.hold_sync():
            self.head = head
            if panels is not None:
                self.chart = panels

    @property
    def report(self) -> Report:
        """The static twin: the same state and curves at this moment, as HTML, PNG and text."""
        with self._lock:
            return Report(frame(self._history), chart(self._history), self._badge)

    def twin(self) -> dict[str, str]:
        """The report as it is now; of a run that goes on it says so."""
        bundle = self.report.bundle()
        if self.state not in OVER:
            bundle["text/html"] += _STOOD
        return bundle

    def __repr__(self) -> str:
        return self.report.text


_watches: Shown[Watch] = Shown()


def watch(log: EventLog, badge: str = "") -> Watch:
    """The live view of ``log``, with all that has happened so far. Asked again it is the same one: shown twice, run once."""
    return _watches.of(log) or _watches.keep(log, Watch(log, badge))


def refresh(log: EventLog) -> None:
    """Bring the static twin in the outputs of ``log``'s live view up to date, where there is one."""
    _watches.refresh(log)
