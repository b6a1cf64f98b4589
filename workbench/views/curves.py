"""``run.watch()``: the curves of a run, live in the notebook while the kernel stays free.

The browser gets two bounded descriptions, never a history: ``head`` (the state in words, a few hundred bytes) at most four
times a second, and ``chart`` (at most 200 points a line) when a step has ended. ``curves.js`` draws both and computes
nothing but pixels. Whatever is synced is also saved in the notebook, so its size does not grow with the run.
"""

import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from workbench.events import Event, EventLog
from workbench.views.chart import chart
from workbench.views.frame import frame
from workbench.views.history import History
from workbench.views.palette import DARK, LIGHT
from workbench.views.report import Report

SECONDS_BETWEEN_UPDATES = 0.25
_HERE = Path(__file__).parent
OVER = ("finished", "stopped", "failed", "interrupted", "closed")
AT_REST = (*OVER, "paused")
_watches: "weakref.WeakKeyDictionary[EventLog, weakref.ref[Watch]]" = weakref.WeakKeyDictionary()


class Watch(anywidget.AnyWidget):
    """The live view of one event stream. ``watch(log)`` makes it; every output that shows it is a view of the same model."""

    # As text: of a path anywidget watches the file, and its signal would keep every widget alive.
    _esm = (_HERE / "curves.js").read_text(encoding="utf-8")
    _css = (_HERE / "curves.css").read_text(encoding="utf-8")
    palette = traitlets.Dict({"light": dict(LIGHT), "dark": dict(DARK)}).tag(sync=True)
    head = traitlets.Dict().tag(sync=True)
    chart = traitlets.Dict().tag(sync=True)

    def __init__(self, log: EventLog) -> None:
        self._history = History()
        self._lock = threading.Lock()  # around the history: the writer feeds it, a timer reads it
        self._sending = threading.Lock()  # one update at a time, in order
        self._drawn = -1  # state of the curves that the front ends have
        self._feed: _Feed | None = None
        self._outputs: list[Any] = []  # display handles
        super().__init__()
        self._feed = _Feed(self, log)
        self.update()

    @property
    def state(self) -> str:
        """The run's state after the events so far; "new" before the first."""
        return self._history.state.state

    def take(self, event: Event) -> None:
        """Take in one event; quick, and draws nothing."""
        with self._lock:
            self._history.feed(event)

    def update(self) -> None:
        """Send what has changed to the front ends."""
        with self._sending:
            with self._lock:
                history = self._history
                head = asdict(frame(history))
                panels = asdict(chart(history)) if history.drawn != self._drawn else None
                self._drawn = history.drawn
            with self.hold_sync():
                self.head = head
                if panels is not None:
                    self.chart = panels

    def close(self) -> None:
        """Leave the event stream and take the view out of every output."""
        if self._feed is not None:
            self._feed.leave()
        super().close()

    @property
    def report(self) -> Report:
        """The static twin: the same state and curves at this moment, as HTML, PNG and text."""
        with self._lock:
            return Report(frame(self._history), chart(self._history))

    def __repr__(self) -> str:
        return self.report.text

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The view for a front end that runs widgets, and the static twin for all others (papermill, GitHub, nbconvert)."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        twin = self.report.bundle()
        if self.state not in OVER:
            twin["text/html"] += '<div style="opacity:0.72">This is how it stood when it was drawn; run.summary() shows the end.</div>'
        return {**data, **twin}, metadata

    def _ipython_display_(self) -> None:
        """Show it in an output that ``refresh`` can bring up to date."""
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        if bundle is None:
            return
        data, metadata = bundle
        self._outputs.append(display(data, metadata=metadata, raw=True, display_id=True))

    def refresh(self) -> None:
        """Put the static twin as of now into every output that shows the view: what stays where no widget runs.

        Only from the main thread (display is not for others); from elsewhere it does nothing.
        """
        bundle = self._repr_mimebundle_() if threading.current_thread() is threading.main_thread() else None
        for output in self._outputs if bundle else ():
            output.update(bundle[0], metadata=bundle[1], raw=True)


class _Feed:
    """Between the stream and a widget: coalesces events, and holds the widget weakly, so that it can be collected.

    A timer runs only while something is unsent; between events there is no thread.
    """

    def __init__(self, widget: Watch, log: EventLog) -> None:
        self._widget = weakref.ref(widget)
        self._lock = threading.Lock()  # around the timer
        self._timer: threading.Timer | None = None
        self._sent = -SECONDS_BETWEEN_UPDATES
        self._replayed = False  # the past is sent once, by the widget itself
        self._leave: Callable[[], None] | None = None
        self._leave = log.subscribe(self._listen)
        self._replayed = True
        if widget.state == "closed":
            self.leave()

    def leave(self) -> None:
        """Hear no more events. What has come is still sent."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def _listen(self, event: Event) -> None:
        widget = self._widget()
        if widget is None:  # collected: only here is it sure that no other lock is held while the stream's is taken
            self.leave()
            return
        widget.take(event)
        if self._replayed:
            state = event.data["state"] if event.kind == "state" else ""
            self._schedule(at_once=state in AT_REST)
            if state == "closed":
                self.leave()

    def _schedule(self, *, at_once: bool) -> None:
        """See to it that what came is sent, now or with what comes until then. A rest is sent at once: the kernel may end with it."""
        with self._lock:
            if self._timer is not None and not at_once:
                return
            if self._timer is not None:
                self._timer.cancel()
            wait = 0.0 if at_once else max(0.0, self._sent + SECONDS_BETWEEN_UPDATES - time.monotonic())
            self._timer = threading.Timer(wait, self._send)
            self._timer.daemon = True
            self._timer.start()

    def _send(self) -> None:
        with self._lock:
            self._timer, self._sent = None, time.monotonic()
        widget = self._widget()
        if widget is not None and widget.comm is not None:
            widget.update()


def watch(log: EventLog) -> Watch:
    """The live view of ``log``, with all that has happened so far. Asked again it is the same one: shown twice, run once."""
    known = _watches.get(log)
    found = known() if known else None
    if found is None or found.comm is None:
        found = Watch(log)
        _watches[log] = weakref.ref(found)
    return found


def refresh(log: EventLog) -> None:
    """Bring the static twin in the outputs of ``log``'s live view up to date, where there is one."""
    known = _watches.get(log)
    found = known() if known else None
    if found is not None and found.comm is not None:
        found.refresh()
