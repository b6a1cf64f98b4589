"""What a reward gives for rows: called for each or for many at once, sync or async."""

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workbench.errors import RewardServiceError, Stopped, WorkbenchError
from workbench.rewards.check import Reward, as_number, shorten
from workbench.rewards.worker import GRACE_SECONDS

Row = tuple[Any, str, Any]  # prompt (a text, or a list of message dicts), completion, answer

ENDINGS = (Exception, SystemExit, KeyboardInterrupt)  # sys.exit() in a reward would else end the thread without a word


class RowFault(Exception):  # noqa: N818 - inside this room only: whoever knows the prompts makes a RewardError of it
    """What a reward did wrong, and the fix. ``row``: where, or None where it concerns ``rows`` rows at once; ``part``: of a combination."""

    def __init__(self, row: int | None, what: str, fix: str, *, part: str = "") -> None:
        super().__init__(row, what, fix)
        self.row, self.what, self.fix, self.part = row, what, fix, part

    def moved(self, first: int) -> "RowFault":
        """The same fault, of rows that begin at ``first``."""
        return RowFault(None if self.row is None else self.row + first, self.what, self.fix, part=self.part)

    def of(self, part: str) -> "RowFault":
        """The same fault, in a part of a combination."""
        return RowFault(self.row, self.what, self.fix, part=f"{part}/{self.part}" if self.part else part)


@dataclass(frozen=True)
class Scored:
    """One score per row, and the reward's own numbers: means over the rows."""

    scores: list[float]
    numbers: dict[str, float] = field(default_factory=dict)


async def score_rows(fn: Reward, rows: Sequence[Row], *, timeout_s: float | None = None, stopping: threading.Event | None = None) -> Scored:
    """What ``fn`` gives for ``rows``. Raises RowFault, Stopped (``stopping`` is set), and what a service or a model raises itself."""
    stopping = stopping or threading.Event()
    if not rows:
        return Scored([])
    if not hasattr(fn, "score_rows"):
        scores = await _OneByOne(fn, rows, timeout_s, stopping).run()
        return Scored(scores, _numbers(fn))
    size = getattr(fn, "chunk", None) or len(rows)
    parts = []
    for first in range(0, len(rows), size):
        await asyncio.sleep(0)  # a stop arrives here
        if stopping.is_set():
            raise Stopped
        try:
            parts.append(await _at_once(fn, rows[first : first + size], timeout_s))
        except RowFault as fault:
            raise fault.moved(first) from fault.__cause__
    return Scored([score for part in parts for score in part.scores], mean_numbers([(len(p.scores), p.numbers) for p in parts]))


def mean_numbers(parts: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, float]:
    """The mean of each number over rows: ``parts`` are (rows, numbers of these rows)."""
    names = dict.fromkeys(name for _, numbers in parts for name in numbers)
    means = {}
    for name in names:
        said = [(rows, numbers[name]) for rows, numbers in parts if name in numbers]
        means[name] = sum(rows * value for rows, value in said) / sum(rows for rows, _ in said)
    return means


def _numbers(fn: Reward) -> dict[str, float]:
    give = getattr(fn, "numbers", None)
    if give is None:
        return {}
    try:
        said = give()
        return {str(name): as_number(value) for name, value in said.items()}
    except (ValueError, AttributeError) as error:
        raise RowFault(None, f"gave numbers() that are none: {error}", "return a dict of names and finite numbers") from error


async def _at_once(fn: Any, rows: Sequence[Row], timeout_s: float | None) -> Scored:
    limit = asyncio.timeout(timeout_s)
    try:
        values = fn.score_rows(rows)
        if inspect.isawaitable(values):
            async with limit:
                values = await values
    except (RowFault, WorkbenchError, Stopped):
        raise
    except (*ENDINGS, asyncio.CancelledError) as error:
        raise _fault(None, error, timeout_s if limit.expired() else None) from error
    return Scored(_checked(values, len(rows)), _numbers(fn))


def _checked(values: Any, rows: int) -> list[float]:
    """``values`` of ``score_rows`` as floats, one per row."""
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, Sequence) or isinstance(values, str | bytes):
        raise RowFault(None, f"returned {shorten(values)}", f"let score_rows return a list of {rows} numbers, one per row")
    if len(values) != rows:
        raise RowFault(None, f"returned {len(values)} scores for {rows} rows", "return one score per row, in order")
    scores = []
    for row, value in enumerate(values):
        try:
            scores.append(as_number(value))
        except ValueError as error:
            raise RowFault(row, f"returned {shorten(value)}", str(error)) from None
    return scores


def _fault(row: int | None, error: BaseException, limit_s: float | None = None) -> BaseException:
    """What to raise for ``error``: itself where it was us who cancelled. ``limit_s``: the limit that ran out, where one did."""
    task = asyncio.current_task()
    if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
        return error
    if limit_s is not None:
        fix = "raise the limit, or make the reward return a score of its own when what it waits for is slow"
        return RowFault(row, f"gave no answer within {limit_s} s", fix)
    fix = "the traceback above shows the line; let the reward return a score (0, say) for a completion that it can't read"
    return RowFault(row, f"raised {type(error).__name__}: {error}", fix)


class _OneByOne:
    """One pass over the rows of a reward that is called for each."""

    def __init__(self, fn: Reward, rows: Sequence[Row], timeout_s: float | None, stopping: threading.Event) -> None:
        self.fn, self.rows, self.timeout_s, self.stopping = fn, rows, timeout_s, stopping
        self.scores: list[float] = [0.0] * len(rows)

    async def run(self) -> list[float]:
        """Call every row; sync results count at once, awaitables run together."""
        pending: list[Awaitable[float]] = []
        tasks: list[asyncio.Task[None]] = []
        try:
            for row in range(len(self.rows)):
                await asyncio.sleep(0)  # a stop arrives here
                if self.stopping.is_set():
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
        except RewardServiceError:
            raise
        except (*ENDINGS, asyncio.CancelledError) as error:
            raise _fault(row, error) from error

    async def _await(self, row: int, result: Awaitable[float]) -> None:
        if self.stopping.is_set():  # an earlier call blocked the loop; the cancel comes after this one has begun
            raise Stopped
        limit = asyncio.timeout(self.timeout_s)
        try:
            async with limit:
                value = await result
        except RewardServiceError:
            raise
        except (*ENDINGS, asyncio.CancelledError) as error:
            raise _fault(row, error, self.timeout_s if limit.expired() else None) from error
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
            raise RowFault(row, f"returned {shorten(value)}", str(error)) from None


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
