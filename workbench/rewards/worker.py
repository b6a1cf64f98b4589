"""A thread with an event loop of its own, so that rewards run the same in a script, in Jupyter and in a run's thread."""

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any, TypeVar

from workbench.errors import StateError, Stopped

T = TypeVar("T")

POLL_SECONDS = 0.05  # how often a wait looks whether to stop
REWARD_THREAD = "workbench-rewards"  # what a reward function runs in
GRACE_SECONDS = 0.3  # how long cancelled work may take to end before its thread is left behind
CLEANUP_SECONDS = 1.0  # how long tasks may take to end when the thread does


class Worker:
    """Runs one coroutine at a time in a thread of its own; the loop lives from call to call, and so may a client opened on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.stopping = threading.Event()  # read by work that can't be cancelled from outside: a loop over sync calls
        self._thread = threading.Thread(target=self._run, name=REWARD_THREAD, daemon=True)
        self._thread.start()

    @property
    def usable(self) -> bool:
        """Whether it can take work: not closed, neither by ``close`` nor by a call that would not end."""
        return self._thread.is_alive() and not self._closed

    def call(self, work: Callable[[], Coroutine[Any, Any, T]], should_stop: Callable[[], bool] | None) -> T:
        """The result of ``work()``, waited for. Raises Stopped soon after ``should_stop`` says so, whatever the work is at.

        Cancelled work that goes on is left behind in its thread, which ends with it; then the worker is no longer usable.
        """
        self.stopping.clear()
        future: Future[T] = Future()
        ended = threading.Event()
        # The caller's context variables hold in the thread too.
        self._loop.call_soon_threadsafe(self._begin, work, future, ended, context=contextvars.copy_context())
        try:
            while not wait([future], timeout=POLL_SECONDS).done:
                if not self._thread.is_alive() or (should_stop is not None and should_stop()):
                    raise Stopped
            return future.result()
        except asyncio.CancelledError:  # close() was called from another thread
            raise Stopped from None
        finally:
            if not future.done():
                self._cancel(ended)

    def close(self) -> None:
        """End the thread, at once or as soon as the call that holds it returns. Harmless when closed."""
        if not self._closed:  # a second stop() would break into the clean-up after the first
            self._closed = True
            self.stopping.set()
            self._tell(self._loop.stop)

    def _begin(self, work: Callable[[], Coroutine[Any, Any, T]], future: "Future[T]", ended: threading.Event) -> None:
        async def run() -> None:
            try:
                future.set_result(await work())
            except BaseException as error:
                future.set_exception(error)

        self._task = self._loop.create_task(run())
        self._task.add_done_callback(lambda _: ended.set())

    def _cancel(self, ended: threading.Event) -> None:
        self.stopping.set()
        self._tell(lambda: self._task and self._task.cancel())
        if not ended.wait(GRACE_SECONDS):
            self.close()

    def _tell(self, callback: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # a loop that is closed has nothing left to stop
            self._loop.call_soon_threadsafe(callback)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            if tasks:
                self._loop.run_until_complete(asyncio.wait(tasks, timeout=CLEANUP_SECONDS))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


def check_outside(call: str) -> None:
    """Raise StateError inside a reward: the step that waits for it holds the models, and ``call`` would wait for ever."""
    if threading.current_thread().name == REWARD_THREAD:
        found = "the step that waits for this reward holds the models"
        raise StateError(f"{call} in a reward", found, "return a score; call it from a cell, or set a flag that a cell reads")
