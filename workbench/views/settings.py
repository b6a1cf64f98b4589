"""What runs were set to, and in what they differ."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from workbench.events import Event
from workbench.flat import flat
from workbench.metrics import records_of
from workbench.records import RunStarted
from workbench.views.text import NOTHING


@dataclass(frozen=True)
class Setting:
    """A setting in which the runs differ, by its path ("sampling.temperature"); a value for each run, ``NOTHING`` where it has none."""

    name: str
    values: tuple[Any, ...]


def settings_of(events: Sequence[Event]) -> dict[str, Any]:
    """Everything that was set when the run began, and with which versions."""
    started = next(iter(records_of(events, RunStarted)), None)
    if started is None:
        return {}
    parts = {"algo": started.algo, **started.settings, "devices": started.placement, "versions": started.versions}
    parts = json.loads(json.dumps(parts))  # as a loaded run has them: a live one holds tuples where that holds lists
    return {"model": started.model, "seed": started.seed, **flat(parts)}


def differing(settings: Sequence[dict[str, Any]]) -> tuple[Setting, ...]:
    """The settings that are not the same in all runs, in the order of the first run that has them."""
    names = dict.fromkeys(name for one in settings for name in one)
    rows = (Setting(name, tuple(one.get(name, NOTHING) for one in settings)) for name in names)
    return tuple(row for row in rows if any(value != row.values[0] for value in row.values))


def plain(value: Any) -> str:
    """A setting as a person writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "on", False: "off", None: "none"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)
