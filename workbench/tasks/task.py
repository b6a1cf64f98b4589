"""What a task is: prompts in an order that a seed fixes, held-out prompts beside them, and a scorer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from workbench.errors import ConfigError
from workbench.tasks.prompts import Prompts

Scorer = Callable[[str, str, Any], float | Awaitable[float]]
"""``(prompt, completion, answer) -> reward``, sync or async. The completion comes without its end-of-text token."""

Demonstrations = Callable[[int, int], list[tuple[str, str]]]
"""``(seed, count) -> [(prompt, completion), ...]``: what a model made on the spot imitates before it is trained by reward."""


@dataclass(frozen=True)
class Example:
    """One prompt as plain text, the answer as its scorer wants it, and its position in the order it was asked for in."""

    text: str
    answer: Any
    index: int


@dataclass(frozen=True)
class Task:
    """Prompts and what their answers are worth. Made by ``sorting``, ``reasoning_gym`` or ``from_list``, or by hand.

    ``held_out_temperature``: at which held-out prompts are answered. 0 (greedy) is what a deployed model does; 1 measures
    the very policy that is trained, which is the honest number where greedy decoding flatters (see ``sorting``).
    """

    name: str
    scorer: Scorer
    prompts: Prompts
    demonstrations: Demonstrations | None = None
    held_out_temperature: float = 0.0

    def __post_init__(self) -> None:
        if not callable(self.scorer):
            found = "it has no scorer" if self.scorer is None else f"its scorer is {self.scorer!r}, which can't be called"
            raise ConfigError(f"task {self.name!r}", found, "give scorer=function(prompt, completion, answer) -> float")
        if self.held_out_temperature < 0:
            raise ConfigError(
                f"task {self.name!r}, held_out_temperature={self.held_out_temperature}",
                "a temperature is 0 (greedy) or above",
                "write 0 or 1",
            )

    def train(self, seed: int, start: int, count: int) -> list[Example]:
        """Training prompts ``start .. start + count - 1`` of the order that ``seed`` fixes.

        Each is a function of (seed, position) alone: a resumed run sees what the uninterrupted one would have seen.
        """
        return [Example(*self.prompts.train(seed, position), position) for position in range(start, start + count)]

    def held_out(self, count: int) -> list[Example]:
        """The first ``count`` prompts that are never trained on, the same in every run; all of them where a list has fewer."""
        return [Example(text, answer, index) for index, (text, answer) in enumerate(self.prompts.held_out(count))]
