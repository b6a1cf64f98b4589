"""The run's single stream of events: one JSON line each, appended by one writer, read by everybody.

A view, a file, a test: all read events and hold no truth of their own, so a finished run replays exactly as it was
seen live. ``time`` is wall-clock seconds (comparable between machines), ``mono`` is monotonic seconds (for durations).
"""

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, StateError, StorageError
from workbench.records import Record, kind_of, record_from

Listener = Callable[["Event"], None]


@dataclass(frozen=True)
class Event:
    """One line of the stream: the envelope (when, where, who) around one record (what)."""

    seq: int
    time: float  # wall clock, seconds since the epoch
    mono: float  # monotonic clock of ``node``, seconds
    node: str
    device: str | None  # "node:gpu" or "cpu:n"
    role: str | None
    phase: str | None
    kind: str  # the record's class, in snake_case
    data: dict[str, Any]

    @property
    def record(self) -> Record:
        """The record inside, as the dataclass it was written from."""
        return record_from(self.kind, self.data)


class EventLog:
    """Appends events to ``path`` (or only to memory) and tells listeners. Safe to call from any thread.

    Listeners run on the writer's thread, in order; one that raises stops the writer, so a view must be quick and sound.
    """

    def __init__(self, path: Path | None = None, node: str = "local") -> None:
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._file: FileIO | None = None
        self.node = node
        self.events: list[Event] = []
        self._written = 0  # of them, in the file
        if path is not None:
            self.write_to(path)

    def write_to(self, path: Path) -> None:
        """From now on to ``path`` too, with what happened so far. For a run whose folder is made when it starts."""
        with self._lock:
            if self._file is None:
                if self._written:  # a run of before goes on: a last line that a crash cut off is taken away
                    os.truncate(path, path.read_bytes().rfind(b"\n") + 1)
                self._file = FileIO(path, "a")
                self._catch_up()

    def go_on(self, path: Path) -> None:
        """Read what a run left in ``path``; what follows is written there once ``write_to`` is called."""
        with self._lock:
            if self.events:
                raise StateError("go on with a stream of events", "this one has begun", "make a new EventLog")
            if not path.is_file():
                raise ConfigError(f"events in {path}", "there is no such file", "give the folder of a run that has begun")
            self.events = list(read_events(path))
            self._written = len(self.events)

    def emit(self, record: Record, *, role: str | None = None, phase: str | None = None, device: str | None = None) -> Event:
        """Append ``record`` and return its event.

        Raises StorageError where the file can't be written. The event is kept and told all the same, and written with the
        next one that can be.
        """
        with self._lock:
            event = Event(len(self.events), time.time(), time.monotonic(), self.node, device, role, phase, kind_of(record), asdict(record))
            self.events.append(event)
            for listen in tuple(self._listeners):
                listen(event)
            self._catch_up()
            return event

    def emit_all(self, records: Sequence[Record]) -> None:
        """Append several, all of them also where the file can't be written; then raises StorageError as ``emit`` does."""
        problem: StorageError | None = None
        for record in records:
            try:
                self.emit(record)
            except StorageError as error:
                problem = error
        if problem is not None:
            raise problem

    def _catch_up(self) -> None:
        """Write what is not written yet, each line whole or not at all: what a full disk took of it is taken back."""
        file = self._file
        if file is None:
            return
        while self._written < len(self.events):
            line = (json.dumps(asdict(self.events[self._written]), allow_nan=True) + "\n").encode()
            end = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                os.ftruncate(file.fileno(), end)
                fix = "free space, then start(): what is not written is kept and written then"
                raise StorageError(f"write to {file.name}", error.strerror or str(error), fix) from error
            self._written += 1

    def subscribe(self, listen: Listener, *, replay: bool = True) -> Callable[[], None]:
        """Call ``listen`` for every event from now on (and, with ``replay``, for those that were). Returns the way out."""
        with self._lock:
            if replay:
                for event in self.events:
                    listen(event)
            self._listeners.append(listen)

        def leave() -> None:
            with self._lock:
                if listen in self._listeners:
                    self._listeners.remove(listen)

        return leave

    def close(self) -> None:
        """Flush to disk and close the file; the events in memory stay readable."""
        with self._lock:
            file, self._file = self._file, None
            if file is not None:
                with file:
                    os.fsync(file.fileno())


def standing(events: Iterable[Event]) -> list[Event]:
    """The events that count: without those of steps that a restored run left behind and made again."""
    kept: list[Event] = []
    for event in events:
        if event.kind == "restored":
            after = event.data["step"] if event.data["checkpoint"] else -1  # without a checkpoint it began again
            kept = [earlier for earlier in kept if earlier.data.get("step", -1) <= after]
        kept.append(event)
    return kept


def read_events(path: Path) -> Iterator[Event]:
    """Every complete event of a run's ``events.jsonl``; a last line cut off by a crash is left out."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield Event(**json.loads(line))
            except (ValueError, TypeError, RecursionError) as error:
                raise ConfigError(f"events in {path}", f"line {number} is no event ({error})", "take the file of an intact run") from error
