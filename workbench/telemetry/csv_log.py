"""The load of a run as a table: one line per sample and device, for a spreadsheet.

>>> write_csv(run.events, "load.csv")
"""

import csv
from collections.abc import Iterable, Iterator
from pathlib import Path

from workbench.errors import StorageError
from workbench.events import Event
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
