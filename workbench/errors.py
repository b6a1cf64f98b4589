"""What goes wrong, said so that the reader knows what to do next.

Every error of the package carries three sentences: what was *asked*, what was *found*, and the *fix*.
"""

import functools
import inspect
import math
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

Class = TypeVar("Class", bound=type)


class WorkbenchError(Exception):
    """An error with what was asked, what is true instead, and what to do about it."""

    def __init__(self, asked: str, found: str, fix: str) -> None:
        super().__init__(asked, found, fix)
        self.asked, self.found, self.fix = asked, found, fix

    def __str__(self) -> str:
        return f"{self.asked}: {self.found}\n  fix: {self.fix}"


class ConfigError(WorkbenchError, ValueError):
    """A value that can't work, refused where it was written and not at step 1."""


class StateError(WorkbenchError, RuntimeError):
    """A call that the run's state doesn't allow: a second ``start``, a step on a closed run."""


class EngineError(WorkbenchError, RuntimeError):
    """The engine (vLLM) is missing, does not fit, or died."""


class ClusterError(WorkbenchError, RuntimeError):
    """Ray can't be reached or does not fit, or a device is not there or someone else's."""


class RewardError(WorkbenchError, RuntimeError):
    """A reward function raised, or returned something that is no finite number; names the prompt."""


class RewardServiceError(RewardError):
    """A reward service is dead, slow, or answers nonsense. Names it; what it was to score can be asked for again once it is well."""


class DivergedError(WorkbenchError, ArithmeticError):
    """The policy, its loss or its gradient is no longer finite; nothing of it was applied or saved."""


class StorageError(WorkbenchError, RuntimeError):
    """The run's folder can't be written: a full disk, a folder without permission. What was written before is whole."""


class SyncError(WorkbenchError, RuntimeError):
    """The engine does not sample from the weights just trained. Names the fault and its likely causes."""


class CollectiveError(WorkbenchError, RuntimeError):
    """Ranks that work together did not all arrive, within the time they had. Names those that are missing."""


class LayoutError(WorkbenchError, RuntimeError):
    """A model was asked to lie over its ranks in one way and lies in another; nothing was trained with it."""


class WorkerError(WorkbenchError, RuntimeError):
    """A worker's process ended by itself, was killed, or no longer answers. Names its role, rank, node and device."""


class MemoryShortError(WorkbenchError, MemoryError):
    """A worker is out of memory. Names role, phase, device and bytes, and what of the map would help."""


class Stopped(Exception):  # noqa: N818 - a signal, not a fault
    """Raised inside a step when the user asked to stop; the step is dropped, the run is intact."""


def spelled(**elsewhere: str) -> Callable[[Class], Class]:
    """Class decorator: an unknown keyword is a ConfigError that names the right one. ``elsewhere``: other libraries' names for ours."""

    def decorate(cls: Class) -> Class:
        """``cls`` with a checked ``__init__``."""
        init = cls.__init__  # type: ignore[misc]
        known = [name for name in inspect.signature(init).parameters if name != "self"]

        @functools.wraps(init)
        def checked(self: Any, *values: Any, **named: Any) -> None:
            for name in named.keys() - set(known):
                near = [elsewhere[name]] if name in elsewhere else get_close_matches(name, known, n=1)
                fix = f"write {near[0]}=..." if near else "use one of these"
                raise ConfigError(f"{cls.__name__}({name}=...)", f"it takes {', '.join(known)}", fix)
            init(self, *values, **named)

        cls.__init__ = checked  # type: ignore[misc]
        return cls

    return decorate


def check_kind(name: str, value: object, kind: type, example: str) -> None:
    """Raise ConfigError unless ``value`` is a ``kind`` (a bool is no number)."""
    numeric = kind in (int, float)
    fits = isinstance(value, int | float if kind is float else kind) and not (numeric and isinstance(value, bool))
    if not fits:
        raise ConfigError(f"{name}={value!r}", f"that is a {type(value).__name__}", f"give {example}")
    if kind is float and not math.isfinite(value):  # type: ignore[arg-type]
        raise ConfigError(f"{name}={value!r}", "that is no finite number", f"give {example}")
