"""The queue of a reward server: what is scored together, and what a failure touches."""

import asyncio
import threading
import time

import pytest

from workbench.rewards.server.batching import Batcher, QueueFull


async def here():
    return False


class Recorder:
    """A batcher over a score that doubles; remembers the batches."""

    def __init__(self, **named):
        self.batches, self.hold, self.held = [], threading.Event(), threading.Event()
        self.hold.set()
        self.batcher = Batcher(
            self.score, **({"max_batch": 4, "max_wait_s": 0.05, "max_queue": 1000, "watch": lambda items, seconds: None} | named)
        )
        self.batcher.start(lambda: None, lambda error: None)

    def score(self, items):
        self.held.set()
        self.hold.wait(5)
        if -1 in items:
            raise ValueError("minus one")
        self.batches.append(list(items))
        return [2.0 * item for item in items]

    def ask(self, *requests, gone=here):
        async def all_of_them():
            return await asyncio.gather(*(self.batcher.submit(items, gone) for items in requests), return_exceptions=True)

        return asyncio.run(all_of_them())


def test_what_arrives_together_is_one_batch():
    recorder = Recorder()
    assert recorder.ask([1, 2], [3]) == [[2.0, 4.0], [6.0]]
    assert recorder.batches == [[1, 2, 3]]


def test_a_full_batch_goes_at_once_and_a_large_request_stays_whole():
    recorder = Recorder(max_wait_s=30.0)
    begin = time.monotonic()
    assert recorder.ask([1, 2, 3, 4, 5, 6], [7, 8], [9, 10]) == [[2.0, 4.0, 6.0, 8.0, 10.0, 12.0], [14.0, 16.0], [18.0, 20.0]]
    assert recorder.batches == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10]]
    assert time.monotonic() - begin < 5


def test_without_waiting_each_is_scored_as_it_comes_and_a_queue_still_together():
    recorder = Recorder(max_wait_s=0.0)
    recorder.hold.clear()
    threading.Timer(0.2, recorder.hold.set).start()
    recorder.ask([1], [2], [3], [4])
    assert sorted(item for batch in recorder.batches for item in batch) == [1, 2, 3, 4]
    assert len(recorder.batches) <= 2, "what waited while a batch was scored is the next one"


def test_a_failure_touches_only_the_request_that_has_it():
    recorder = Recorder()
    first, second, third = recorder.ask([1], [-1], [3])
    assert (first, third) == ([2.0], [6.0])
    assert isinstance(second, ValueError)
    assert recorder.ask([5]) == [[10.0]], "the thread goes on"


def test_what_nobody_waits_for_is_not_scored():
    async def left():
        return True

    recorder = Recorder(max_batch=1)
    recorder.hold.clear()
    blocking = threading.Thread(target=lambda: recorder.ask([1]))
    blocking.start()
    while recorder.batcher.waiting():
        time.sleep(0.005)
    time.sleep(0.1)
    assert recorder.ask([2], gone=left) == [None]
    recorder.hold.set()
    blocking.join()
    assert recorder.ask([3]) == [[6.0]]
    assert recorder.batches == [[1], [3]]


def test_no_more_wait_than_may():
    recorder = Recorder(max_batch=1, max_queue=5)
    recorder.hold.clear()
    blocking = threading.Thread(target=lambda: recorder.ask([1, 2, 3, 4, 5, 6]))  # larger than the queue, and nobody waits
    blocking.start()
    assert recorder.held.wait(5)
    assert recorder.batcher.waiting_rows() == 0, "what is scored waits no more"
    threading.Timer(0.2, recorder.hold.set).start()
    first, second, third, fourth = recorder.ask([1, 2, 3], [4, 5], [6], [])
    assert (first, second, fourth) == ([2.0, 4.0, 6.0], [8.0, 10.0], [])
    assert isinstance(third, QueueFull)
    assert str(third).startswith("the queue is full: 5 rows wait, 5 may, and here are 1 more; ask again")
    blocking.join()
    assert recorder.batcher.waiting_rows() == 0
    assert recorder.ask([6]) == [[12.0]], "and there is room again"


def test_watch_hears_of_every_batch():
    heard = []
    recorder = Recorder(watch=lambda items, seconds: heard.append((items, seconds)))
    recorder.ask([1, 2], [3])
    assert [items for items, _ in heard] == [3]
    assert 0 <= heard[0][1] < 5


def test_what_can_not_be_made_ready_is_told():
    told, batcher = [], Batcher(lambda items: [], max_batch=1, max_wait_s=0, max_queue=1, watch=lambda items, seconds: None)

    def fail():
        raise OSError("no model")

    batcher.start(fail, told.append)
    batcher.close(5)
    assert [str(error) for error in told] == ["no model"]
    assert not batcher.ready


def test_close_ends_the_thread_after_what_was_asked():
    recorder = Recorder()
    recorder.ask([1])
    recorder.batcher.close(5)
    assert not recorder.batcher._thread.is_alive()


@pytest.mark.parametrize("requests", [1, 7])
def test_scores_go_to_who_asked(requests):
    recorder = Recorder(max_batch=1000)
    asked = [[10 * n + k for k in range(n + 1)] for n in range(requests)]
    assert recorder.ask(*asked) == [[2.0 * item for item in items] for items in asked]
