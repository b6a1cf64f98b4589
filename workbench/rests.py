"""Seconds that a run has waited for a reward service, thread by thread: steps that are sampled ahead wait beside others that learn."""

import threading
from collections import defaultdict


class Rests:
    """Adds them up. Any thread may add and read."""

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
