"""A watcher that follows a stream of events, restores included."""

from collections.abc import Sequence

from workbench.events import Event, standing
from workbench.records import Seen, Step
from workbench.telemetry.health import Watcher
from workbench.telemetry.limits import Limits

_KINDS = ("step", "run_started", "knob", "restored")


class Lookout:
    """Findings of one stream. After a restore it looks anew at all steps that stand, so that it knows what it would have known."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits
        self._watcher = Watcher(limits)
        self._read = 0  # events

    def news(self, events: Sequence[Event]) -> list[Seen]:
        """What began or ended with the steps since the last call; where it had to look anew, with the last step alone."""
        fresh = events[self._read :]
        anew = self._read == 0 or any(event.kind == "restored" for event in fresh)
        self._read = len(events)
        if not anew:
            return self._follow(fresh)
        self._watcher = Watcher(self._limits)
        found = self._follow(standing(events))
        last = max((event.data["step"] for event in fresh if event.kind == "step"), default=0)
        return [seen for seen in found if seen.step == last]

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
