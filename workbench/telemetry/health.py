"""The health of a live run: steps go in one by one, findings that begin or end come out.

>>> watcher = Watcher()
>>> for step in run.steps:
...     for seen in watcher.look(step):
...         print(seen.code, seen.found, seen.fix)
"""

from collections import deque
from collections.abc import Mapping
from itertools import islice
from typing import Any

from workbench.records import Knob, Record, Restored, RunStarted, Seen, Step
from workbench.telemetry.critic_signs import critic_explains_nothing, value_loss_explodes
from workbench.telemetry.ledger import Ledger
from workbench.telemetry.limits import Limits
from workbench.telemetry.policy_signs import completions_are_cut, entropy_collapses, kl_blows_up, nothing_to_learn
from workbench.telemetry.reward_signs import length_is_paid, repetition_is_paid, reward_drifts
from workbench.telemetry.window import Rule, Swap, Window

RULES: tuple[Rule, ...] = (
    kl_blows_up,
    entropy_collapses,
    nothing_to_learn,
    completions_are_cut,
    value_loss_explodes,
    critic_explains_nothing,
    reward_drifts,
    length_is_paid,
    repetition_is_paid,
)
SAMPLING = ("temperature", "max_tokens")  # knobs after which entropy, KL, length and what is cut are others at once
_KEPT = 20  # swaps and turned knobs; the rules look back at a few steps only


class Watcher:
    """Remembers the latest steps of a run and which findings are open. Bounded, and the same steps give the same findings."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._ledger = Ledger(self.limits.calm)
        self._steps: deque[Step] = deque(maxlen=self.limits.memory)
        self._begin: list[Step] = []
        self._swaps: deque[Swap] = deque(maxlen=_KEPT)
        self._turned: deque[int] = deque(maxlen=_KEPT)
        self._waiting: list[Knob] = []  # turned, and used by no step yet
        self._knobs: dict[str, Any] = {}
        self._sampled_with: dict[str, Any] = {}  # the knobs when the memory began
        self._versions: Mapping[str, str] = {}

    def note(self, record: Record) -> None:
        """Take in what happened between two steps: the run's start, a knob, a restore. Others are passed over."""
        match record:
            case RunStarted():
                self._versions = record.versions
                parts = (record.settings.get(name, {}) for name in ("sampling", "optimizer"))
                self._knobs = {**record.algo, **{name: value for part in parts for name, value in part.items()}}
                self._sampled_with = dict(self._knobs)
            case Knob():
                self._waiting.append(record)
            case Restored():
                self._swaps.append(Swap(record.step, f"after the run was restored{_others(self._versions, record.versions)}"))
                self._versions = record.versions

    def look(self, step: Step) -> list[Seen]:
        """The findings that begin or end with ``step``, which follows the one before."""
        self._note_versions(step)
        self._turn(step.step)
        self._steps.append(step)
        if len(self._begin) < self.limits.begin:
            self._begin.append(step)
        window = Window(tuple(self._steps), self._begin, self._swaps, self._turned, self._knobs)
        signs = [sign for rule in RULES if (sign := rule(window, self.limits)) is not None]
        return self._ledger.enter(step.step, signs)

    # ------------------------------------------------------------ inside

    def _turn(self, step: int) -> None:
        """Take in the knobs that act from ``step`` on. Begin anew where what is sampled now can't be compared with what was before."""
        due = [knob for knob in self._waiting if knob.step <= step]
        self._waiting = [knob for knob in self._waiting if knob.step > step]
        for knob in due:
            self._knobs[knob.name] = knob.new
            self._turned.append(knob.step)
            self._sampled_with.setdefault(knob.name, knob.old)
        if any(_moved(self._sampled_with.get(name), self._knobs.get(name), self.limits.turned) for name in SAMPLING):
            self._sampled_with = dict(self._knobs)
            self._steps.clear()
            self._begin.clear()

    def _note_versions(self, step: Step) -> None:
        """A reward may tell its version as one of its numbers, and a service that another model answered: that is a swap."""
        if not self._steps:
            return
        last = self._steps[-1]
        for name, value in step.reward_numbers.items():
            before = last.reward_numbers.get(name, value)
            if name.endswith("version") and before != value:
                self._swaps.append(Swap(last.step, f"after the reward's {name} went from {before:g} to {value:g}"))
            elif name.endswith("model_changed") and value > 0:
                self._swaps.append(Swap(last.step, f"after another model answered for the reward ({name})"))


def _moved(before: Any, now: Any, share: float) -> bool:
    """Whether a number is another one by more than ``share`` of it."""
    return isinstance(before, int | float) and isinstance(now, int | float) and abs(now - before) > share * before


def _others(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Packages that became others, in words; at most three."""
    changed = [f"{name} {after[name]} instead of {old}" for name, old in before.items() if after.get(name, old) != old]
    return f" (with {', '.join(islice(changed, 3))})" if changed else ""
