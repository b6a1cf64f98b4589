"""The circuit breaker, on a clock that is turned by hand."""

import pytest

from workbench.rewards.service.breaker import CLOSED, HALF_OPEN, OPEN, Breaker


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_opens_after_failures_in_a_row_and_closes_after_one_success(clock):
    breaker = Breaker(failures=2, seconds=10, clock=clock)
    breaker.failed()
    breaker.succeeded()
    breaker.failed()
    assert breaker.state == CLOSED
    assert breaker.allows()
    breaker.failed()
    assert breaker.state == OPEN
    assert not breaker.allows()
    clock.now += 4
    assert breaker.wait() == 6
    clock.now += 6
    assert breaker.state == HALF_OPEN
    assert breaker.allows()
    assert not breaker.allows(), "one call at a time while it is half-open"
    breaker.succeeded()
    assert breaker.state == CLOSED
    assert breaker.allows()


def test_a_failed_trial_opens_it_again_at_once(clock):
    breaker = Breaker(failures=3, seconds=10, clock=clock)
    for _ in range(3):
        breaker.failed()
    clock.now += 10
    assert breaker.allows()
    breaker.failed()
    assert breaker.wait() == 10
    clock.now += 10
    assert breaker.allows()


def test_a_trial_that_was_dropped_lets_the_next_one_through(clock):
    breaker = Breaker(failures=1, seconds=10, clock=clock)
    breaker.failed()
    clock.now += 10
    assert breaker.allows()
    breaker.dropped()
    assert breaker.state == HALF_OPEN
    assert breaker.allows()
