"""Two pieces of work of a step at the same time, where they are done on devices apart."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

from workbench.errors import Stopped

A = TypeVar("A")
B = TypeVar("B")
Stop = Callable[[], bool]

LOOK_SECONDS = 0.2  # between two looks whether a lock is worth waiting for


class Lock(Protocol):
    """``threading.Lock`` or ``threading.RLock``."""

    def acquire(self, *, timeout: float) -> bool:
        """Whether it is held now."""
        ...

    def release(self) -> None:
        """Let others have it."""
        ...


def both(first: Callable[[Stop], A], second: Callable[[Stop], B], stop: Stop, *, at_once: bool) -> tuple[A, B]:
    """What ``first`` and ``second`` give: one after the other, or ``at_once``. Each is told when to stop.

    Where one fails the other is stopped and waited for, and what it failed of is raised.
    """
    if not at_once:
        return first(stop), second(stop)
    failed = threading.Event()

    def over() -> bool:
        return failed.is_set() or stop()

    def work() -> A:
        try:
            return first(over)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(1, thread_name_prefix="workbench-beside") as threads:
        beside = threads.submit(work)
        try:
            found = second(over)
            return beside.result(), found
        except BaseException as error:  # an interrupt of the wait, too
            failed.set()
            _raise_cause(beside, error)
            raise


@contextmanager
def held(lock: Lock, refuse: Callable[[], None]) -> Iterator[None]:
    """Within, ``lock`` is held. ``refuse`` is called now and then while it is waited for, and may raise."""
    while not lock.acquire(timeout=LOOK_SECONDS):
        refuse()
    try:
        yield
    finally:
        lock.release()


def _raise_cause(beside: Future[A], error: BaseException) -> None:
    """Raise what the other one failed of, where that is why this one was stopped."""
    cause = beside.exception()
    if isinstance(error, Stopped) and cause is not None and not isinstance(cause, Stopped):
        raise cause
