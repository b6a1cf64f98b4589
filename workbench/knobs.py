"""What may be turned while a run trains. A new value is checked at once and acts from the next step on.

>>> run.knobs.learning_rate = 3e-4
>>> run.knobs.set(temperature=0.8, group_size=16)
"""

import copy
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from typing import Any

from workbench.algos import Algorithm, check_algorithm
from workbench.errors import ConfigError, StateError
from workbench.events import Event, EventLog
from workbench.models.optimizer import Optimizer
from workbench.records import Knob
from workbench.rollout.config import Sampling

PARTS = {  # knob -> the part of the settings that holds it
    "learning_rate": "optimizer",
    "temperature": "sampling",
    "prompts": "sampling",
    "max_tokens": "sampling",
    "group_size": "algo",
    "kl": "algo",
    "clip": "algo",
}
ELSEWHERE = {"lr": "learning_rate", "beta": "kl", "kl_coef": "kl", "epsilon": "clip", "clip_range": "clip", "batch": "prompts"}
ELSEWHERE |= {"batch_size": "prompts", "num_generations": "group_size", "max_new_tokens": "max_tokens"}
_OWN = frozenset({"_log", "_lock", "_wanted", "_used", "_step", "_scheduled", "_listeners", "_check", "_closed", "_run"})

Listener = Callable[[str, Any], None]


@dataclass(frozen=True)
class Settings:
    """What may change between two steps."""

    algo: Algorithm
    sampling: Sampling
    optimizer: Optimizer

    def turned(self, values: Mapping[str, Any]) -> "Settings":
        """These settings with other values of some knobs. Raises ConfigError on one that can't work."""
        settings = self
        for name, value in values.items():
            part = PARTS[name]
            fit = tuple(value) if isinstance(value, list) else value  # JSON knows no tuples
            settings = replace(settings, **{part: changed(getattr(settings, part), name, fit)})
        return settings


class Knobs:
    """The knobs of one run. Reading gives what the next step will use; any thread may read and turn.

    ``kl`` and ``clip`` are there where the algorithm has them. Raises ConfigError on a value that can't work, with all
    values as they were, and StateError on a closed run.
    """

    def __init__(self, settings: Settings, log: EventLog, check: Callable[[Settings], None] = lambda settings: None) -> None:
        self._log, self._check = log, check
        self._lock = threading.RLock()
        self._wanted = self._used = settings
        self._step = 0  # the last that took its values
        self._scheduled: list[Knob] = []  # turned in a life of this run that a crash ended
        self._listeners: list[Listener] = []
        self._closed = False
        self._run: weakref.ref[Any] | None = None  # whose they are; the panel has buttons for it

    @property
    def names(self) -> tuple[str, ...]:
        """The knobs that this run has."""
        return tuple(name for name, part in PARTS.items() if not callable(getattr(getattr(self._wanted, part), name, callable)))

    def get(self, name: str) -> Any:
        """What the next step will use."""
        return getattr(getattr(self._wanted, PARTS[self._known(name)]), name)

    def set(self, **values: Any) -> None:
        """Turn several at once: all of them, or none where one can't work."""
        self._turn(values)
        for name in values:
            with self._lock:
                self._scheduled = [knob for knob in self._scheduled if knob.name != name]  # a person's word is the last

    @property
    def pending(self) -> dict[str, tuple[Any, Any]]:
        """What was changed and no step has used yet: name -> (in use, wanted)."""
        with self._lock:
            pairs = {name: (_value(self._used, name), _value(self._wanted, name)) for name in self.names}
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def subscribe(self, listen: Listener) -> Callable[[], None]:
        """Call ``listen(name, value)`` for every change, on the thread that makes it. Returns the way out."""
        self._listeners.append(listen)
        return lambda: self._listeners.remove(listen) if listen in self._listeners else None

    # ------------------------------------------------------------ the run's side

    @property
    def settings(self) -> Settings:
        """What the steps use now."""
        return self._used

    @property
    def wanted(self) -> Settings:
        """What the next step will use."""
        return self._wanted

    @property
    def used(self) -> dict[str, Any]:
        """What the steps use now: name -> value, as JSON has it."""
        return {name: _value(self._used, name) for name in self.names}

    def take(self, step: int) -> Settings:
        """The settings of ``step``, which begins. Changes from now on act at the step after it."""
        with self._lock:
            due = [knob for knob in self._scheduled if knob.step <= step]
            self._scheduled = [knob for knob in self._scheduled if knob.step > step]
            for knob in due:
                self._turn({knob.name: knob.new})
            self._step, self._used = step, self._wanted
            return self._used

    def give_back(self, step: int) -> None:
        """``step`` was dropped: it will be made again, with what is wanted then."""
        with self._lock:
            self._step = step - 1

    def resume(self, step: int, scheduled: list[Knob]) -> None:
        """Go on after ``step``; what was turned after it, before a crash, is turned again at its step."""
        with self._lock:
            self._step = step
            self._scheduled = [knob for knob in scheduled if knob.step > step + 1]
            for knob in scheduled:
                if knob.step <= step + 1:
                    self._turn({knob.name: knob.new})

    def belong_to(self, run: Any) -> None:
        """Say whose knobs these are."""
        self._run = weakref.ref(run)

    def close(self) -> None:
        """Refuse changes from now on."""
        self._closed = True

    # ------------------------------------------------------------ inside

    def _turn(self, values: dict[str, Any]) -> None:
        if self._closed:
            raise StateError(f"run.knobs.{', '.join(values)}", "the run is closed", "make a new Run, or Run.restore(path)")
        with self._lock:
            wanted = self._wanted.turned({self._known(name): value for name, value in values.items()})
            self._check(wanted)
            before, self._wanted = self._wanted, wanted
            moved = [name for name in values if _value(before, name) != _value(wanted, name)]
            self._log.emit_all([Knob(self._step + 1, name, _value(before, name), _value(wanted, name)) for name in moved])
        for name in moved:
            for listen in tuple(self._listeners):
                listen(name, self.get(name))

    def _known(self, name: str) -> str:
        if name in self.names:
            return name
        algo = type(self._wanted.algo).__name__
        if name in PARTS:
            raise ConfigError(f"run.knobs.{name}", f"{algo} has no {name}", f"turn one of {', '.join(self.names)}")
        near = [ELSEWHERE[name]] if name in ELSEWHERE else get_close_matches(name, self.names, n=1)
        fix = f"write run.knobs.{near[0]}" if near else "use one of these; everything else is fixed when the run is made"
        raise ConfigError(f"run.knobs.{name}", f"the knobs are {', '.join(self.names)}", fix)

    def _ipython_display_(self) -> None:
        """The panel, as a cell's last line: a slider for each knob, and buttons to pause, resume and stop."""
        from workbench import views

        run = self._run() if self._run is not None else None
        if run is None:
            print(self)
        else:
            views.panel(run, self._log)._ipython_display_()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what copy, pickle and front ends ask for
            raise AttributeError(name)
        try:
            return self.get(name)
        except ConfigError as error:  # hasattr() has to work
            raise AttributeError(str(error)) from error

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _OWN:
            super().__setattr__(name, value)
        else:
            self.set(**{name: value})

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.names})

    def __repr__(self) -> str:
        pending = self.pending
        lines = []
        for name in self.names:
            change = f" -> {_text(self.get(name))} at step {self._step + 1}" if name in pending else ""
            lines.append(f"{name:>14} = {_text(pending[name][0] if name in pending else self.get(name))}{change}")
        return "\n".join(lines)


