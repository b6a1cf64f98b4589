"""The load of a run as a table: one line per sample and device, for a spreadsheet.

>>> write_csv(read_events(run.path / "events.jsonl"), "load.csv")
"""

import csv
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from workbench.errors import StorageError
from workbench.events import Event, EventLog
from workbench.records import Load
from workbench.telemetry.reading import VALUES, why

HEADER = ("time", "mono", "node", "device", *VALUES, "missing")


def write_csv(events: Iterable[Event], path: str | Path) -> Path:
    """Write every ``load`` event to ``path``; what is not known is an empty cell, and ``missing`` has the reasons.

    Raises StorageError where that can't be written.
    """
    path = Path(path)
    try:
        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(HEADER)
            writer.writerows(_rows(events))
    except OSError as error:
        raise StorageError(f"write {path}", error.strerror or str(error), "give a file in a folder that you may write to") from error
    return path


class CsvLog:
    """Writes the samples of a live run as they come; in a file that is there already it goes on. ``close`` it in the end.

    A listener of the stream must not fail: where the file can't be written any more it ends, and ``problems`` says why.
    """

    def __init__(self, log: EventLog, path: Path) -> None:
        """Raises StorageError where the file can't be opened."""
        self._failed = False
        self._problems: deque[str] = deque()
        try:
            self._file = open(path, "a", newline="", encoding="utf-8")
            if path.is_file():
                self._file.truncate(_whole_lines(path))
        except OSError as error:
            raise StorageError(f"write {path}", error.strerror or str(error), "give a folder that you may write to") from error
        self._writer = csv.writer(self._file)
        if not path.stat().st_size:
            self._writer.writerow(HEADER)
        self._leave = log.subscribe(self._take, replay=False)

    def _take(self, event: Event) -> None:
        if event.kind != "load" or self._failed:
            return
        try:
            self._writer.writerows(_rows([event]))
            self._file.flush()
        except OSError as error:
            self._failed = True
            self._problems.append(f"{self._file.name} can't be written any more: {error.strerror or error}")

    def problems(self) -> list[str]:
        """What has gone wrong since this was asked last."""
        return [self._problems.popleft() for _ in range(len(self._problems))]

    def close(self) -> None:
        """Write no more."""
        self._leave()
        with suppress(OSError):  # a full disk: what could be written is there
            self._file.close()


def _whole_lines(path: Path) -> int:
    """Bytes of a file without a last line that a full disk or a kill cut off: what follows would go on in the middle of it."""
    end = path.stat().st_size
    with open(path, "rb") as file:
        while end:
            begin = max(0, end - 65536)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                return begin + found + 1
            end = begin
    return 0


def _rows(events: Iterable[Event]) -> Iterator[list[object]]:
    for event in events:
        load = event.record if event.kind == "load" else None
        if isinstance(load, Load):
            for place, device in enumerate(load.devices):
                cells = [_cell(getattr(load, name)[place]) for name in VALUES]
                yield [event.time, event.mono, event.node, device, *cells, _reasons(load, device)]


def _cell(value: float | str | dict[str, float] | None) -> object:
    """Shares by role as "actor=31.2; rollout=80.1"; those of others as "others"."""
    if isinstance(value, dict):
        return "; ".join(f"{roles or 'others'}={number:g}" for roles, number in value.items())
    return "" if value is None else value


def _reasons(load: Load, device: str) -> str:
    """ "sm: n/a: MIG; watts: n/a: Not Supported"."""
    known = {name: why(load, name, device) for name in VALUES}
    return "; ".join(f"{name}: {reason}" for name, reason in known.items() if reason)
