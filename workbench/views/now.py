"""What is under way at this moment, as a fold over the events: who is where, and which phase runs.

The driver tells of a phase when it has ended. What runs meanwhile is taken to be what followed in the step before, and in the first
step what follows in the usual order.
"""

from collections.abc import Mapping, Sequence

from workbench.events import Event
from workbench.records import PHASES, Phase, Progress, Restored, RunStarted, State, Step
from workbench.roles import AT_WORK
from workbench.views.history import ENDS

_TOLD = {"run_started", "state", "progress", "phase", "step", "restored"}


class Now:
    """Name, placement, state and running phase of a run. Not thread-safe: whoever feeds and reads it holds a lock."""

    def __init__(self) -> None:
        self.name = "run"
        self.placement: Mapping[str, Sequence[str]] = {}  # role -> devices
        self.state = "new"
        self._ended_as = ""  # how training ended, where it did
        self.step = 0  # the last that ended
        self.total = 0  # 0: not known
        self.seconds: dict[str, float] = {}  # phase -> what it took when it last ended
        self._order: list[str] = []  # phases of the last whole step, as they ended
        self._ended: list[str] = []  # of the step under way

    def feed(self, event: Event) -> bool:
        """Take in one event. True where it changes what is here."""
        if event.kind not in _TOLD:  # most are samples of the load
            return False
        match event.record:
            case RunStarted() as record:
                self.name, self.placement = record.name, record.placement
            case State(state=state):
                self.state = state
                if state != "closed":
                    self._ended_as = state if state in ENDS else ""
            case Progress(what="steps", total=total):
                self.total = int(total)
            case Phase(step=step, seconds=seconds) if event.phase:
                self.seconds[event.phase] = seconds
                if step == self.step + 1:  # what is sampled ahead belongs to a later one
                    self._ended.append(event.phase)
            case Step(step=step):
                self.step, self._order, self._ended = step, self._ended or self._order, []
            case Restored() as record:
                self.step, self._ended = record.step, []
                self.placement = record.placement or self.placement
        return True

    @property
    def shown(self) -> str:
        """The state for people: of a closed run how training ended."""
        return self._ended_as if self.state == "closed" and self._ended_as else self.state

    @property
    def running(self) -> str:
        """The phase under way; "" where none is, or none can be told."""
        if self.state != "running" or not self.placement:
            return ""
        order = self._order or [phase for phase in PHASES if phase != "advantages" and self._has(phase)]
        at = len(self._ended)
        return order[at] if at < len(order) else ""

    def _has(self, phase: str) -> bool:
        return any(role in self.placement for role in AT_WORK[phase])

    @property
    def at_work(self) -> tuple[str, ...]:
        """The roles that the running phase needs."""
        return tuple(role for role in AT_WORK.get(self.running, ()) if role in self.placement)

    @property
    def status(self) -> str:
        """One line: how far it is, and what runs."""
        if self.state == "new":
            return "not started yet"
        step = self.step + (1 if self.state == "running" and self.step != self.total else 0)
        count = f"step {step} of {max(self.total, step)}" if self.total else f"step {step}"
        return f"{count} · {self.running}" if self.running else count

    @property
    def sentence(self) -> str:
        """Which run it is, and how it stands."""
        return f"{self.name} · {self.shown} · {self.status}"

    def roles_on(self, device: str) -> tuple[str, ...]:
        """The roles that a device holds."""
        return tuple(role for role, devices in self.placement.items() if device in devices)

    @property
    def devices(self) -> tuple[str, ...]:
        """All devices that have a role, in the map's order."""
        return tuple(dict.fromkeys(device for devices in self.placement.values() for device in devices))
