"""Where a task's prompts come from: drawn endlessly by a generator, or read from a list.

The split is by a hash of the prompt's text, so that a prompt is on one side in every run, whatever order it comes in.
"""

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from workbench.errors import ConfigError
from workbench.tasks.messages import Chat, PromptText

HELD_OUT_SHARE = 0.2
DRAWS = 1000  # in a row on the wrong side of the split, before a generator counts as one that has no other prompts

Pair = tuple[PromptText, Any]


class Prompts(Protocol):
    """What a task asks of its prompts: pairs of a prompt (a text or a conversation) and its answer."""

    def train(self, seed: int, position: int) -> Pair:
        """The training prompt at ``position`` of the order that ``seed`` fixes: a pure function of both."""

    def held_out(self, count: int) -> list[Pair]:
        """``count`` prompts that ``train`` never gives, or all there are where those are fewer."""


def is_held_out(text: str, share: float = HELD_OUT_SHARE) -> bool:
    """Whether a prompt is kept from training: true for ``share`` of all texts, by their SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") < share * 2**64


@dataclass(frozen=True)
class Drawn:
    """Prompts drawn from a generator: ``draw(rng)`` gives (text, answer) and uses no other chance than ``rng``.

    Held-out prompts are independent draws too, so they are spread as the training prompts are, and a small space may give
    one twice.
    """

    name: str
    draw: Callable[[random.Random], tuple[str, Any]]

    def __str__(self) -> str:
        return "prompts drawn as they are wanted"

    def train(self, seed: int, position: int) -> Pair:
        return self._draw(f"train {seed} {position}", held_out=False)

    def held_out(self, count: int) -> list[Pair]:
        return [self._draw(f"held out {position}", held_out=True) for position in range(count)]

    def _draw(self, key: str, held_out: bool) -> tuple[str, Any]:
        rng = random.Random(key)
        for _ in range(DRAWS):
            text, answer = self.draw(rng)
            if is_held_out(text) == held_out:
                return text, answer
        side, other = ("held out", "training") if held_out else ("training", "held out")
        raise ConfigError(
            f"a {side} prompt of task {self.name!r}",
            f"{DRAWS} draws in a row, such as {text[:60]!r}, fell on the other side of the split ({other})",
            "let the task draw from more different prompts",
        )


@dataclass(frozen=True)
class Listed:
    """Prompts from a list, already split. Training goes through all of them, epoch after epoch, each in an order of its own."""

    training: tuple[Pair, ...]
    kept: tuple[Pair, ...]

    def __str__(self) -> str:
        return f"{len(self.training)} prompts to train on and {len(self.kept)} held out"

    def train(self, seed: int, position: int) -> Pair:
        epoch, place = divmod(position, len(self.training))
        return self.training[_order(len(self.training), seed, epoch)[place]]

    def held_out(self, count: int) -> list[Pair]:
        return list(self.kept[:count])


@dataclass(frozen=True)
class Put:
    """Prompts put to the model as ``chat`` says; their order and their split are those of ``prompts``."""

    prompts: Prompts
    chat: Chat

    def __str__(self) -> str:
        return f"{self.prompts}{', through the chat template' if self.chat.on else ''}"

    def train(self, seed: int, position: int) -> Pair:
        prompt, answer = self.prompts.train(seed, position)
        return self.chat(prompt), answer

    def held_out(self, count: int) -> list[Pair]:
        return [(self.chat(prompt), answer) for prompt, answer in self.prompts.held_out(count)]


@lru_cache(maxsize=4)
def _order(items: int, seed: int, epoch: int) -> tuple[int, ...]:
    """The permutation of ``range(items)`` of one epoch."""
    order = list(range(items))
    random.Random(f"epoch {seed} {epoch}").shuffle(order)
    return tuple(order)
