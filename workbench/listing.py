"""``workbench runs``: the runs of a folder in a table, from a few lines of each file.

A file of events is read as bytes, and only the lines that the table needs are parsed. A quotation mark inside a JSON text is
written with a backslash, so ``"kind": "step"`` is found in no sample of a model. Lines that a crash or a full disk tore or
glued together are found by counting; damage within one is found by ``load``.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.events import read_events
from workbench.folder import is_alive
from workbench.past import EVENTS, state_now
from workbench.views.text import columns, duration, number, shorten

NEWEST = 20
_NAMES = ("run", "state", "steps", "held-out reward", "reward", "model", "algorithm", "started", "duration")


@dataclass(frozen=True)
class RunLine:
    """One run in a list. What is not known is None; ``problem`` says why a folder can't be read as a run."""

    folder: str
    name: str | None = None
    state: str = "damaged"
    steps: int | None = None
    held_out_before: float | None = None
    held_out_after: float | None = None
    reward: float | None = None  # of the last step's batch
    model: str | None = None
    algo: str | None = None
    started: float | None = None  # seconds since the epoch
    seconds: float | None = None  # from the first event to the last, the closing aside
    problem: str = ""

    def cells(self) -> tuple[str, ...]:
        """As a row of the table."""
        if self.problem:
            return (self.folder, self.state, *[""] * 7)
        held_out = number(self.held_out_before) + (f" -> {number(self.held_out_after)}" if self.held_out_after is not None else "")
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.started))
        model = shorten(Path(self.model or "").name, 28)
        return (
            *(self.folder, self.state, str(self.steps), held_out, number(self.reward), model, self.algo or ""),
            *(began, duration(self.seconds)),
        )


def list_runs(folder: Path, newest: int | None = NEWEST) -> tuple[list[RunLine], int]:
    """The ``newest`` runs in ``folder``, newest first, and how many there are. Raises ConfigError where it can't be read.

    Links (``runs/NAME``), files and hidden folders are no runs; a folder without events is listed, with the reason.
    """
    try:
        paths = [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink() and not path.name.startswith(".")]
    except OSError as error:
        found = "there is no such folder" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise ConfigError(f"folder {str(folder)!r}", found, "give the folder that holds the runs: workbench runs FOLDER") from error
    paths = [folder] if (folder / EVENTS).is_file() else sorted(paths, key=_began, reverse=True)
    return [read_line(path) for path in paths[:newest]], len(paths)


def as_text(lines: list[RunLine]) -> str:
    """The table, and beneath it what is wrong with damaged runs."""
    rows = columns([_NAMES, *(line.cells() for line in lines)], "<<>>><<<>")
    problems = [f"{line.folder}: {line.problem}" for line in lines if line.problem]
    return "\n".join([*rows, *([""] if problems else []), *problems])


def as_json(lines: list[RunLine]) -> str:
    """A list of ``RunLine``, as it is."""
    return json.dumps([asdict(line) for line in lines], indent=2)


def read_line(path: Path) -> RunLine:
    """One run. Never raises for what is in its folder."""
    try:
        alive = is_alive(path)  # before the events: a run that ends between the two has written its end
        data = (path / EVENTS).read_bytes()
        return _line(path, data[: data.rfind(b"\n") + 1], alive)
    except FileNotFoundError:
        return RunLine(path.name, problem=f"no {EVENTS}: this is no run, or it was killed before its first event")
    except OSError as error:
        return RunLine(path.name, problem=f"it can't be read: {error.strerror or error}")
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return RunLine(path.name, problem=_why(path / EVENTS, error))


def _line(path: Path, data: bytes, alive: bool) -> RunLine:
    first = json.loads(data[: data.find(b"\n")] or b"null")
    if first is None or first["kind"] != "run_started":
        raise ValueError("no event that starts a run")
    begun, end = first["data"], _parse(data, len(data) - 2)
    if not data.count(b"\n") == data.count(b'}\n{"seq": ') + 1 == end["seq"] + 1:
        raise ValueError("lines are missing, or are no events")
    states = [event["data"]["state"] for _, event in zip(range(2), _backwards(data, "state"), strict=False)][::-1]
    step = next(_standing(data, "step"), None)
    before, after = next(_forwards(data, "held_out"), None), next(_standing(data, "held_out"), None)
    return RunLine(
        folder=path.name,
        name=begun["name"],
        state=state_now(states, alive),
        steps=step["step"] if step else 0,
        held_out_before=before["reward_mean"] if before else None,
        held_out_after=after["reward_mean"] if before and after and after["step"] != before["step"] else None,
        reward=step["reward_mean"] if step else None,
        model=begun["model"],
        algo=begun["algo"].get("name"),
        started=first["time"],
        seconds=_end(data, end)["time"] - first["time"],
    )


def _end(data: bytes, end: dict[str, Any]) -> dict[str, Any]:
    """The last event; the one before it where that is the closing, which may come hours after."""
    before = data.rfind(b"\n", 0, len(data) - 1)
    return _parse(data, before - 1) if before > 0 and end["data"].get("state") == "closed" else end


def _parse(data: bytes, at: int) -> dict[str, Any]:
    """The event of the line that begins at, or holds, place ``at``."""
    begin = data.rfind(b"\n", 0, at) + 1
    event: dict[str, Any] = json.loads(data[begin : data.find(b"\n", at)])
    return event


def _mark(kind: str) -> bytes:
    return f'"kind": "{kind}", "data": {{'.encode()


def _places(data: bytes, kind: str) -> Iterator[int]:
    """Where the events of one kind are, the last first."""
    mark = _mark(kind)
    at = data.rfind(mark)
    while at >= 0:
        yield at
        at = data.rfind(mark, 0, at)


def _backwards(data: bytes, kind: str) -> Iterator[dict[str, Any]]:
    return (_parse(data, at) for at in _places(data, kind))


def _forwards(data: bytes, kind: str) -> Iterator[dict[str, Any]]:
    """The first event's data, if there is one; a restore never takes that back."""
    at = data.find(_mark(kind))
    if at >= 0:
        yield _parse(data, at)["data"]


def _standing(data: bytes, kind: str) -> Iterator[dict[str, Any]]:
    """The data of the events of one kind that no later restore left behind, the last first."""
    restores = [(at, _kept(_parse(data, at)["data"])) for at in _places(data, "restored")]
    for at in _places(data, kind):
        found = _parse(data, at)["data"]
        if all(found["step"] <= step for place, step in restores if place > at):
            yield found


def _kept(restored: dict[str, Any]) -> int:
    """The last step that a restore let stand; -1 where it began again."""
    return int(restored["step"]) if restored["checkpoint"] else -1


def _began(path: Path) -> float:
    """When a run began, for the order; of a folder that can't be read, when it was changed last."""
    try:
        with open(path / EVENTS, "rb") as file:
            return float(json.loads(file.readline())["time"])
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return path.stat().st_mtime


def _why(file: Path, error: Exception) -> str:
    """What is wrong with a file of events, with the line where there is one."""
    try:
        for _ in read_events(file):
            pass
    except ConfigError as found:
        return found.found
    except UnicodeDecodeError as found:
        return f"it is no text: {found}"
    return f"{EVENTS}: {error}" if file.stat().st_size else f"{EVENTS} is empty: the run was killed before its first event"
