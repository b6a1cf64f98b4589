"""``run.knobs`` as a cell's last line: sliders that act at the next step, and Pause, Resume, Stop.

The run is the only truth. ``knobs.js`` sends what a person turned as a message, and draws the traits; a value that is
refused changes no trait, so the slider goes back. Whoever turns a knob, a cell, a callback or another panel, every
panel of the run follows.
"""

import threading
import weakref
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import anywidget
import traitlets

from workbench.errors import WorkbenchError
from workbench.events import Event, EventLog
from workbench.records import Knob
from workbench.views.dials import Knobs, Ladder, Row, rows, table, turned_at, wanted
from workbench.views.palette import DARK, LIGHT
from workbench.views.tables import as_html, as_text

SECONDS_BETWEEN_UPDATES = 0.25
LIVE = ("starting", "running")
_HERE = Path(__file__).parent
_SHOWN = frozenset({"state", "knob", "phase", "step"})  # events after which something here may read otherwise
_panels: "weakref.WeakKeyDictionary[EventLog, weakref.ref[Panel]]" = weakref.WeakKeyDictionary()


class Steered(Protocol):
    """What a panel asks of a run."""

    @property
    def knobs(self) -> Knobs:
        """Its knobs."""
        ...

    @property
    def state(self) -> str:
        """Where it is in its life: "new", "running", "paused", "closed"."""
        ...

    def pause(self, *, wait: bool = True) -> None:
        """Rest after the step in progress."""
        ...

    def resume(self) -> None:
        """Go on. Raises StateError where nothing rests."""
        ...

    def stop(self) -> None:
        """End training; takes up to a second, or until a model is loaded."""
        ...


class Panel(anywidget.AnyWidget):
    """The knobs of one run. ``panel(run, log)`` makes it; every output that shows it is a view of the same model."""

    # As text: of a path anywidget watches the file, and its signal would keep every widget alive.
    _esm = (_HERE / "knobs.js").read_text(encoding="utf-8")
    _css = (_HERE / "knobs.css").read_text(encoding="utf-8")
    palette = traitlets.Dict({"light": dict(LIGHT), "dark": dict(DARK)}).tag(sync=True)
    head = traitlets.Dict().tag(sync=True)  # state, status, and which buttons may be pressed
    rows = traitlets.List().tag(sync=True)
    answer = traitlets.Dict({"count": 0, "error": ""}).tag(sync=True)  # to the last message of a front end

    def __init__(self, run: Steered, log: EventLog) -> None:
        self._run, self._last_knobs = weakref.ref(run), run.knobs  # a widget lives as long as the kernel; a run need not
        self._ladders: dict[str, Ladder] = {}
        self._turns: list[Knob] = []
        self._asked = ""  # of the buttons, until the run's state says it
        self._sending = threading.Lock()  # one update at a time, in order
        self._outputs: list[Any] = []  # display handles
        super().__init__()
        self._feed = _Feed(self, log)
        self.on_msg(self._hear)
        self.update()

    @property
    def state(self) -> str:
        """The run's state; "closed" once the run is gone."""
        run = self._run()
        return "closed" if run is None else run.state

    @property
    def knobs(self) -> Knobs:
        """The run's knobs; once the run is gone, those it had. Asked for every time: a restored run may get others when it opens."""
        run = self._run()
        if run is not None:
            self._last_knobs = run.knobs
        return self._last_knobs

    @property
    def described(self) -> tuple[Row, ...]:
        """The rows at this moment."""
        return rows(self.knobs, self._ladders, turned_at(tuple(self._turns)))

    def take(self, turn: Knob) -> None:
        """Remember from which step a knob has its value."""
        self._turns.append(turn)

    def update(self) -> None:
        """Send what has changed to the front ends."""
        with self._sending:
            state, described = self.state, self.described
            self._ladders = {row.key: row.ladder for row in described}
            if state not in LIVE:
                self._asked = ""
            with self.hold_sync():
                self.head = _head(state, self._asked)
                self.rows = [asdict(row) | {"ladder": list(row.ladder)} for row in described]

    def close(self) -> None:
        """Leave the run and take the panel out of every output."""
        self._feed.leave()
        super().close()

    # ------------------------------------------------------------ from a front end

    def _hear(self, _: object, content: dict[str, Any], buffers: object) -> None:
        """A message of ``knobs.js``: {"turn": key, "to": value} or {"call": "pause" | "resume" | "stop"}. Every one is answered."""
        error = ""
        try:
            if "turn" in content:
                name, value = wanted(self.knobs, content["turn"], content["to"])
                self.knobs.set(**{name: value})
            else:
                self._press(content["call"])
        except (WorkbenchError, ValueError, TypeError) as refused:  # an algorithm of one's own refuses as it likes
            error = str(refused)
        self._reply(error)

    def _press(self, button: str) -> None:
        run = self._run()
        if run is None:
            return
        self._asked = button
        if button == "pause":
            run.pause(wait=False)
        elif button == "resume":
            run.resume()
        elif button == "stop":  # waits for the step in progress to end, and the kernel must not
            threading.Thread(target=self._stop, args=(run,), name="workbench-stop", daemon=True).start()

    def _stop(self, run: Steered) -> None:
        try:
            run.stop()
        except WorkbenchError as refused:
            self._reply(str(refused))
        else:
            self.update()

    def _reply(self, error: str) -> None:
        self.update()
        self.answer = {"count": self.answer["count"] + 1, "error": error}

    # ------------------------------------------------------------ the static twin

    @property
    def text(self) -> str:
        """The knobs as a table for a terminal."""
        return as_text(table(self.described, self.state))

    @property
    def html(self) -> str:
        """The same as HTML, in the colours of the page around it."""
        return as_html(table(self.described, self.state))

    def __repr__(self) -> str:
        return self.text

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """The panel for a front end that runs widgets, and the table for all others (papermill, GitHub, nbconvert)."""
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle
        return {**data, "text/plain": self.text, "text/html": self.html}, metadata

    def _ipython_display_(self) -> None:
        """Show it in an output that ``refresh`` can bring up to date."""
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        if bundle is not None:
            self._outputs.append(display(bundle[0], metadata=bundle[1], raw=True, display_id=True))

    def refresh(self) -> None:
        """Put the table as of now into every output that shows the panel. Only from the main thread; from elsewhere it does nothing."""
        bundle = self._repr_mimebundle_() if threading.current_thread() is threading.main_thread() else None
        for output in self._outputs if bundle else ():
            output.update(bundle[0], metadata=bundle[1], raw=True)


