"""Helpers over the shared team: train it a little, and put its adapter back afterwards."""

from collections.abc import Callable, Iterator

import pytest
import torch

from workbench.algos import GRPO
from workbench.batch import Batch, Prompt
from workbench.models.tokenizer import Tokenizer
from workbench.rollout.config import Sampling
from workbench.runtime.plans import Draw, Signal, never
from workbench.runtime.team import Team
from workbench.runtime.worker import Worker

SAMPLING = Sampling(prompts=4, temperature=0.8, max_tokens=12)
Step = Callable[..., Batch]


@pytest.fixture
def fresh(team: Team) -> Iterator[Team]:
    """The team, in sync; whatever a test does to adapter or slot is undone."""
    adapter = worker_of(team).actor.adapter()
    kept = {name: tensor.clone() for name, tensor in adapter.items()}
    yield team
    with torch.no_grad():
        for name, tensor in adapter.items():
            tensor.copy_(kept[name])
    team.sync(0)


def worker_of(team: Team) -> Worker:
    """The one worker of a team in this process."""
    return team.runtime.worker


def prompts_of(team: Team, prompt: str = "sort 4213=") -> tuple[Prompt, ...]:
    """4 prompts that differ in their last character."""
    tokenizer = Tokenizer(team.plan.model)
    return tuple(Prompt(f"{prompt}{i}", tokenizer.encode(f"{prompt}{i}"), None, i, f"{prompt}{i}") for i in range(4))


def sample(team: Team, key: int = 0, prompt: str = "sort 4213=", sampling: Sampling = SAMPLING, seeded: bool | None = None) -> Batch:
    """A batch of 4 prompts x 4 completions with rewards by length, and advantages."""
    prompts = prompts_of(team, prompt)
    draw = Draw(("test", key), sampling.temperature, sampling.max_tokens, seeded)
    completions = team.rollout([p.ids for p in prompts], 4, draw, never)
    rewards = tuple(float(c.text.count("a")) - len(c.ids) / 100 + row / 1000 for row, c in enumerate(completions))
    advantages = GRPO(group_size=4).advantages(torch.tensor(rewards).view(4, 4)).flatten().tolist()
    return Batch(prompts, tuple(completions), rewards, tuple(advantages))


def learn(team: Team, batch: Batch, sampling: Sampling = SAMPLING, version: int | None = None, rate: float = 0.02) -> None:
    """One update, without a sync. ``version``: of the adapter that sampled, where that is not the newest."""
    team.update(batch, signal(batch, version), GRPO(group_size=4), rate, sampling, never)


def signal(batch: Batch, version: int | None = None) -> Signal:
    """The batch's advantages, spread over their tokens."""
    advantages = [torch.full((len(c.ids),), a) for c, a in zip(batch.completions, batch.advantages, strict=True)]
    return Signal(advantages, version=version)
