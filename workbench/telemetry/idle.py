"""Busy and idle time of every device, added up while a run goes on: ``bubbles`` step by step."""

from collections import Counter, deque
from collections.abc import Sequence
from itertools import chain

from workbench.events import Event
from workbench.telemetry.bubbles import bubbles
from workbench.telemetry.work import NS

AT_REST = ("paused", "stopped", "finished", "failed", "closed")
_KINDS = ("phase", "step", "state", "progress", "checkpoint", "load")


class IdleTime:
    """Takes in a stream. A step is counted when the next one has ended: until then something may run that began beside it.

    Where the run comes to rest nothing is under way, and the last step is counted too. Bounded: it holds three steps' events. How long a
    device was busy and idle is as ``bubbles`` of the whole run has it; whose time it was is only as good as what is known by then.
    """

    def __init__(self) -> None:
        self.busy: Counter[tuple[str, str]] = Counter()  # (device, role) -> ns
        self.idle: Counter[tuple[str, str]] = Counter()  # (device, what it waited for) -> ns
        self._head: list[Event] = []  # where the roles are
        self._steps: deque[list[Event]] = deque(maxlen=3)
        self._open: list[Event] = []
        self._due: int | None = None  # the last step, unless it is counted

    def take(self, event: Event) -> None:
        """One more event, in the order of the stream."""
        match event.kind:
            case "run_started":
                self._begin([event])
            case "restored":
                self._begin([*self._head, event])
            case kind if kind in _KINDS:
                self._open.append(event)
                self._count(event)

    def _begin(self, head: list[Event]) -> None:
        """Another process, or another try: what was under way is lost."""
        self._head, self._open, self._due = head, [], None
        self._steps.clear()

    def _count(self, event: Event) -> None:
        if event.kind == "step":
            self._steps.append(self._open)
            self._open = []
            self._settle()
            self._due = event.data["step"]
        elif event.kind == "state" and event.data["state"] in AT_REST:
            self._settle()

    def _settle(self) -> None:
        """Add the step that is due."""
        step, self._due = self._due, None
        if step is None or not self._head:
            return
        for one in bubbles(self._events(), step, step).devices:
            self.busy.update({(one.device, role): ns for role, ns in one.busy_ns.items()})
            self.idle.update({(one.device, cause): ns for cause, ns in one.idle_ns.items()})

    def _events(self) -> Sequence[Event]:
        return [*self._head, *chain.from_iterable(self._steps)]


def seconds(times: Counter[tuple[str, str]]) -> list[tuple[str, str, float]]:
    """(device, role or cause, seconds)."""
    return [(device, what, ns / NS) for (device, what), ns in times.items()]
