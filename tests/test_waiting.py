"""Waits for a reward service are taken off the phases of the thread that waited."""

import threading
import time

import pytest

from workbench.events import EventLog
from workbench.telling import StepBook
from workbench.waiting import Rests


def in_thread(work) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def book(rests: Rests) -> StepBook:
    return StepBook(EventLog(), None, 1, 0, lambda: False, rests)  # type: ignore[arg-type]


def test_each_thread_has_its_own_and_all_add_up() -> None:
    rests = Rests()
    rests.add(2.0)
    in_thread(lambda: rests.add(5.0))
    assert (rests.mine(), rests.all()) == (2.0, 7.0)


def test_a_phase_is_shorter_by_its_own_rests() -> None:
    rests = Rests()
    mine = book(rests)
    began = time.monotonic()
    with mine.phase("reward"):
        time.sleep(0.05)
        rests.add(0.04)
    assert 0 < mine.spent["reward"] <= time.monotonic() - began - 0.04
    assert mine.rested == 0.04


def test_what_another_thread_waits_beside_it_is_none_of_its_business() -> None:
    """A step that is sampled ahead waits while this one learns: taken off here, the phase would be negative."""
    rests = Rests()
    mine = book(rests)
    with mine.phase("update_actor"):
        in_thread(lambda: rests.add(100.0))
    assert 0 <= mine.spent["update_actor"] < 1
    assert mine.rested == 0


def test_but_one_that_waits_for_that_thread_rests_with_it() -> None:
    rests = Rests()
    mine = book(rests)
    began = time.monotonic()
    with mine.phase("rollout", waits=True):
        time.sleep(0.05)
        in_thread(lambda: rests.add(0.04))
    assert 0 < mine.spent["rollout"] <= time.monotonic() - began - 0.04
    assert mine.rested == pytest.approx(0.04)
