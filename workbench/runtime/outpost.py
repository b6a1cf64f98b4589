"""A sampler on another node of the cluster: a small actor without a share of any device, whose samples the driver fetches.

The driver is the only writer of events, and their times are of its clock. At every answer the node says what its own monotonic clock shows:
half-way between question and answer, as far as anybody knows. The quickest answer of late says it best, and is what samples are moved by.
"""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.records import Clock, Load
from workbench.runtime.seat import Seat
from workbench.telemetry.sampler import Sampler

KEPT = 240  # samples that nobody has fetched: a minute of the quickest pace
DRIFT = 1e-4  # seconds by which two clocks may part in one; twice what computers' do


@dataclass(frozen=True)
class Taken:
    """What a node has to tell. ``mono``: its clock now, which the times of its samples are of. ``error``: why it samples no more."""

    mono: float
    samples: list[tuple[float, Load]]
    error: str


class NodeSampler:
    """The actor. ``devices``, ``seats``, ``hz``: as of ``Sampler``."""

    def __init__(self, devices: Mapping[str, str | None], seats: Sequence[Seat], hz: float) -> None:
        self._kept: deque[tuple[float, Load]] = deque(maxlen=KEPT)
        self._sampler = Sampler(devices, seats, lambda load: self._kept.append((time.monotonic(), load)), hz=hz).start()

    def take(self) -> Taken:
        """What was sampled since this was asked last."""
        samples = [self._kept.popleft() for _ in range(len(self._kept))]
        error = self._sampler.error
        return Taken(time.monotonic(), samples, "" if error is None else f"{type(error).__name__}: {error}")


class Outpost:
    """One node's sampler, seen from the driver; for one thread. ``handle``: of the actor, which may be starting still."""

    def __init__(self, node: str, devices: Sequence[str], handle: Any) -> None:
        self.node, self.devices, self._handle = node, tuple(devices), handle
        self.clock: Clock | None = None  # None: no answer yet
        self._when = 0.0  # that was found
        self._asked: tuple[Any, float] | None = None  # the question under way, and when it was put

    def fetch(self, patience: float) -> list[tuple[float, Load]]:
        """New samples, each with its time by the driver's clock; none where there is no answer within ``patience`` seconds.

        Raises RuntimeError with what ended the node's sampler, and Ray's errors where its process or its node is gone.
        """
        import ray

        if self._asked is None:
            self._asked = self._handle.take.remote(), time.monotonic()
        ref, asked = self._asked
        if not ray.wait([ref], timeout=patience)[0]:
            return []
        self._asked, now = None, time.monotonic()
        taken: Taken = ray.get(ref)
        if taken.error:
            raise RuntimeError(taken.error)
        clock = self._set(taken.mono, asked, now)
        return [(mono - clock.ahead_seconds, load) for mono, load in taken.samples]

    def _set(self, there: float, asked: float, now: float) -> Clock:
        within = (now - asked) / 2
        if self.clock is None or within <= self.clock.within_seconds + DRIFT * (now - self._when):
            self.clock, self._when = Clock(self.node, there - (asked + within), within), now
        return self.clock

    def end(self) -> None:
        """End its process."""
        import ray

        if ray.is_initialized():
            ray.kill(self._handle)
