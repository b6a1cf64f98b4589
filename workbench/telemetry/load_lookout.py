"""Findings on the load of a run, from its stream: a step's samples go in when it ends, what begins or ends comes out."""

from collections import deque
from collections.abc import Sequence

from workbench.events import Event
from workbench.records import Restored, RunStarted, Seen, Step
from workbench.telemetry.ledger import Ledger
from workbench.telemetry.limits import Limits
from workbench.telemetry.load_signs import LOAD_RULES
from workbench.telemetry.step_load import LoadWindow, StepLoad, step_load
from workbench.telemetry.stream import Stream
from workbench.telemetry.work import Placement


class LoadWatcher:
    """Remembers the load of the latest steps and which findings are open. Bounded."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.placement: Placement = {}
        self._ledger = Ledger(self.limits.calm)
        self._steps: deque[StepLoad] = deque(maxlen=max(self.limits.load_steps, self.limits.brief_steps))
        self._begin: list[StepLoad] = []

    def look(self, load: StepLoad) -> list[Seen]:
        """The findings that begin or end with a step, which follows the one before."""
        self._steps.append(load)
        if len(self._begin) < self.limits.begin:
            self._begin.append(load)
        window = LoadWindow(tuple(self._steps), self._begin, self.placement)
        return self._ledger.enter(load.step, [sign for rule in LOAD_RULES if (sign := rule(window, self.limits)) is not None])

    def begin_anew(self) -> None:
        """What comes can't be compared with what was: a knob was turned, or the run is in another process."""
        self._steps.clear()
        self._begin.clear()


class LoadLookout(Stream):
    """Findings of one stream."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits
        super().__init__()

    def _begin(self) -> None:
        self._watcher = LoadWatcher(self._limits)
        self._since: list[Event] = []  # of the step under way

    def _follow(self, events: Sequence[Event]) -> list[Seen]:
        found: list[Seen] = []
        for event in events:
            match event.kind:
                case "load" | "phase" | "ranks" | "queue":
                    self._since.append(event)
                case "step":
                    found += self._end(event)
                case "knob":
                    self._watcher.begin_anew()
                case "run_started" | "restored":
                    self._moved(event)
        return found

    def _end(self, event: Event) -> list[Seen]:
        record = event.record
        if not isinstance(record, Step):
            return []
        load = step_load(record, self._since, self._watcher.placement)
        ahead = [one for one in self._since if one.kind in ("ranks", "queue") and one.data["step"] > record.step]
        self._since = ahead  # what was sampled beside this step is told of the next
        return self._watcher.look(load)

    def _moved(self, event: Event) -> None:
        """Where the roles are now."""
        record = event.record
        if isinstance(record, RunStarted | Restored) and record.placement:
            self._watcher.placement = record.placement
        self._watcher.begin_anew()
        self._since.clear()
