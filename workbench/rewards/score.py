"""Scores the completions of a step with any reward: a function of (prompt, completion, answer), or one that takes rows at once."""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from workbench.errors import ConfigError, RewardError, StateError, WorkbenchError
from workbench.rewards.check import Reward, check_reward, reward_name, shorten
from workbench.rewards.rows import ENDINGS, Row, RowFault, Scored, mean_numbers, score_rows
from workbench.rewards.worker import Worker

T = TypeVar("T")


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
    """A reward, checked, and the thread in which it runs.

    Sync calls run one after the other. Async calls of a step run at the same time, each for at most ``timeout_s`` seconds;
    their event loop is the same from step to step, so a client (httpx, OpenAI) may be kept open between calls.
    A reward with ``score_rows(rows)``, sync or async, is called for many rows at once: all, or at most ``chunk`` of them where it has
    that attribute. One with ``prepare(device)`` is told once, before its first row, whether it is to work on the "cpu" or on "cuda".
    Raises ConfigError where ``fn`` is no reward (see ``check_reward``) or ``timeout_s`` is not above 0.
    """

    def __init__(self, fn: Reward, *, timeout_s: float | None = None, device: str = "cpu") -> None:
        if timeout_s is not None and not timeout_s > 0:
            raise ConfigError(
                f"timeout_s={timeout_s}", "an async reward gets that many seconds a call", "give more than 0, or None for no limit"
            )
        self.fn = check_reward(fn)
        self.timeout_s, self.device = timeout_s, device
        self._prepared: Reward | None = None
        self._said: list[tuple[int, Mapping[str, float]]] = []  # rows and numbers of each call since they were asked for
        self._worker: Worker | None = None
        self._lock = threading.Lock()

    def prepare(self, *, should_stop: Callable[[], bool] | None = None) -> None:
        """Make the reward ready (load a model, say), once. ``score`` does it too; here it can be done before the first step."""
        self._call(lambda worker: self._make_ready(), should_stop)

    def score(
        self, rows: Sequence[Row], *, should_stop: Callable[[], bool] | None = None, prompt_indices: Sequence[int] | None = None
    ) -> list[float]:
        """One score per row (prompt, completion, answer), in order.

        ``prompt_indices`` are the prompts' positions in the task, one per row, to name them in errors. RewardError: a call
        raised, took too long, or gave no finite number; names the prompt. RewardServiceError: what is worth waiting for.
        Stopped: ``should_stop`` became true; a sync call that is under way is not waited for, it ends in its own thread and
        its result is dropped.
        """
        if prompt_indices is not None and len(prompt_indices) != len(rows):
            raise ConfigError(f"{len(prompt_indices)} prompt_indices", f"there are {len(rows)} rows", "give one per row")
        try:
            scored = self._call(lambda worker: self._score(rows, worker), should_stop)
        except RowFault as fault:
            raise self._error(fault, rows, prompt_indices) from fault.__cause__
        if scored.numbers:
            self._said.append((len(rows), scored.numbers))
        return scored.scores

    def numbers(self) -> dict[str, float]:
        """What the reward's ``numbers()`` said of the rows scored since this was last asked: means over these rows."""
        said, self._said = self._said, []
        return mean_numbers(said)

    def close(self) -> None:
        """End the thread. The next ``score`` starts a new one."""
        if self._worker is not None:
            self._worker.close()
            self._worker = None

    def __enter__(self) -> "Scorer":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    async def _score(self, rows: Sequence[Row], worker: Worker) -> Scored:
        await self._make_ready()
        return await score_rows(self.fn, rows, timeout_s=self.timeout_s, stopping=worker.stopping)

    async def _make_ready(self) -> None:
        if self._prepared is not self.fn and hasattr(self.fn, "prepare"):
            try:
                self.fn.prepare(self.device)
            except (*ENDINGS, asyncio.CancelledError) as error:
                if isinstance(error, WorkbenchError):
                    raise
                found = f"it raised {type(error).__name__}: {error}"
                raise RewardError(
                    f"reward {reward_name(self.fn)}.prepare({self.device!r})", found, "the traceback above shows the line"
                ) from error
        self._prepared = self.fn

    def _call(self, work: Callable[[Worker], Coroutine[Any, Any, T]], should_stop: Callable[[], bool] | None) -> T:
        if not self._lock.acquire(blocking=False):
            raise StateError("score", "this scorer is scoring already, in another thread", "use one Scorer per thread")
        try:
            worker = self._ready_worker()
            return worker.call(lambda: work(worker), should_stop)
        finally:
            self._lock.release()

    def _ready_worker(self) -> Worker:
        if self._worker is None or not self._worker.usable:
            self._worker = Worker()
            weakref.finalize(self, self._worker.close)  # a scorer that was never closed leaves no thread behind
        return self._worker

    def _error(self, fault: RowFault, rows: Sequence[Row], prompt_indices: Sequence[int] | None) -> RewardError:
        name = reward_name(self.fn) + (f", part {fault.part!r}," if fault.part else "")
        if fault.row is None:
            return RewardError(f"reward {name} for {len(rows)} rows", f"it {fault.what}", fault.fix)
        prompt, completion, answer = rows[fault.row]
        where = f"row {fault.row}" if prompt_indices is None else f"prompt {prompt_indices[fault.row]}"
        asked = f"reward {name} for {where}, {shorten(prompt)}"
        return RewardError(asked, f"for the completion {shorten(completion)} (answer {shorten(answer)}) it {fault.what}", fault.fix)
