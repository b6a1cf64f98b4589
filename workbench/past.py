"""Runs of before: one opened from its folder, read-only, and several beside each other.

>>> run = wb.Run.load("runs/quickstart")
>>> run.summary()
>>> wb.compare(run, "runs/first-run")
"""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError
from workbench.events import Event, EventLog, check_understood, read_kept, standing
from workbench.folder import is_alive
from workbench.look import Reading
from workbench.metrics import records_of
from workbench.records import Knob, RunStarted, State
from workbench.views.text import number

if TYPE_CHECKING:
    from workbench.views.compare import RunComparison, Told

EVENTS = "events.jsonl"
ENDS = ("finished", "stopped", "failed")


class PastRun(Reading):
    """A run as its folder tells it: nothing is loaded, nothing written. ``load`` makes it; load again to see what came since.

    ``state`` is how training ended ("finished", "stopped", "failed", also when the run was closed after that), what the run does
    now where its process lives, or "interrupted" where that ended without a word.
    """

    def __init__(self, path: Path, events: Sequence[Event], alive: bool) -> None:
        self._path, self._recorded = path, list(events)
        states = [record.state for record in records_of(events, State)]
        self.state = state_now(states, alive)
        self.started = records_of(events, RunStarted)[0]
        self._stream = EventLog()
        self._stream.events = list(events)
        if self.state == "interrupted":  # the views are told, the file is not
            last = events[-1]
            state = asdict(State("interrupted"))
            self._stream.events.append(Event(last.seq + 1, last.time, last.mono, last.node, None, None, None, "state", state))

    @property
    def _log(self) -> EventLog:
        return self._stream

    @property
    def path(self) -> Path:
        """The run's folder: events.jsonl, metrics.json, adapter/, placement.json."""
        return self._path

    @property
    def events(self) -> list[Event]:
        """Everything that its file holds, in order; of many samples of the load the newest, and the older the fewer."""
        return list(self._recorded)

    @property
    def name(self) -> str:
        """The run's name, as it was given."""
        return self.started.name

    def __getattr__(self, name: str) -> Any:
        found = f"a past run has no {name!r}: it can be looked at (steps, held_out, turned, watch(), summary()), no more"
        raise AttributeError(f"{found}; Run.restore(path) goes on with it")

    @property
    def turned(self) -> list[Knob]:
        """Every setting that was changed on the run, in order."""
        return records_of(standing(self.events), Knob)

    @property
    def error(self) -> str:
        """What failed last; "" where nothing did."""
        return next((record.error for record in reversed(records_of(self.events, State)) if record.state == "failed"), "")

    def __repr__(self) -> str:
        gain = self.metrics.held_out_reward
        parts = [self.state, f"{self.metrics.steps} steps"]
        if gain.before is not None:
            after = f" -> {number(gain.after)}" if gain.after is not None else ""
            parts.append(f"held-out reward {number(gain.before)}{after}")
        parts += [self.error.splitlines()[0]] if self.error and self.state == "failed" else []
        return f"PastRun({self.name!r}, {', '.join(parts)}, {self.path})"


def load(path: str | Path) -> PastRun:
    """Open a run read-only: its folder, a link to it (``runs/NAME`` is the newest), or an ``events.jsonl``. It may be training still.

    Raises ConfigError where there is no run, no event, or a damaged line; a last line that a crash cut off is left out.
    """
    file = events_file(Path(path))
    alive = is_alive(file.parent)  # before the events: a run that ends between the two has written its end
    events = _read(file)
    if not events:
        raise ConfigError(f"run {str(path)!r}", f"{file.name} holds no event yet", "load it again once the run has started")
    if events[0].kind != "run_started":
        found = f"{file.name} begins with {events[0].kind!r}, a run with 'run_started'"
        raise ConfigError(f"run {str(path)!r}", found, "give the file of a whole run")
    return PastRun(file.parent, events, alive)


def compare(*runs: Reading | str | Path) -> "RunComparison":
    """Runs beside each other, as a cell's last line: live ones, loaded ones, or their folders. Raises ConfigError, as ``load`` does."""
    from workbench.views.compare import compare_runs

    if not runs:
        raise ConfigError("wb.compare()", "there is no run to compare", "give runs or their folders: wb.compare(run, 'runs/quickstart')")
    return compare_runs([_told(run) for run in runs])


def _told(run: Reading | str | Path) -> "Told":
    from workbench.views.compare import Told

    if isinstance(run, str | Path):
        run = load(run)
    if not isinstance(run, Reading):
        raise ConfigError(f"wb.compare({run!r})", f"that is a {type(run).__name__}", "give runs or their folders")
    states = [record.state for record in records_of(run.events, State)]
    state = run.state if isinstance(run, PastRun) else state_now(states, alive=True)
    return Told(records_of(run.events, RunStarted)[0].name, state, run.events)


def state_now(states: Sequence[str], alive: bool) -> str:
    """The state of a run whose state events were ``states``; ``alive``: a process still holds its folder."""
    last = states[-1] if states else "new"
    if last == "closed" and len(states) > 1 and states[-2] in ENDS:
        return states[-2]  # that the memory was given back says less than how training ended
    return last if alive or last in (*ENDS, "closed") else "interrupted"


def events_file(path: Path) -> Path:
    """The file of events that ``path`` means, links followed. Raises ConfigError, with what is there instead."""
    asked = f"run {str(path)!r}"
    try:
        real = path.resolve(strict=True)
        if real.is_file():
            return real
        if (real / EVENTS).is_file():
            return real / EVENTS
        inside = sorted(folder.name for folder in real.iterdir() if (folder / EVENTS).is_file())
    except FileNotFoundError as error:
        raise ConfigError(asked, "there is no such folder or file", _near(path)) from error
    except OSError as error:
        raise ConfigError(asked, f"it can't be read: {error.strerror or error}", "give a folder that you may read") from error
    if inside:
        raise ConfigError(asked, f"that is a folder of runs: {_some(inside)}", f"give one of them: {str(path / inside[-1])!r}")
    raise ConfigError(asked, f"that folder holds no {EVENTS}: it is none of a run", _near(path))


def _near(path: Path) -> str:
    """What could have been meant."""
    if (Path("runs") / path.name / EVENTS).is_file():
        return f"write {str(Path('runs') / path.name)!r}"
    parent = path.parent if path.parent.is_dir() else Path("runs")
    names = sorted(folder.name for folder in parent.glob("*") if (folder / EVENTS).is_file())
    return f"the runs in {str(parent)!r} are {_some(names)}" if names else "give the folder of a run, such as 'runs/NAME'"


def _some(names: Sequence[str]) -> str:
    return ", ".join([*names[:8], "..."] if len(names) > 8 else names)


def _read(file: Path) -> list[Event]:
    """The events of a file, each one understood; of the samples of the load those that a live run would have kept."""
    try:
        events = read_kept(file)
    except OSError as error:
        found = f"it can't be read: {error.strerror or error}"
        raise ConfigError(f"events in {file}", found, "take the file of an intact run") from error
    check_understood(file, events)
    return events
