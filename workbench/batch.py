"""What flows in a step, as frozen dataclasses: prompts, completions, and the batch of both. Log-probabilities are natural, per token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NGRAM = 4  # tokens; about three words. Shorter runs of tokens come back in any text


@dataclass(frozen=True)
class Prompt:
    """One question and the answer that the scorer knows."""

    text: str  # as the model sees it, a chat template's marks included
    ids: tuple[int, ...]
    answer: Any
    index: int  # position in the task, names the prompt in errors
    given: Any  # as the task has it, for rewards and for people: a text, or a list of message dicts

    @property
    def question(self) -> str:
        """What was asked, in short: the text, or what the last message says."""
        return self.given if isinstance(self.given, str) else str(self.given[-1]["content"])


@dataclass(frozen=True)
class Completion:
    """What the engine sampled for one prompt."""

    ids: tuple[int, ...]  # response tokens, the end-of-text token included when it was sampled
    logp: tuple[float, ...]  # engine's log-probability of each, at the sampling temperature
    text: str
    finish: str  # "stop" or "length"


@dataclass(frozen=True)
class Batch:
    """One step's experience. Rows are grouped: completions ``g*G .. (g+1)*G - 1`` answer ``prompts[g]``."""

    prompts: tuple[Prompt, ...]
    completions: tuple[Completion, ...]
    rewards: tuple[float, ...] = ()
    advantages: tuple[float, ...] = ()  # one per completion; per-token algorithms spread it over the response

    @property
    def group_size(self) -> int:
        """Completions per prompt; 0 of nothing."""
        return len(self.completions) // max(1, len(self.prompts))

    def prompt_of(self, row: int) -> Prompt:
        """The prompt that completion ``row`` answers."""
        return self.prompts[row // self.group_size]

    def groups(self, chosen: Sequence[int]) -> "Batch":
        """The prompts at the positions ``chosen``, with their completions and rewards."""
        rows = [row for group in chosen for row in range(group * self.group_size, (group + 1) * self.group_size)]
        rewards = tuple(self.rewards[row] for row in rows)
        return Batch(tuple(self.prompts[group] for group in chosen), tuple(self.completions[row] for row in rows), rewards)

    def joined(self, more: "Batch") -> "Batch":
        """This batch and ``more`` of the same group size, without advantages."""
        return Batch(self.prompts + more.prompts, self.completions + more.completions, self.rewards + more.rewards)


def repetition(ids: Sequence[int]) -> float:
    """The share of a completion's 4-grams of token ids that it had before: 0 where all differ, or where it has none; near 1 in a loop."""
    grams = [tuple(ids[start : start + NGRAM]) for start in range(len(ids) - NGRAM + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
