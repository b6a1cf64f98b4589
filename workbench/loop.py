"""One step of RL post-training, in the order of the papers. The only hook is ``with phase("rollout"):``.

Departures from GRPO as published: one optimizer step per rollout unless the algorithm says otherwise; the surrogate is
corrected for the difference between engine and trainer; a step without any advantage is recorded and skipped.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import torch

from workbench.algos import Algorithm, LossStats, checked_advantages, informative_groups, kl_estimate
from workbench.models.actor import Update
from workbench.records import Batch, Prompt, Step, Sync, mean
from workbench.rewards import Scorer
from workbench.rollout.config import Sampling
from workbench.runtime.worker import Draw, Worker

MONITORED = 64  # completions a step whose KL to the base is measured where the loss has no use for it


@dataclass(frozen=True)
class Crew:
    """Who takes part in a step, and under which rules."""

    worker: Worker
    scorer: Scorer
    algo: Algorithm
    sampling: Sampling
    should_stop: Callable[[], bool]


@dataclass(frozen=True)
class Outcome:
    """What a step left behind. ``update`` and ``sync`` are None where there was nothing to learn."""

    batch: Batch
    informative: int  # groups with a variance
    kl: float  # nats per token against the base, estimated by k1
    update: Update | None
    sync: Sync | None

    def record(self, number: int, rate: float, version: int, seconds: float, phase_seconds: dict[str, float]) -> Step:
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
            groups_without_variance=len(batch.prompts) - self.informative,
            skipped=self.update is None,
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
            adapter_version=version,
            tokens_prompt=sum(len(p.ids) for p in batch.prompts) * batch.group_size,
            tokens_completion=sum(lengths),
            tokens_trained=self.update.tokens if self.update else 0,
            seconds=seconds,
            phase_seconds=dict(phase_seconds),
        )


def train_step(
    number: int, prompts: Sequence[Prompt], crew: Crew, rate: float, phase: Callable[[str], AbstractContextManager[None]]
) -> Outcome:
    """Sample, score, learn, sync. Raises Stopped, RewardError, SyncError, DivergedError.

    With several minibatches an error or a stop may leave some of a step's updates made; ``worker.in_sync`` tells.
    """
    worker, algo, sampling, stop = crew.worker, crew.algo, crew.sampling, crew.should_stop
    size = algo.group_size
    with phase("rollout"):
        draw = Draw(("step", number), sampling.temperature, sampling.max_tokens, sampling.seeded)
        batch = Batch(tuple(prompts), tuple(worker.rollout([p.ids for p in prompts], size, draw, stop)))
    with phase("reward"):
        rewards = score(batch, crew)
        rewards_BG = torch.tensor(rewards, dtype=torch.float64).view(-1, size)
        informative = int(informative_groups(rewards_BG).sum())
    with phase("reference"):
        ref_logp = worker.reference(batch, sampling.temperature, stop) if algo.needs_reference else None
        kl = _kl(batch, ref_logp, crew)
    with phase("advantages"):
        advantages_BG = checked_advantages(algo, rewards_BG)
        batch = replace(batch, rewards=tuple(rewards), advantages=tuple(advantages_BG.flatten().tolist()))
    if algo.skips_zero_advantage and not bool(advantages_BG.any()):
        return Outcome(batch, informative, kl, None, None)
    with phase("update_actor"):
        update = worker.update(batch, ref_logp, algo, rate, sampling, stop)
    with phase("sync"):
        sync = worker.sync(number)
    return Outcome(batch, informative, kl, update, sync)


def score(batch: Batch, crew: Crew) -> list[float]:
    """The reward of every completion of ``batch``, in order."""
    asked = [batch.prompt_of(row) for row in range(len(batch.completions))]
    rows = [(prompt.text, completion.text, prompt.answer) for prompt, completion in zip(asked, batch.completions, strict=True)]
    return crew.scorer.score(rows, should_stop=crew.should_stop, prompt_indices=[prompt.index for prompt in asked])


def _kl(batch: Batch, ref_logp: list[torch.Tensor] | None, crew: Crew) -> float:
    """Nats per token between the policy that sampled and the base, on ``MONITORED`` completions where no loss needs the reference.

    By k1: on the policy's own samples it is unbiased. (k3 is, too, but one token that the base finds likely and the policy
    found unlikely outweighs all others.)
    """
    count = len(batch.completions)
    rows = range(count) if ref_logp else range(0, count, -(-count // MONITORED))
    part = Batch(tuple(batch.prompt_of(r) for r in rows), tuple(batch.completions[r] for r in rows))
    ref = ref_logp or crew.worker.reference(part, crew.sampling.temperature, crew.should_stop)
    policy = torch.tensor([x for completion in part.completions for x in completion.logp])
    return float(kl_estimate(policy, torch.cat(ref).cpu(), "k1").mean())
