"""Rewards of completions that are done, while others still generate."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from queue import Empty, SimpleQueue

from workbench.batch import Prompt
from workbench.errors import RewardServiceError, Stopped
from workbench.judge import Judge


class EarlyScores:
    """Scores what is done, as it gets done, in a thread. ``told`` from any thread; ``end`` once no more comes."""

    def __init__(
        self,
        judge: Judge,
        prompts: tuple[Prompt, ...],
        group_size: int,
        timed: Callable[[], AbstractContextManager[None]],
        should_stop: Callable[[], bool],
    ) -> None:
        self.judge, self.prompts, self.group_size, self.timed, self.should_stop = judge, prompts, group_size, timed, should_stop
        self.scores: dict[int, float] = {}  # row -> its reward
        self._rows: SimpleQueue[tuple[int, str] | None] = SimpleQueue()
        self._seen: set[int] = set()
        self._over = self._dropped = False
        self._error: BaseException | None = None
        self._ended = threading.Event()  # not a join: one that is interrupted takes the thread for ended
        threading.Thread(target=self._work, name="workbench-early-rewards", daemon=True).start()

    def told(self, row: int, text: str) -> None:
        """Completion ``row`` of the step is done: this is its text. Twice is once."""
        self._rows.put((row, text))

    def end(self, *, drop: bool = False) -> dict[int, float]:
        """Row -> reward of what was scored. Raises what went wrong, but for a service that is down: its rows are simply not there.

        ``drop``: the rollout has failed; nothing more is scored, and nothing raised. A call that is under way is not waited for then, nor
        after an interrupt of the wait.
        """
        self._dropped = drop
        self._over = True
        self._rows.put(None)
        try:
            self._ended.wait()
        except BaseException:
            self._dropped = True
            self._ended.wait()  # the reward is asked by one thread at a time
            raise
        if self._error is not None and not drop and not isinstance(self._error, RewardServiceError):
            raise self._error
        return self.scores

    def _work(self) -> None:
        try:
            while (rows := self._next()) is not None:
                if rows:
                    self._score(rows)
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def _next(self) -> dict[int, str] | None:
        """All that is done by now, at least one; None at the end: what is still waiting then is scored with the rest."""
        first = self._rows.get()
        if first is None or self._over:
            return None
        waiting = dict([first])
        while True:
            try:
                more = self._rows.get_nowait()
            except Empty:
                break
            if more is None:
                return None
            waiting[more[0]] = more[1]
        fresh = {row: text for row, text in waiting.items() if row not in self._seen}
        self._seen |= fresh.keys()
        return fresh

    def _score(self, rows: dict[int, str]) -> None:
        asked = [self.prompts[row // self.group_size] for row in rows]
        triples = [(prompt.given, text, prompt.answer) for prompt, text in zip(asked, rows.values(), strict=True)]

        try:
            with self.timed():
                scores = self.judge.score(triples, [prompt.index for prompt in asked], lambda: self._dropped or self.should_stop())
        except Stopped:
            return
        self.scores.update(zip(rows, scores, strict=True))
