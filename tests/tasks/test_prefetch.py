"""Items fetched ahead of their use, in a thread."""

import threading
import time

import pytest

from workbench.errors import ConfigError, StateError
from workbench.tasks import Prefetch


class Source:
    """Squares, kept count of; waits at ``gate`` where one is given, and fails at the positions in ``broken``."""

    def __init__(self, gate: threading.Semaphore | None = None, broken: set[int] = frozenset()) -> None:
        self.asked: list[int] = []
        self.gate, self.broken = gate, broken

    def __call__(self, position: int) -> int:
        if self.gate is not None:
            self.gate.acquire()
        self.asked.append(position)
        if position in self.broken:
            raise ValueError(f"item {position} is bad")
        return position**2


def until(condition, seconds: float = 5.0) -> None:
    """Wait for what another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.002)


def test_items_come_in_order_from_the_position_given() -> None:
    with Prefetch(Source(), position=3, ahead=4) as ahead:
        assert ahead.take(2) == [9, 16]
        assert ahead.position == 5
        assert ahead.take(3) == [25, 36, 49]
        assert ahead.take(0) == []
        assert ahead.position == 8


def test_it_fetches_ahead_and_no_further() -> None:
    source = Source()
    with Prefetch(source, position=0, ahead=3) as ahead:
        until(lambda: source.asked == [0, 1, 2])
        time.sleep(0.05)
        assert source.asked == [0, 1, 2]
        assert ahead.take(1) == [0]
        until(lambda: source.asked == [0, 1, 2, 3])
        assert ahead.position == 1


def test_more_than_ahead_can_be_taken_at_once() -> None:
    with Prefetch(Source(), position=0, ahead=1) as ahead:
        assert ahead.take(5) == [0, 1, 4, 9, 16]


def test_another_one_goes_on_at_its_position() -> None:
    with Prefetch(Source(), position=0, ahead=8) as first:
        first.take(3)
        kept = first.position
    with Prefetch(Source(), position=kept, ahead=8) as second:
        assert second.take(2) == [9, 16]


def test_an_error_is_raised_by_the_take_that_reaches_it_and_again() -> None:
    source = Source(broken={2})
    with Prefetch(source, position=0, ahead=4) as ahead:
        until(lambda: source.asked == [0, 1, 2])
        assert ahead.take(1) == [0]  # it doesn't reach item 2
        for _ in range(2):
            with pytest.raises(ValueError, match="item 2 is bad"):
                ahead.take(2)
            assert ahead.position == 1  # nothing was taken
        assert ahead.take(1) == [1]
        with pytest.raises(ValueError, match="item 2 is bad"):
            ahead.take(1)
        assert source.asked.count(2) == 3  # one ahead, and one for each take that followed an error
        source.broken = set()
        assert ahead.take(2) == [4, 9]


def test_an_exit_in_a_fetch_is_not_lost() -> None:
    def leave(position: int) -> None:
        raise SystemExit("enough")

    with Prefetch(leave, position=0, ahead=1) as ahead, pytest.raises(SystemExit, match="enough"):
        ahead.take(1)


def test_it_says_how_long_a_take_waited() -> None:
    gate = threading.Semaphore(1)
    with Prefetch(Source(gate), position=0, ahead=1) as ahead:
        until(lambda: len(ahead._ready) == 1)
        ahead.take(1)
        assert ahead.waited_seconds < 0.05
        threading.Timer(0.2, gate.release).start()
        ahead.take(1)
        assert 0.15 < ahead.waited_seconds < 2
        gate.release()


def test_takes_from_many_threads_share_out_every_item_once() -> None:
    taken: list[list[int]] = []
    with Prefetch(Source(), position=0, ahead=5) as ahead:
        threads = [threading.Thread(target=lambda: taken.extend(ahead.take(3) for _ in range(20))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == [[(3 * n + k) ** 2 for k in range(3)] for n in range(80)]


def test_close_ends_the_thread_and_who_waits() -> None:
    gate = threading.Semaphore(0)
    ahead = Prefetch(Source(gate), position=0, ahead=1)
    caught: list[Exception] = []

    def take() -> None:
        try:
            ahead.take(1)
        except StateError as error:
            caught.append(error)

    waiting = threading.Thread(target=take)
    waiting.start()
    until(lambda: ahead._wanted == 1)
    gate.release(2)
    ahead.close()
    ahead.close()
    waiting.join(2)
    assert not waiting.is_alive()
    assert not ahead._thread.is_alive()
    with pytest.raises(StateError, match=r"take: this prefetch is closed\n  fix: open a new one at its position"):
        ahead.take(1)


def test_close_does_not_wait_for_a_fetch_that_hangs() -> None:
    gate = threading.Semaphore(0)
    ahead = Prefetch(Source(gate), position=0, ahead=1)
    begin = time.monotonic()
    ahead.close()
    assert time.monotonic() - begin < 2
    assert ahead._thread.daemon
    gate.release()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"position": -1, "ahead": 1}, "positions count from 0"), ({"position": 0, "ahead": 0}, "nothing would ever be fetched")],
)
def test_what_makes_no_sense(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Prefetch(Source(), **arguments)
    with Prefetch(Source(), position=0, ahead=1) as ahead, pytest.raises(ConfigError, match=r"take\(-1\)"):
        ahead.take(-1)