def changed(part: Algorithm | Sampling | Optimizer, name: str, value: Any) -> Any:
    """A copy of ``part`` with another ``name``, checked as when it was written. An algorithm need not be a dataclass."""
    if is_dataclass(part) and name in {field.name for field in fields(part)}:
        fresh: Any = replace(part, **{name: value})
    else:
        fresh = copy.copy(part)
        try:
            object.__setattr__(fresh, name, value)
        except AttributeError as error:
            asked = f"run.knobs.{name}"
            found = f"{type(part).__name__} computes it: {error}"
            raise ConfigError(asked, found, "make it an attribute, or a field of a dataclass") from error
    return check_algorithm(fresh) if isinstance(fresh, Algorithm) else fresh


def turned_after(step: int, events: Iterable[Event]) -> list[Knob]:
    """What was turned to act after ``step``, in order, also in a life of the run that ended before that step was made again.

    A restore leaves the steps after its checkpoint behind, but not what a person wants at them. It is turned again when such a
    step comes, or is void once a person turns the same knob.
    """
    turned: list[Knob] = []
    waiting: list[Knob] = []  # left behind by a restore
    for event in events:
        if event.kind == "restored":
            waiting += [knob for knob in turned if knob.step > event.data["step"]]
            turned = [knob for knob in turned if knob.step <= event.data["step"]]
        elif event.kind == "knob":
            knob = Knob(**event.data)
            same = [left for left in waiting if (left.step, left.name, left.new) == (knob.step, knob.name, knob.new)]
            waiting = [left for left in waiting if (left not in same if same else left.name != knob.name)]
            turned.append(knob)
    return sorted((knob for knob in turned + waiting if knob.step > step), key=lambda knob: knob.step)


def _value(settings: Settings, name: str) -> Any:
    value = getattr(getattr(settings, PARTS[name]), name)
    return list(value) if isinstance(value, tuple) else value


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