def _head(state: str, asked: str) -> dict[str, Any]:
    """State and buttons. ``asked``: the button that the run has not yet obeyed."""
    live = state in LIVE
    waits = {"pause": "rests after this step", "stop": "drops this step"}.get(asked, "") if live else ""
    closed = "a closed run keeps what it was" if state == "closed" else ""
    buttons = {
        "pause": live and asked not in ("pause", "stop"),
        "resume": state == "paused" or (live and asked == "pause"),
        "stop": (live or state == "paused") and asked != "stop",
    }
    return {"state": state, "status": waits or closed, "buttons": buttons}


class _Feed:
    """Between the stream and a panel, which it holds weakly. Many events become one update, in a thread of its own.

    Never in the writer's thread: that holds the stream, and who turns a knob holds the knobs and waits for the stream.
    """

    def __init__(self, panel: Panel, log: EventLog) -> None:
        self._panel = weakref.ref(panel)
        self._lock = threading.Lock()  # around the timer
        self._timer: threading.Timer | None = None
        self._replayed = False  # the past is sent once, by the panel itself
        self._leave: Callable[[], None] | None = None
        self._leave = log.subscribe(self._listen)
        self._replayed = True
        if panel.state == "closed":
            self.leave()

    def leave(self) -> None:
        """Hear no more events. What has come is still sent."""
        leave, self._leave = self._leave, None
        if leave is not None:
            leave()

    def _listen(self, event: Event) -> None:
        panel = self._panel()
        if panel is None:
            self.leave()
            return
        if event.kind == "knob":
            panel.take(event.record)  # type: ignore[arg-type]
        if self._replayed and event.kind in _SHOWN:
            self._schedule()
        if event.kind == "state" and event.data["state"] == "closed":
            self.leave()

    def _schedule(self) -> None:
        with self._lock:
            if self._timer is None:
                self._timer = threading.Timer(SECONDS_BETWEEN_UPDATES, self._send)
                self._timer.daemon = True
                self._timer.start()

    def _send(self) -> None:
        with self._lock:
            self._timer = None
        panel = self._panel()
        if panel is not None and panel.comm is not None:
            panel.update()


def panel(run: Steered, log: EventLog) -> Panel:
    """The panel of ``run``, which writes ``log``. Asked again it is the same one: shown twice, turned once."""
    known = _panels.get(log)
    found = known() if known else None
    if found is None or found.comm is None:
        found = Panel(run, log)
        _panels[log] = weakref.ref(found)
    return found


def refresh(log: EventLog) -> None:
    """Bring the table in the outputs of ``log``'s panel up to date, where there is one."""
    known = _panels.get(log)
    found = known() if known else None
    if found is not None and found.comm is not None:
        found.refresh()
