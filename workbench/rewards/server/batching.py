"""Requests that arrive together are scored together: one queue, one thread that scores."""

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

ScoreItems = Callable[[Sequence[Any]], list[float]]


class QueueFull(Exception):  # noqa: N818 - what happened: asking again helps
    """So many rows wait that no more are taken."""


@dataclass
class Job:
    """What one request wants scored, and where its scores go."""

    items: Sequence[Any]
    done: "Future[list[float]]" = field(default_factory=Future)


class Batcher:
    """Scores jobs in a thread of its own: all that arrive within ``max_wait_s`` seconds at once, until there are ``max_batch`` items.

    At most ``max_queue`` items wait; a request that is larger by itself is taken when nobody else waits. ``score`` is called in that thread
    alone, and ``start`` before it, which makes ready; what ``start`` raises ends the thread.
    ``watch(items, seconds)`` hears of every batch.
    """

    def __init__(
        self, score: ScoreItems, *, max_batch: int, max_wait_s: float, max_queue: int, watch: Callable[[int, float], None]
    ) -> None:
        self.score, self.max_batch, self.max_wait_s, self.max_queue, self.watch = score, max_batch, max_wait_s, max_queue, watch
        self.ready = False
        self._jobs: queue.Queue[Job | None] = queue.Queue()
        self._waiting = 0  # items of the jobs in it
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, make_ready: Callable[[], None], gave_up: Callable[[BaseException], None]) -> None:
        """Begin. ``gave_up`` is told what ``make_ready`` raised."""

        def run() -> None:
            try:
                make_ready()
            except BaseException as error:
                gave_up(error)
                return
            self.ready = True
            self._run()

        self._thread = threading.Thread(target=run, name="workbench-reward-batches", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float) -> None:
        """End after what is in the queue, or after ``timeout_s``."""
        self._jobs.put(None)
        if self._thread is not None:
            self._thread.join(timeout_s)

    def waiting(self) -> int:
        """Jobs that no batch has yet."""
        return self._jobs.qsize()

    def waiting_rows(self) -> int:
        """Their items."""
        return self._waiting

    async def submit(self, items: Sequence[Any], gone: Callable[[], Awaitable[bool]]) -> list[float] | None:
        """The scores of ``items``; None where ``gone()`` says that nobody waits for them any more. Then they are not computed.

        Raises QueueFull.
        """
        job = Job(items)
        self._put(job)
        waited = asyncio.wrap_future(job.done)
        while not waited.done():
            await asyncio.wait([waited], timeout=1.0)
            if not waited.done() and await gone():
                waited.cancel()
                return None
        return await waited

    def _put(self, job: Job) -> None:
        with self._lock:
            if self._waiting and self._waiting + len(job.items) > self.max_queue:
                raise QueueFull(
                    f"the queue is full: {self._waiting} rows wait, {self.max_queue} may, and here are {len(job.items)} more; "
                    "ask again in a second, or start the server with more --max-queue"
                )
            self._waiting += len(job.items)
        self._jobs.put(job)

    def _take(self, timeout_s: float | None = None) -> Job | None:
        """The next job; None at the end of all. Raises queue.Empty."""
        job = self._jobs.get(timeout=timeout_s)
        if job is not None:
            with self._lock:
                self._waiting -= len(job.items)
        return job

    def _run(self) -> None:
        while (job := self._take()) is not None:
            jobs, more = self._gather(job)
            jobs = [job for job in jobs if job.done.set_running_or_notify_cancel()]
            if jobs:
                self._score(jobs)
            if not more:
                return

    def _gather(self, first: Job) -> tuple[list[Job], bool]:
        """``first`` and what arrives soon after it; False at the end of all."""
        jobs, items, end = [first], len(first.items), time.monotonic() + self.max_wait_s
        while items < self.max_batch:
            try:
                job = self._take(max(end - time.monotonic(), 0))
            except queue.Empty:
                break
            if job is None:
                return jobs, False
            jobs.append(job)
            items += len(job.items)
        return jobs, True

    def _score(self, jobs: list[Job]) -> None:
        items, began = [item for job in jobs for item in job.items], time.monotonic()
        try:
            scores = self.score(items)
        except Exception as error:  # whatever it is, the thread goes on and the one who asked is told
            if len(jobs) == 1:
                jobs[0].done.set_exception(error)
                return
            for job in jobs:  # one of them is at fault; the others get their scores
                self._score([job])
            return
        self.watch(len(items), time.monotonic() - began)
        for job in jobs:
            job.done.set_result(scores[: len(job.items)])
            scores = scores[len(job.items) :]
