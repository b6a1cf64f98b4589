"""What a task is: prompts in an order that a seed fixes, held-out prompts beside them, and a scorer."""

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from workbench.errors import ConfigError
from workbench.tasks.messages import PromptText, given
from workbench.tasks.prompts import Prompts

FINGERPRINTED = 64  # prompts

Scorer = Callable[[Any, str, Any], float | Awaitable[float]]
"""``(prompt, completion, answer) -> reward``, sync or async. The prompt is as the data set has it: a text, or a list of message
dicts. The completion comes without its end-of-text token."""

Demonstrations = Callable[[int, int], list[tuple[str, str]]]
"""``(seed, count) -> [(prompt, completion), ...]``: what a model made on the spot imitates before it is trained by reward."""


@dataclass(frozen=True)
class Example:
    """One prompt, the answer as its scorer wants it, and its position in the order it was asked for in.

    ``text``: plain text, or a ``Conversation``, which goes through the model's chat template.
    """

    text: PromptText
    answer: Any
    index: int

    @property
    def given(self) -> str | list[dict[str, str]]:
        """The prompt as scorers and rewards get it: the data set's text, without any template, or its list of message dicts."""
        return given(self.text)


@dataclass(frozen=True)
class Origin:
    """The call that made a task, as plain JSON, so that ``rebuild`` can make it again in another process."""

    call: str  # "sorting", "reasoning_gym", "from_file" or "from_dataset"
    arguments: dict[str, Any]  # JSON values alone


@dataclass(frozen=True, repr=False)
class Task:
    """Prompts and what their answers are worth. Made by ``sorting``, ``reasoning_gym``, ``from_list``, ``from_file`` or
    ``from_dataset``, or by hand.

    ``held_out_temperature``: at which held-out prompts are answered. 0 (greedy) is what a deployed model does; 1 measures
    the very policy that is trained, which is the honest number where greedy decoding flatters (see ``sorting``).
    ``origin``: how to make it again; None where it holds something that no file can say, such as a function.
    """

    name: str
    scorer: Scorer
    prompts: Prompts
    demonstrations: Demonstrations | None = None
    held_out_temperature: float = 0.0
    origin: Origin | None = None

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

    def __repr__(self) -> str:
        named = getattr(self.scorer, "__name__", type(self.scorer).__name__)
        return f"Task({self.name!r}, {self.prompts}, scored by {named})"

    def train(self, seed: int, start: int, count: int) -> list[Example]:
        """Training prompts ``start .. start + count - 1`` of the order that ``seed`` fixes.

        Each is a function of (seed, position) alone: a resumed run sees what the uninterrupted one would have seen.
        """
        return [Example(*self.prompts.train(seed, position), position) for position in range(start, start + count)]

    def held_out(self, count: int) -> list[Example]:
        """The first ``count`` prompts that are never trained on, the same in every run; all of them where a list has fewer."""
        return [Example(text, answer, index) for index, (text, answer) in enumerate(self.prompts.held_out(count))]

    def fingerprint(self, seed: int) -> str:
        """A hash of the first 64 training prompts and answers in ``seed``'s order: two tasks that differ in it are not the same."""
        seen = [[str(example.text), _stable(example.answer)] for example in self.train(seed, 0, FINGERPRINTED)]
        return hashlib.sha256(json.dumps(seen).encode()).hexdigest()


def _stable(answer: Any) -> str:
    """An answer as text that is the same in every process."""
    if isinstance(answer, set | frozenset):
        return f"{{{', '.join(sorted(map(str, answer)))}}}"  # its order is the process's
    return re.sub(r" at 0x[0-9a-f]+", "", str(answer))  # where an object lies in memory
