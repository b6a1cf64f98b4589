"""The prompts of a run as the engine wants them: tokenized ahead of use by a thread, in an order that the seed fixes."""

import time
from pathlib import Path

from workbench.batch import Prompt
from workbench.errors import ConfigError
from workbench.models.tokenizer import Tokenizer
from workbench.plan import RunPlan
from workbench.tasks import Example, Prefetch


class Supply:
    """Training prompts by position, and any example as a prompt. ``window``: tokens of prompt and completion that the engine holds.

    The thread has a tokenizer of its own: those of transformers are not made for two threads at once.
    """

    def __init__(self, plan: RunPlan, model: Path, window: int) -> None:
        self.plan, self.window = plan, window
        self.longest = 0  # tokens of the longest prompt so far
        self.waited_seconds = 0.0  # in the last ``take``
        self._tokenizer, self._ahead_tokenizer = Tokenizer(model), Tokenizer(model)
        self._ahead: Prefetch[Prompt] | None = None

    def take(self, position: int, count: int, max_tokens: int) -> list[Prompt]:
        """The training prompts ``position .. position + count - 1``. Raises ConfigError on one that leaves no room for an answer."""
        began = time.monotonic()
        if not self.plan.prefetch:
            prompts = [self._fetch(place) for place in range(position, position + count)]
            self.waited_seconds = time.monotonic() - began
        else:
            if self._ahead is None or self._ahead.position != position:  # a step was dropped, or a run goes on from a checkpoint
                self.close()
                self._ahead = Prefetch(self._fetch, position=position, ahead=self.plan.prefetch * self.plan.sampling.prompts)
            prompts = self._ahead.take(count)
            self.waited_seconds = self._ahead.waited_seconds
        for prompt in prompts:
            self._check(prompt, max_tokens)
        return prompts

    def prompt(self, example: Example, max_tokens: int) -> Prompt:
        """One example outside the order, for an evaluation or a talk."""
        prompt = _tokenized(example, self._tokenizer)
        self._check(prompt, max_tokens)
        return prompt

    def close(self) -> None:
        """End the thread. Harmless when there is none."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _fetch(self, position: int) -> Prompt:
        return _tokenized(self.plan.task.train(self.plan.seed, position, 1)[0], self._ahead_tokenizer)

    def _check(self, prompt: Prompt, max_tokens: int) -> None:
        tokens = len(prompt.ids)
        if tokens + max_tokens > self.window:
            name = f"prompt {prompt.index}" if prompt.index >= 0 else "prompt"
            raise ConfigError(
                f"{name} ({prompt.question[:60]!r}): {tokens} tokens, and up to {max_tokens} more",
                f"the engine's window holds {self.window}",
                f"VLLM(window={tokens + max_tokens}) or more, fewer max_tokens, or a shorter prompt",
            )
        self.longest = max(self.longest, tokens)


def _tokenized(example: Example, tokenizer: Tokenizer) -> Prompt:
    text, ids = tokenizer.encode_prompt(example.text)
    return Prompt(text, ids, example.answer, example.index, example.given)
