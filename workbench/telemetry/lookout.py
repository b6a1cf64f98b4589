"""A watcher that follows a stream of events, restores included."""

from collections.abc import Sequence

from workbench.events import Event
from workbench.records import Seen, Step
from workbench.telemetry.health import Watcher
from workbench.telemetry.limits import Limits
from workbench.telemetry.stream import Stream

_KINDS = ("step", "run_started", "knob", "restored")


class Lookout(Stream):
    """Findings of one stream."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits
        super().__init__()

    def _begin(self) -> None:
        self._watcher = Watcher(self._limits)

    def _follow(self, events: Sequence[Event]) -> list[Seen]:
        found: list[Seen] = []
        for event in events:
            if event.kind not in _KINDS:
                continue
            record = event.record
            if isinstance(record, Step):
                found += self._watcher.look(record)
            else:
                self._watcher.note(record)
        return found
