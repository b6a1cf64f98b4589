"""Two pieces of work of a step at the same time, where they are done on devices apart."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from workbench.errors import Stopped

A = TypeVar("A")
B = TypeVar("B")
Stop = Callable[[], bool]


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


def _raise_cause(beside: Future[A], error: BaseException) -> None:
    """Raise what the other one failed of, where that is why this one was stopped."""
    cause = beside.exception()
    if isinstance(error, Stopped) and cause is not None and not isinstance(cause, Stopped):
        raise cause
