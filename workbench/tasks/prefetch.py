"""What the next steps need, made ready in a thread while this step runs."""

import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Generic, TypeVar

from workbench.errors import ConfigError, StateError

T = TypeVar("T")

CLOSE_SECONDS = 1.0  # how long close waits for a fetch that is under way; its thread is a daemon and ends with it


class Prefetch(Generic[T]):
    """Calls ``fetch(position)``, ``fetch(position + 1)``, ... in a thread, up to ``ahead`` items before they are taken.

    ``position`` is that of the next item to be taken: kept in a checkpoint and given to another Prefetch, it goes on from there.
    ``waited_seconds`` is how long the last ``take`` waited for its items; steps that wait are starved of data. Calls may come
    from any thread. Raises ConfigError where ``position`` is below 0 or ``ahead`` below 1.
    """

    def __init__(self, fetch: Callable[[int], T], *, position: int, ahead: int) -> None:
        if position < 0:
            raise ConfigError(f"Prefetch(position={position})", "positions count from 0", "give the position that was kept")
        if ahead < 1:
            raise ConfigError(
                f"Prefetch(ahead={ahead})", "nothing would ever be fetched", "give 1 or more: as many items as two steps take"
            )
        self.waited_seconds = 0.0
        self._fetch, self._ahead = fetch, ahead
        self._position = position
        self._ready: deque[T] = deque()  # items position, position + 1, ...
        self._error: BaseException | None = None  # of the fetch after those; nothing is fetched beyond it
        self._raised = False  # whether a take has raised that error
        self._wanted = 0  # items that a take is waiting for; they may be more than ahead
        self._closed = False
        self._changed = threading.Condition()
        self._taking = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="workbench-prefetch", daemon=True)
        self._thread.start()

    @property
    def position(self) -> int:
        """The position of the next item to be taken."""
        with self._changed:
            return self._position

    def take(self, count: int) -> list[T]:
        """The next ``count`` items, in order; waits for those that are not ready.

        Where ``fetch`` raised for one of them, that error is raised and nothing is taken; the next ``take`` tries it again.
        Raises StateError when closed.
        """
        if count < 0:
            raise ConfigError(f"take({count})", "that is less than nothing", "take 0 or more")
        with self._taking, self._changed:
            begin = time.monotonic()
            self._wanted = count
            if self._raised:
                self._error, self._raised = None, False
            self._changed.notify_all()
            try:
                self._changed.wait_for(lambda: self._closed or len(self._ready) >= count or self._error)
            finally:
                self._wanted = 0
                self.waited_seconds = time.monotonic() - begin
            return self._taken(count)

    def close(self) -> None:
        """End the thread, after the fetch that is under way. Harmless when closed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:  # a fetch may close what calls it
            self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> "Prefetch[T]":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _taken(self, count: int) -> list[T]:
        if self._closed:
            raise StateError("take", "this prefetch is closed", "open a new one at its position")
        if len(self._ready) < count:
            self._raised = True
            raise self._error or RuntimeError("woken with nothing to take")
        self._position += count
        self._changed.notify_all()
        return [self._ready.popleft() for _ in range(count)]

    @property
    def _idle(self) -> bool:
        return self._error is not None or len(self._ready) >= max(self._ahead, self._wanted)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or not self._idle)
                if self._closed:
                    return
                position = self._position + len(self._ready)
            self._keep(*self._attempt(position))

    def _attempt(self, position: int) -> tuple[list[T], BaseException | None]:
        """Outside the lock: a take of what is ready does not wait for it."""
        try:
            return [self._fetch(position)], None
        except BaseException as error:  # a sys.exit() in a fetch would else end the thread without a word
            return [], error

    def _keep(self, items: list[T], error: BaseException | None) -> None:
        with self._changed:
            self._ready.extend(items)
            self._error = error
            self._changed.notify_all()
