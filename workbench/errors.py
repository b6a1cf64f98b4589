"""What goes wrong, said so that the reader knows what to do next.

Every error of the package carries three sentences: what was *asked*, what was *found*, and the *fix*.
"""


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


class RewardError(WorkbenchError, RuntimeError):
    """A reward function raised, or returned something that is no finite number; names the prompt."""


class SyncError(WorkbenchError, RuntimeError):
    """The engine does not sample from the weights just trained. Names the fault and its likely causes."""


class Stopped(Exception):  # noqa: N818 - a signal, not a fault
    """Raised inside a step when the user asked to stop; the step is dropped, the run is intact."""
