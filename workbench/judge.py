"""Who scores completions: a function in this process, or the workers of the reward role. The same for the loop."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from workbench import checkpoint
from workbench.rewards import Reward, Scorer

if TYPE_CHECKING:
    from workbench.runtime.team import Team

Row = tuple[Any, str, Any]  # prompt, completion, answer


class Judge(Protocol):
    """Scores, and what a reward with a memory keeps of it."""

    def score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]:
        """One score per row, in order. Raises RewardError, Stopped."""
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


class JudgeHere:
    """The reward in this process."""

    def __init__(self, reward: Reward) -> None:
        self.scorer = Scorer(reward)

    def score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]:
        """One score per row, in order."""
        return self.scorer.score(rows, should_stop=should_stop, prompt_indices=prompt_indices)

    def state(self) -> Any:
        """What it keeps."""
        return checkpoint.reward_state(self.scorer.fn)

    def load_state(self, state: Any) -> None:
        """Give it back."""
        checkpoint.load_reward_state(self.scorer.fn, state)

    def close(self) -> None:
        """End its thread."""
        self.scorer.close()


class JudgeThere:
    """The reward in the workers of its role."""

    def __init__(self, team: "Team") -> None:
        self.team = team

    def score(self, rows: Sequence[Row], prompt_indices: Sequence[int], should_stop: Callable[[], bool]) -> list[float]:
        """One score per row, in order; several workers share the rows."""
        return self.team.score(rows, prompt_indices, should_stop)

    def state(self) -> Any:
        """What it keeps."""
        return checkpoint.plain_state(self.team.reward_state())

    def load_state(self, state: Any) -> None:
        """Give it back. Of workers that have ended the next ones get it."""
        if state is not None and not self.team.is_broken:
            self.team.load_reward_state(state)

    def close(self) -> None:
        """Its workers end with the team."""
