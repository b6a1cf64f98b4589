"""What passes from stage to stage of a step: who works under which rules, what was sampled, what came of it."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from workbench.algos import Algorithm, LossStats
from workbench.batch import Batch, repetition
from workbench.judge import Judge
from workbench.models.actor import Update
from workbench.models.critic import ValueUpdate
from workbench.records import Step, Sync, mean
from workbench.rollout.config import Sampling
from workbench.runtime.team import Team


class Phases(Protocol):
    """``with phase("rollout"):`` times a phase of the step; ``beside``: hidden by others, so that it costs the step nothing."""

    def __call__(self, name: str, *, beside: bool = False) -> AbstractContextManager[None]:
        """Time what is within."""
        ...


Patience = Callable[[Callable[[], list[float]]], list[float]]


@dataclass(frozen=True)
class Crew:
    """Who takes part in a step, and under which rules."""

    team: Team
    judge: Judge
    algo: Algorithm
    sampling: Sampling
    should_stop: Callable[[], bool]
    patiently: Patience  # waits while a reward service is down
    critic_rate: float = 0.0  # the critic's learning rate
    actor_waits: bool = False  # only the critic learns


@dataclass(frozen=True)
class Sampled:
    """A step's experience, before anything is learnt from it."""

    batch: Batch  # with rewards
    rounds: int  # of sampling
    early: int  # completions that were scored while others were still generated
    reward_numbers: dict[str, float]  # what the reward tells of itself
    crew: Crew  # under whose rules: knobs may have been turned since
    version: int  # of the adapter that sampled
    ahead_seconds: float = 0.0  # that sampling and scoring took beside the step before; 0: nothing was done ahead


@dataclass(frozen=True)
class Outcome:
    """What a step left behind. ``update`` and ``sync`` are None where there was nothing to learn."""

    sampled: Sampled
    batch: Batch  # everything that was sampled, with advantages
    informative: int  # groups with a variance
    kl: float  # nats per token against the base, estimated by k1
    update: Update | None
    sync: Sync | None

    staleness: int  # versions between the adapter that sampled and the one that learnt
    critic: ValueUpdate | None = None  # None where there is no critic

    def record(self, number: int, rate: float, seconds: float, phase_seconds: dict[str, float]) -> Step:
        """The step as one line of the event stream."""
        batch, summary = self.batch, self.update.summary if self.update else LossStats.merge([]).summary()
        lengths = [len(c.ids) for c in batch.completions]
        rewards = torch.tensor(batch.rewards, dtype=torch.float64)
        return Step(
            step=number,
            reward_mean=float(rewards.mean()),
            reward_std=float(rewards.std(correction=0)),
            completion_tokens_mean=mean(lengths),
            completion_tokens_max=max(lengths),
            truncated_fraction=mean([c.finish == "length" for c in batch.completions]),
            groups=len(batch.prompts),
            groups_without_variance=len(batch.prompts) - self.informative if batch.group_size > 1 else 0,
            skipped=self.update is None and self.critic is None,
            loss=summary.loss,
            kl=self.kl,
            entropy=-mean([x for c in batch.completions for x in c.logp]),
            grad_norm=self.update.grad_norm if self.update else 0.0,
            clip_fraction=summary.clip_fraction,
            importance_mean=summary.importance_mean,
            importance_max=summary.importance_max,
            importance_truncated_fraction=summary.importance_truncated_fraction,
            logprob_diff_max=summary.logprob_diff_max,
            logprob_diff_mean=summary.logprob_diff_mean,
            learning_rate=rate,
            adapter_version=self.sampled.version,
            tokens_prompt=sum(len(p.ids) for p in batch.prompts) * batch.group_size,
            tokens_completion=sum(lengths),
            tokens_trained=self.update.tokens if self.update else 0,
            rounds=self.sampled.rounds,
            staleness=self.staleness,
            ahead_seconds=self.sampled.ahead_seconds,
            seconds=seconds,
            phase_seconds=dict(phase_seconds),
            scored_early=self.sampled.early,
            reward_numbers=self.sampled.reward_numbers,
            repetition=mean([repetition(c.ids) for c in batch.completions]),
            kl_weight=getattr(self.sampled.crew.algo, "kl", None),
            **self._of_critic(),
        )

    def _of_critic(self) -> dict[str, Any]:
        if self.critic is None:
            return {}
        summary = self.critic.summary
        return {
            "value_loss": summary.loss,
            "value_clip_fraction": summary.clip_fraction,
            "explained_variance": summary.explained_variance,
            "critic_grad_norm": self.critic.grad_norm,
        }
