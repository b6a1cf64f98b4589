"""``run.knobs`` as a cell's last line: sliders that act at the next step, and Pause, Resume, Stop.

The run is the only truth. ``knobs.js`` sends what a person turned as a message, and draws the traits; a value that is
refused changes no trait, so the slider goes back. Whoever turns a knob, a cell, a callback or another panel, every
panel of the run follows.
"""

import threading
import weakref
from dataclasses import asdict
from typing import Any, Protocol

import traitlets

from workbench.errors import WorkbenchError
from workbench.events import Event, EventLog
from workbench.records import Knob
from workbench.views.badge import in_html, in_text
from workbench.views.dials import Knobs, Ladder, Row, rows, table, turned_at, wanted
from workbench.views.history import LIVE
from workbench.views.live import Live, Shown, source
from workbench.views.tables import as_html, as_text

_SHOWN = frozenset({"state", "knob", "phase", "step", "restored"})  # events after which something here may read otherwise


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


class Panel(Live):
    """The knobs of one run. ``panel(run, log)`` makes it; every output that shows it is a view of the same model.

    ``badge``: "simulated" or nothing.
    """

    _esm = source("knobs.js")
    _css = source("knobs.css")
    head = traitlets.Dict().tag(sync=True)  # state, status, and which buttons may be pressed
    rows = traitlets.List().tag(sync=True)
    answer = traitlets.Dict({"count": 0, "error": ""}).tag(sync=True)  # to the last message of a front end

    def __init__(self, run: Steered, log: EventLog, badge: str = "") -> None:
        self._badge = badge
        self._run, self._last_knobs = weakref.ref(run), run.knobs  # a widget lives as long as the kernel; a run need not
        self._ladders: dict[str, Ladder] = {}
        self._turns: list[Knob] = []
        self._asked = ""  # of the buttons, until the run's state says it
        super().__init__(log)
        self.on_msg(self._hear)

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

    def take(self, event: Event) -> bool:
        """Remember from which step a knob has its value; a restore takes back what came after it."""
        if event.kind == "knob":
            self._turns.append(event.record)  # type: ignore[arg-type]
        if event.kind == "restored":
            self._turns = [turn for turn in self._turns if turn.step <= event.data["step"]]
        return event.kind in _SHOWN

    def send(self) -> None:
        """State, buttons and rows as they are now."""
        state, described = self.state, self.described
        self._ladders = {row.key: row.ladder for row in described}
        if state not in LIVE:
            self._asked = ""
        with self.hold_sync():
            self.head = _head(state, self._asked) | {"badge": self._badge}
            self.rows = [asdict(row) | {"ladder": list(row.ladder)} for row in described]

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
        return in_text(as_text(table(self.described, self.state)), self._badge)

    @property
    def html(self) -> str:
        """The same as HTML, in the colours of the page around it."""
        return in_html(self._badge) + as_html(table(self.described, self.state))

    def __repr__(self) -> str:
        return self.text

    def twin(self) -> dict[str, str]:
        """The table as it is now."""
        return {"text/plain": self.text, "text/html": self.html}


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


_panels: Shown[Panel] = Shown()


def panel(run: Steered, log: EventLog, badge: str = "") -> Panel:
    """The panel of ``run``, which writes ``log``. Asked again it is the same one: shown twice, turned once."""
    return _panels.of(log) or _panels.keep(log, Panel(run, log, badge))


def refresh(log: EventLog) -> None:
    """Bring the table in the outputs of ``log``'s panel up to date, where there is one."""
    _panels.refresh(log)
