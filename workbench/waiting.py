"""A run that waits for a reward service: it asks again and again, and the seconds are no step's."""

import threading
import time
from collections import defaultdict
from collections.abc import Callable

from workbench.errors import RewardServiceError, Stopped
from workbench.events import EventLog
from workbench.records import Notice

RETRY_SECONDS = 5.0  # between two tries of a service that is down; its client has made some of its own


class Rests:
    """Seconds waited, thread by thread: steps that are sampled ahead wait beside others that learn. Any thread may add and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seconds: defaultdict[int, float] = defaultdict(float)  # thread -> seconds

    def add(self, seconds: float) -> None:
        """This thread has waited."""
        with self._lock:
            self._seconds[threading.get_ident()] += seconds

    def mine(self) -> float:
        """Of this thread."""
        with self._lock:
            return self._seconds[threading.get_ident()]

    def all(self) -> float:
        """Of all threads: for one that waits for another."""
        with self._lock:
            return sum(self._seconds.values())


class Waiting:
    """Does work that asks a reward service, again and again while that is down: nothing that was sampled is lost meanwhile."""

    def __init__(self, log: EventLog, should_stop: Callable[[], bool]) -> None:
        self.rests = Rests()
        self.nudge = threading.Event()  # ask again, now
        self.on_wait: Callable[[str], None] = lambda text: None  # told why the run waits, and "" once it goes on
        self._log, self._should_stop = log, should_stop

    def __call__(self, work: Callable[[], list[float]]) -> list[float]:
        """``work()``, once the service answers. Raises Stopped."""
        waiting = False
        try:
            while True:
                began = time.monotonic()
                try:
                    return work()
                except RewardServiceError as error:
                    if not waiting:
                        self._log.emit(Notice(f"the run rests until the reward answers again: {error}"))
                    waiting = True
                    self.on_wait(str(error))
                    self._wait_a_moment()
                self.rests.add(time.monotonic() - began)
        finally:
            if waiting:
                self.on_wait("")

    def _wait_a_moment(self) -> None:
        self.nudge.clear()
        end = time.monotonic() + RETRY_SECONDS
        while time.monotonic() < end and not self.nudge.wait(0.05):
            if self._should_stop():
                raise Stopped("reward")
