"""Scores the completions of a step with any function ``(prompt, completion, answer) -> float``, sync or async."""

import asyncio
import inspect
import threading
import weakref
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any

from workbench.errors import ConfigError, RewardError, StateError, Stopped
from workbench.rewards.check import Reward, as_number, check_reward, reward_name, shorten
from workbench.rewards.worker import GRACE_SECONDS, Worker

Row = tuple[str, str, Any]  # prompt, completion, answer

_ENDINGS = (Exception, SystemExit, KeyboardInterrupt)  # sys.exit() in a reward would else end the thread without a word


def score_all(
    fn: Reward,
    rows: Sequence[Row],
    *,
    should_stop: Callable[[], bool] | None = None,
    timeout_s: float | None = None,
    prompt_indices: Sequence[int] | None = None,
) -> list[float]:
    """One score per row, in order; once. For a whole run keep a ``Scorer``: see there for the arguments and errors."""
    with Scorer(fn, timeout_s=timeout_s) as scorer:
        return scorer.score(rows, should_stop=should_stop, prompt_indices=prompt_indices)


class Scorer:
    """A reward function, checked, and the thread in which it runs.

    Sync calls run one after the other. Async calls of a step run at the same time, each for at most ``timeout_s`` seconds;
    their event loop is the same from step to step, so a client (httpx, OpenAI) may be kept open between calls.
    Raises ConfigError where ``fn`` can't be called with (prompt, completion, answer) or ``timeout_s`` is not above 0.
    """

    def __init__(self, fn: Reward, *, timeout_s: float | None = None) -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise ConfigError(
                f"timeout_s={timeout_s}", "an async reward gets that many seconds a call", "give more than 0, or None for no limit"
            )
        self.fn = check_reward(fn)
        self.timeout_s = timeout_s
        self._worker: Worker | None = None
        self._lock = threading.Lock()

    def score(
        self, rows: Sequence[Row], *, should_stop: Callable[[], bool] | None = None, prompt_indices: Sequence[int] | None = None
    ) -> list[float]:
        """One score per row (prompt, completion, answer), in order.

        ``prompt_indices`` are the prompts' positions in the task, one per row, to name them in errors. RewardError: a call
        raised, took too long, or gave no finite number; names the prompt. Stopped: ``should_stop`` became true; a sync
        call that is under way is not waited for, it ends in its own thread and its result is dropped.
        """
        if prompt_indices is not None and len(prompt_indices) != len(rows):
            raise ConfigError(f"{len(prompt_indices)} prompt_indices", f"there are {len(rows)} rows", "give one per row")
        if not self._lock.acquire(blocking=False):
            raise StateError("score", "this scorer is scoring already, in another thread", "use one Scorer per thread")
        try:
            worker = self._ready_worker()
            return worker.call(lambda: _Scoring(self, rows, prompt_indices, worker).run(), should_stop)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the thread. The next ``score`` starts a new one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def _ready_worker(self) -> Worker:
        if self._worker is None or not self._worker.usable:
            self._worker = Worker()
            weakref.finalize(self, self._worker.close)  # a scorer that was never closed leaves no thread behind
        return self._worker


class _Scoring:
    """One pass over the rows, inside the worker's thread."""

    def __init__(self, scorer: Scorer, rows: Sequence[Row], prompt_indices: Sequence[int] | None, worker: Worker) -> None:
        self.fn, self.timeout_s = scorer.fn, scorer.timeout_s
        self.rows, self.prompt_indices, self.worker = rows, prompt_indices, worker
        self.scores: list[float] = [0.0] * len(rows)

    async def run(self) -> list[float]:
        """Call every row; sync results count at once, awaitables run together."""
        pending: list[Awaitable[float]] = []
        tasks: list[asyncio.Task[None]] = []
        try:
            for row in range(len(self.rows)):
                if self.worker.stopping.is_set():
                    raise Stopped
                result = self._call(row)
                if inspect.isawaitable(result):
                    pending.append(result)
                    tasks.append(asyncio.create_task(self._await(row, result)))
                else:
                    self._keep(row, result)
            await self._finish(tasks)
        finally:
            await _give_up(tasks, pending)
        return self.scores

    def _call(self, row: int) -> Any:
        try:
            return self.fn(*self.rows[row])
        except (*_ENDINGS, asyncio.CancelledError) as error:
            raise self._raised(row, error) from error

    async def _await(self, row: int, result: Awaitable[float]) -> None:
        if self.worker.stopping.is_set():  # an earlier call blocked the loop; the cancel comes after this one has begun
            raise Stopped
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                value = await result
        except _ENDINGS as error:
            if limit.expired():
                fix = "raise the limit, or make the reward return a score of its own when what it waits for is slow"
                raise self._error(row, f"gave no answer within {self.timeout_s} s", fix) from error
            raise self._raised(row, error) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():  # it was us
                raise
            raise self._raised(row, error) from error
        self._keep(row, value)

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until all are done or one has failed; raise the failure of the first row that has one."""
        if not tasks:
            return
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()

    def _keep(self, row: int, value: object) -> None:
        try:
            self.scores[row] = as_number(value)
        except ValueError as error:
            raise self._error(row, f"returned {shorten(value)}", str(error)) from None

    def _raised(self, row: int, error: BaseException) -> RewardError:
        fix = "the traceback above shows the line; let the reward return a score (0, say) for a completion that it can't read"
        return self._error(row, f"raised {type(error).__name__}: {error}", fix)

    def _error(self, row: int, what: str, fix: str) -> RewardError:
        prompt, completion, answer = self.rows[row]
        where = f"row {row}" if self.prompt_indices is None else f"prompt {self.prompt_indices[row]}"
        asked = f"reward {reward_name(self.fn)} for {where}, {shorten(prompt)}"
        return RewardError(asked, f"for the completion {shorten(completion)} (answer {shorten(answer)}) it {what}", fix)


async def _give_up(tasks: list[asyncio.Task[None]], pending: list[Awaitable[float]]) -> None:
    """Cancel what still runs and let it clean up. Nothing to do after a step that went well."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.wait(running, timeout=GRACE_SECONDS)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # read, or asyncio logs it as never retrieved; the first one is raised already
    for result in pending:
        if inspect.iscoroutine(result):
            result.close()  # one that never began would warn that it was never awaited
