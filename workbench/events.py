"""The run's single stream of events: one JSON line each, appended by one writer, read by everybody.

A view, a file, a test: all read events and hold no truth of their own, so a finished run replays exactly as it was
seen live. ``time`` is wall-clock seconds (comparable between machines), ``mono`` is monotonic seconds (for durations).
"""

import errno
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError, StateError, StorageError
from workbench.fitting import uneven, unlike
from workbench.records import Load, Record, kind_of, record_from

Listener = Callable[["Event"], None]
LOADS = 4096  # samples of the load that are kept in memory, beside all other events; of 16 GPUs they take 14 kB each
_IS_LOAD = b'"kind": "load", "data": {'  # within the envelope, which is short: a text inside of a record has no bare quotation marks
_ENVELOPE = 400  # bytes


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
    ``events``: all of them, but of the samples of the load at most ``LOADS``, the older the fewer (``thinned``); the file holds all.
    """

    def __init__(self, path: Path | None = None, node: str = "local") -> None:
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._file: FileIO | None = None
        self.node = node
        self.events: list[Event] = []
        self._count = 0  # of all that there were
        self._loads = 0  # of those in memory
        self._unwritten: deque[Event] = deque()
        self._goes_on = False  # a run of before: its file is there
        if path is not None:
            self.write_to(path)

    def write_to(self, path: Path) -> None:
        """From now on to ``path`` too, with what happened so far. For a run whose folder is made when it starts."""
        with self._lock:
            if self._file is None:
                if self._goes_on:  # a last line that a crash cut off is taken away
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
            self.events = read_kept(path)
            check_understood(path, self.events)
            self._count = self.events[-1].seq + 1 if self.events else 0
            self._loads = sum(event.kind == "load" for event in self.events)
            self._goes_on = bool(self.events)

    def emit(self, record: Record, *, role: str | None = None, phase: str | None = None, device: str | None = None) -> Event:
        """Append ``record`` and return its event.

        Raises StorageError where the file can't be written. The event is kept and told all the same, and written with the
        next one that can be.
        """
        with self._lock:
            kind, data = kind_of(record), asdict(record)
            return self._append(Event(self._count, time.time(), time.monotonic(), self.node, device, role, phase, kind, data))

    def emit_sample(self, load: Load, node: str, mono: float) -> Event:
        """Append what was sampled on ``node`` at ``mono`` of this process's clock, a moment ago. Raises StorageError as ``emit`` does."""
        with self._lock:
            when = time.time() - (time.monotonic() - mono)
            return self._append(Event(self._count, when, mono, node, None, None, None, "load", asdict(load)))

    def _append(self, event: Event) -> Event:
        self._count += 1
        self.events.append(event)
        self._unwritten.append(event)
        self._loads += event.kind == "load"
        if self._loads > LOADS:
            self.events = thinned(self.events)  # another list: who reads the old one is not disturbed
            self._loads = sum(event.kind == "load" for event in self.events)
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
        while self._unwritten:
            line = (json.dumps(vars(self._unwritten[0]), allow_nan=True) + "\n").encode()
            end = os.fstat(file.fileno()).st_size
            try:
                if file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            except OSError as error:
                os.ftruncate(file.fileno(), end)
                fix = "free space, then start(): what is not written is kept and written then"
                raise StorageError(f"write to {file.name}", error.strerror or str(error), fix) from error
            self._unwritten.popleft()

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


def thinned(events: Sequence[Event]) -> list[Event]:
    """``events`` without every second of the older half of the samples of the load: again and again, old ones become ever fewer."""
    at = _too_many([place for place, event in enumerate(events) if event.kind == "load"])
    return [event for place, event in enumerate(events) if place not in at]


def _too_many(places: Sequence[int]) -> set[int]:
    return set(places[: len(places) // 2 : 2])


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
    for number, line in _lines(path):
        yield _event(path, number, line)


def read_kept(path: Path) -> list[Event]:
    """The events that the log which wrote ``path`` had in memory at its end: samples of the load that it let go are not even parsed."""
    kept: list[tuple[int, bytes | Event]] = []  # a line's number, and what it holds; samples are parsed at the end
    loads = 0
    for number, line in _lines(path):
        is_load = _IS_LOAD in line[:_ENVELOPE]
        kept.append((number, line if is_load else _event(path, number, line)))
        loads += is_load
        if loads > LOADS:
            at = _too_many([place for place, (_, what) in enumerate(kept) if isinstance(what, bytes)])
            kept, loads = [one for place, one in enumerate(kept) if place not in at], loads - len(at)
    return [_event(path, number, what) if isinstance(what, bytes) else what for number, what in kept]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            yield number, line


def _event(path: Path, number: int, line: bytes) -> Event:
    try:
        event = Event(**json.loads(line))
        wrong = unlike(Event, vars(event))
    except (ValueError, TypeError, RecursionError) as error:
        raise _damaged(path, f"line {number} is no event ({error})") from error
    if wrong:
        raise _damaged(path, f"line {number} is no event ({wrong})")
    return event


def check_understood(path: Path, events: Iterable[Event]) -> None:
    """Raise ConfigError where a record of ``events``, which were read from ``path``, can't be made, or holds what it can't hold."""
    for event in events:
        try:
            record = event.record
            wrong = unlike(type(record), vars(record)) or uneven(record)
        except TypeError as error:
            wrong = str(error)
        if wrong:
            raise _damaged(path, f"line {event.seq + 1} is damaged, or written by another version ({wrong})")


def _damaged(path: Path, found: str) -> ConfigError:
    return ConfigError(f"events in {path}", found, "take the file of an intact run")
