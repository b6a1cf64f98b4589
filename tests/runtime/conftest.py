"""Helpers over the shared worker: train it a little, and put its adapter back afterwards."""

from collections.abc import Callable, Iterator

import pytest
import torch

from workbench.algos import GRPO
from workbench.batch import Batch, Prompt
from workbench.rollout.config import Sampling
from workbench.runtime.worker import Draw, Signal, Worker

SAMPLING = Sampling(prompts=4, temperature=0.8, max_tokens=12)
Step = Callable[..., Batch]


@pytest.fixture
def fresh(worker: Worker) -> Iterator[Worker]:
    """The worker, in sync; whatever a test does to adapter or slot is undone."""
    kept = {name: tensor.clone() for name, tensor in worker.actor.adapter().items()}
    yield worker
    with torch.no_grad():
        for name, tensor in worker.actor.adapter().items():
            tensor.copy_(kept[name])
    worker._checksum = ""
    worker.sync(0)


def sample(worker: Worker, key: int = 0, prompt: str = "sort 4213=", sampling: Sampling = SAMPLING, seeded: bool | None = None) -> Batch:
    """A batch of 4 prompts x 4 completions with rewards by length, and advantages."""
    prompts = tuple(Prompt(f"{prompt}{i}", worker.tokenizer.encode(f"{prompt}{i}"), None, i, f"{prompt}{i}") for i in range(4))
    draw = Draw(("test", key), sampling.temperature, sampling.max_tokens, seeded)
    completions = worker.rollout([p.ids for p in prompts], 4, draw, lambda: False)
    rewards = tuple(float(c.text.count("a")) - len(c.ids) / 100 + row / 1000 for row, c in enumerate(completions))
    advantages = GRPO(group_size=4).advantages(torch.tensor(rewards).view(4, 4)).flatten().tolist()
    return Batch(prompts, tuple(completions), rewards, tuple(advantages))


def learn(worker: Worker, batch: Batch, sampling: Sampling = SAMPLING) -> None:
    """One update, without a sync."""
    worker.update(batch, signal(batch), GRPO(group_size=4), 0.02, sampling, lambda: False)


def signal(batch: Batch) -> Signal:
    """The batch's advantages, spread over their tokens."""
    return Signal([torch.full((len(c.ids),), a) for c, a in zip(batch.completions, batch.advantages, strict=True)])
