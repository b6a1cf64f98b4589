"""Who scores completions: a function in this process, or the workers of the reward role. The same for the loop."""

import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from workbench import checkpoint
from workbench.rewards import Reward, Scorer

if TYPE_CHECKING:
    from workbench.runtime.team import Team

Row = tuple[Any, str, Any]  # prompt, completion, answer

EARLY_SECONDS = 0.05  # that scoring a step took; below, a thread beside the engine is not worth it


class Judge(Protocol):
    """Scores, and what a reward with a memory keeps of it."""

    def score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]:
        """One score per row, in order. Raises RewardError, Stopped."""
        ...

    @property
    def scores_early(self) -> bool:
        """Whether completions are worth scoring while others still generate: it takes long, and the order of calls is nothing to it."""
        ...

    def numbers(self) -> dict[str, float]:
        """What the reward tells of itself since it was last asked."""
        ...

    def state(self) -> Any:
        """The reward's ``state_dict()`` as JSON can hold it; None of one without memory."""
        ...

    def load_state(self, state: Any) -> None:
        """Give the reward back what ``state`` gave."""
        ...

    def close(self) -> None:
        """End its thread, where it has one here."""
        ...


class _Timed:
    """Knows how long it took to score what was scored since its numbers were asked for: a step."""

    def __init__(self, *, has_memory: bool) -> None:
        self._has_memory = has_memory
        self._seconds = self._seconds_before = 0.0

    @property
    def scores_early(self) -> bool:
        """Whether a step's rewards took long, and have no memory of the order of calls."""
        return self._seconds_before > EARLY_SECONDS and not self._has_memory

    def score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]:
        """One score per row, in order."""
        began = time.monotonic()
        scores = self._score(rows, prompt_indices, should_stop)
        self._seconds += time.monotonic() - began  # what failed is no measure of how long it takes
        return scores

    def numbers(self) -> dict[str, float]:
        """What it tells of itself since it was last asked."""
        self._seconds, self._seconds_before = 0.0, self._seconds
        return self._numbers()

    @abstractmethod
    def _score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]: ...

    @abstractmethod
    def _numbers(self) -> dict[str, float]: ...


class JudgeHere(_Timed):
    """The reward in this process."""

    def __init__(self, reward: Reward) -> None:
        super().__init__(has_memory=hasattr(reward, "state_dict"))
        self.scorer = Scorer(reward)

    def state(self) -> Any:
        """What it keeps."""
        return checkpoint.reward_state(self.scorer.fn)

    def load_state(self, state: Any) -> None:
        """Give it back."""
        checkpoint.load_reward_state(self.scorer.fn, state)

    def close(self) -> None:
        """End its thread."""
        self.scorer.close()

    def _score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]:
        return self.scorer.score(rows, should_stop=should_stop, prompt_indices=prompt_indices)

    def _numbers(self) -> dict[str, float]:
        return self.scorer.numbers()


class JudgeThere(_Timed):
    """The reward in the workers of its role; several of them share the rows."""

    def __init__(self, team: "Team") -> None:
        super().__init__(has_memory=hasattr(team.plan.reward, "state_dict"))
        self.team = team

    def state(self) -> Any:
        """What it keeps."""
        return checkpoint.plain_state(self.team.reward_state())

    def load_state(self, state: Any) -> None:
        """Give it back. Of workers that have ended the next ones get it."""
        if state is not None and not self.team.is_broken:
            self.team.load_reward_state(state)

    def close(self) -> None:
        """Its workers end with the team."""

    def _score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]:
        return self.team.score(rows, prompt_indices, should_stop)

    def _numbers(self) -> dict[str, float]:
        return self.team.reward_numbers()
