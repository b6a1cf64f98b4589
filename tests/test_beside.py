"""Two pieces of work at the same time."""

import signal
import threading
import time
from collections.abc import Callable

import pytest

from workbench.beside import both
from workbench.errors import Stopped


def until(stop: Callable[[], bool]) -> None:
    """Work that only ends when it is told to."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if stop():
            raise Stopped("work")
        time.sleep(0.001)
    raise AssertionError("nobody stopped it")


def failing(stop: Callable[[], bool]) -> None:
    raise ValueError("broken")


def never() -> bool:
    return False


def test_one_after_the_other_where_they_are_not_apart() -> None:
    order: list[str] = []
    assert both(lambda stop: order.append("first") or 1, lambda stop: order.append("second") or 2, never, at_once=False) == (1, 2)
    assert order == ["first", "second"]


def test_at_once_each_waits_for_the_other() -> None:
    meeting = threading.Barrier(2, timeout=5)
    assert both(lambda stop: meeting.wait() >= 0, lambda stop: meeting.wait() >= 0, never, at_once=True) == (True, True)


@pytest.mark.parametrize("pair", [(failing, until), (until, failing)])
def test_where_one_fails_the_other_is_stopped(pair: tuple[Callable[..., None], Callable[..., None]]) -> None:
    with pytest.raises(ValueError, match="broken"):
        both(*pair, never, at_once=True)


def test_a_stop_stops_both() -> None:
    began = time.monotonic()
    with pytest.raises(Stopped):
        both(until, until, lambda: time.monotonic() - began > 0.05, at_once=True)


def test_an_interrupt_stops_the_one_that_is_still_at_it() -> None:
    """The caller's is done, and it waits for the other."""
    began = time.monotonic()
    threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        both(until, lambda stop: 2, never, at_once=True)
    assert time.monotonic() - began < 5
