"""How requests wait in the engine: looked at after each of its steps, without vLLM's own statistics, which cost more."""

from dataclasses import dataclass
from typing import Any

from workbench.rollout import inner


@dataclass(frozen=True)
class Queued:
    """The requests of one call of ``generate``: means over the engine's steps, and how often one was computed again."""

    running_mean: float
    waiting_mean: float
    preempted: int


class Queueing:
    """Counts one call's requests."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self._requests: list[Any] = []
        self._steps = self._running = self._waiting = 0

    def add(self, name: str) -> None:
        """The engine has taken a request, and calls it so."""
        self._requests.append(inner.request(self._llm, name))

    def look(self) -> None:
        """The engine has made a step."""
        running, waiting = inner.queue(self._llm)
        self._steps, self._running, self._waiting = self._steps + 1, self._running + running, self._waiting + waiting

    @property
    def queued(self) -> Queued:
        """All of it."""
        steps = max(1, self._steps)
        preempted = sum(request.num_preemptions for request in self._requests)
        return Queued(self._running / steps, self._waiting / steps, preempted)
