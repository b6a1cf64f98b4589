"""What the live views have in common: one widget for each stream of events, fed while it lives, shown with its static twin.

A view gets every event, and sends what has changed to its front ends at most four times a second, from a timer's thread:
the writer of the stream waits for no drawing.
"""

import threading
import time
import weakref
from collections.abc import Callable
from html import escape
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import anywidget
import traitlets

from workbench.events import Event, EventLog
from workbench.palette import DARK, LIGHT

SECONDS_BETWEEN_UPDATES = 0.25
OVER = ("finished", "stopped", "failed", "interrupted", "closed")
AT_REST = (*OVER, "paused")
_HERE = Path(__file__).parent


def source(*names: str) -> str:
    """Files of this folder behind what all of their kind share: one module, or one style sheet, without a build step.

    As text: of a path anywidget watches the file, and its signal would keep every widget alive.
    """
    kind = Path(names[0]).suffix
    return "\n".join((_HERE / part).read_text(encoding="utf-8") for part in (f"shared{kind}", *names))


def words_alone(text: str) -> dict[str, str]:
    """The static twin of a view that has nothing to draw yet."""
    return {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}


class Live(anywidget.AnyWidget):
    """A view of one stream. Subclasses say what they ``take`` from an event, what they ``send``, and what their ``twin`` is."""

    palette = traitlets.Dict({"light": dict(LIGHT), "dark": dict(DARK)}).tag(sync=True)

    def __init__(self, log: EventLog) -> None:
        self._sending = threading.Lock()  # one update at a time, in order
        self._outputs: list[Any] = []  # display handles
        self._feed: Feed | None = None
        super().__init__()
        self._feed = Feed(self, log)
        self.update()

    @property
    def state(self) -> str:
        """The run's state; "new" before it begins."""
        raise NotImplementedError

    def take(self, event: Event) -> bool:
        """Take in one event, quickly, on the writer's thread. True where something is to be sent after it."""
        raise NotImplementedError

    def send(self) -> None:
        """Set the traits that have changed."""
        raise NotImplementedError

    def twin(self) -> dict[str, str]:
        """The static twin as it is now: MIME type to content."""
        raise NotImplementedError

    def update(self) -> None:
        """Send what has changed to the front ends."""
        with self._sending:
            self.send()

    def close(self) -> None:
        """Leave the stream and take the view out of every output."""
        if self._feed is not None:
            self._feed.leave()
        layout = self.layout
        super().close()
        layout.close()  # a widget of its own, which ipywidgets would keep for good

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The view for a front end that runs widgets, and the static twin for all others (papermill, GitHub, nbconvert)."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, **self.twin()}, metadata

    def _ipython_display_(self) -> None:
        """Show it in an output that ``refresh`` can bring up to date."""
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        if bundle is not None:
            self._outputs.append(display(bundle[0], metadata=bundle[1], raw=True, display_id=True))

    def refresh(self) -> None:
        """Put the static twin as of now into every output that shows the view: what stays where no widget runs.

        Only from the main thread (display is not for others); from elsewhere it does nothing.
        """
        if self._outputs and threading.current_thread() is threading.main_thread():
            bundle = self._repr_mimebundle_()
            for output in self._outputs if bundle is not None else ():
                output.update(bundle[0], metadata=bundle[1], raw=True)


class Feed:
    """Between the stream and a view: coalesces events, and holds the view weakly, so that it can be collected.

    A timer runs only while something is unsent; between events there is no thread. Nothing is sent in the writer's thread: that
    holds the stream, and who turns a knob holds the knobs and waits for the stream.
    """

    def __init__(self, view: Live, log: EventLog) -> None:
        self._view = weakref.ref(view)
        self._lock = threading.Lock()  # around the timer
        self._timer: threading.Timer | None = None
        self._sent = -SECONDS_BETWEEN_UPDATES
        self._replayed = False  # the past is sent once, by the view itself
        self._leave: Callable[[], None] | None = None
        self._leave = log.subscribe(self._listen)
        self._replayed = True
        if view.state == "closed":
            self.leave()

    def leave(self) -> None:
        """Hear no more events. What has come is still sent."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def _listen(self, event: Event) -> None:
        view = self._view()
        if view is None:  # collected: only here is it sure that no other lock is held while the stream's is taken
            self.leave()
            return
        is_news = view.take(event)
        if self._replayed:
            state = event.data["state"] if event.kind == "state" else ""
            if is_news:
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
        view = self._view()
        if view is not None and view.comm is not None:
            view.update()


class Showable(Protocol):
    """What can be shown in several outputs: a view, or several of them."""

    comm: Any  # None once it is closed

    def refresh(self) -> None:
        """Bring what a notebook keeps of it up to date."""
        ...


View = TypeVar("View", bound=Showable)


class Shown(Generic[View]):
    """The view of each stream, while both live: shown twice it is one."""

    def __init__(self) -> None:
        self._views: weakref.WeakKeyDictionary[EventLog, weakref.ref[View]] = weakref.WeakKeyDictionary()

    def of(self, log: EventLog) -> View | None:
        """The view of ``log`` that is open; None where there is none."""
        known = self._views.get(log)
        found = known() if known else None
        return None if found is None or found.comm is None else found

    def keep(self, log: EventLog, view: View) -> View:
        """Remember ``view`` as that of ``log``."""
        self._views[log] = weakref.ref(view)
        return view

    def refresh(self, log: EventLog) -> None:
        """Bring the static twin in the outputs of ``log``'s view up to date, where there is one."""
        found = self.of(log)
        if found is not None:
            found.refresh()

    def __len__(self) -> int:
        return len(self._views)
