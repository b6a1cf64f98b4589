"""What is under way at this moment, as a fold over the events: who is where, and which phases run."""

from collections import Counter
from collections.abc import Mapping, Sequence

from workbench.events import Event
from workbench.records import PHASES, Phase, PhaseBegan, Progress, Restored, RunStarted, State, Step
from workbench.roles import AT_WORK
from workbench.views.history import ENDS

_TOLD = {"run_started", "state", "progress", "phase_began", "phase", "step", "restored"}


class Now:
    """Name, placement, state and running phase of a run. Not thread-safe: whoever feeds and reads it holds a lock."""

    def __init__(self) -> None:
        self.name = "run"
        self.placement: Mapping[str, Sequence[str]] = {}  # role -> devices
        self.state = "new"
        self._rests = True  # whether a pause is between two steps
        self._ended_as = ""  # how training ended, where it did
        self.step = 0  # the last that ended
        self.total = 0  # 0: not known
        self.seconds: dict[str, float] = {}  # phase -> what it took when it last ended
        self._begun: Counter[tuple[int, str]] = Counter()  # (step, phase) -> how often it is under way: one may wait for another's

    def feed(self, event: Event) -> bool:
        """Take in one event. True where it changes what is here."""
        if event.kind not in _TOLD:  # most are samples of the load
            return False
        match event.record:
            case RunStarted() as record:
                self.name, self.placement = record.name, record.placement
            case State(state=state, error=error):
                self._turn(state, rests=not error)
                if state != "closed":
                    self._ended_as = state if state in ENDS else ""
            case Progress(what="steps", total=total):
                self.total = int(total)
            case PhaseBegan(step=step) if event.phase:
                self._begun[step, event.phase] += 1
            case Phase(step=step, seconds=seconds) if event.phase:
                self.seconds[event.phase] = seconds
                self._begun[step, event.phase] -= 1
            case Step(step=step):
                self.step = step
                self._begun = Counter({key: count for key, count in self._begun.items() if key[0] > step and count > 0})
            case Restored() as record:
                self.step = record.step
                self._begun.clear()
                self.placement = record.placement or self.placement
        return True

    def _turn(self, state: str, *, rests: bool) -> None:
        """The state is another. A step that waits for a reward service does not rest: its phases go on then."""
        if state not in ("running", "paused") or (state == "paused" and rests) or (self.state == "paused" and self._rests):
            self._begun.clear()  # what was broken off has no end
        self.state, self._rests = state, rests

    @property
    def shown(self) -> str:
        """The state for people: of a closed run how training ended."""
        return self._ended_as if self.state == "closed" and self._ended_as else self.state

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases under way, in the order of a step; several where steps or roles work beside one another."""
        here = {phase for (_, phase), count in self._begun.items() if count > 0}
        return tuple(phase for phase in PHASES if phase in here) if self.state == "running" else ()

    @property
    def running(self) -> str:
        """The same in words: "rollout, update_actor"; "" where none is."""
        return ", ".join(self.phases)

    @property
    def at_work(self) -> tuple[str, ...]:
        """The roles that they need."""
        found = dict.fromkeys(str(role) for phase in self.phases for role in AT_WORK.get(phase, ()))
        return tuple(role for role in found if role in self.placement)

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
