"""A circuit breaker: who has failed again and again is left alone for a while."""

import threading
import time
from collections.abc import Callable

CLOSED, OPEN, HALF_OPEN = "closed", "open", "half-open"


class Breaker:
    """``failures`` failed calls in a row open it: for ``seconds`` no call is made. Then one call is let through (half-open): it closes the
    breaker, or opens it again. ``clock`` is for tests.
    """

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures, self.seconds, self._clock = failures, seconds, clock
        self._failed = 0
        self._opened: float | None = None
        self._trying = False
        self._lock = threading.Lock()

    @property
    def state(self) -> str:
        """closed, open or half-open."""
        if self._opened is None:
            return CLOSED
        return OPEN if self.wait() > 0 else HALF_OPEN

    def wait(self) -> float:
        """Seconds until a call is let through; 0 where one would be now."""
        return 0.0 if self._opened is None else max(self._opened + self.seconds - self._clock(), 0.0)

    def allows(self) -> bool:
        """Whether a call may be made now. Whoever is allowed one says ``succeeded``, ``failed`` or ``dropped`` afterwards."""
        with self._lock:
            if self._opened is None:
                return True
            if self._trying or self.wait() > 0:
                return False
            self._trying = True
            return True

    def succeeded(self) -> None:
        """The call went well."""
        with self._lock:
            self._failed, self._opened, self._trying = 0, None, False

    def failed(self) -> None:
        """The call failed."""
        with self._lock:
            self._failed += 1
            if self._failed >= self.failures or self._trying:
                self._opened = self._clock()
            self._trying = False

    def dropped(self) -> None:
        """The call says nothing about the other side."""
        with self._lock:
            self._trying = False
