"""One step of RL post-training, in the order of the papers. The only hook is ``with phase("rollout"):``.

Departures from GRPO as published: one optimizer step per rollout unless the algorithm says otherwise; the surrogate is
corrected for the difference between engine and trainer; a step without any advantage is recorded and skipped. The numbers of
a step's record are over everything that was sampled, also where an algorithm learns from a part of it. Where engines and trainer
have devices of their own, the next step is sampled while this one is learnt from (ahead.py): one version off policy, corrected by
the same truncated importance weight, and recorded as ``staleness``.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

import torch

from workbench.algos import (
    Algorithm,
    LossStats,
    StepTokens,
    checked_advantages,
    checked_shaped,
    checked_token_advantages,
    checked_value_targets,
    informative_groups,
    kl_estimate,
)
from workbench.batch import Batch, Prompt, repetition
from workbench.judge import Judge
from workbench.models.actor import Update
from workbench.models.critic import ValueUpdate
from workbench.records import Step, Sync, mean
from workbench.rollout.config import Sampling
from workbench.runtime.plans import Draw, Estimate, Signal
from workbench.runtime.team import Team

Drawing = Callable[[int, int], Sequence[Prompt]]
Phases = Callable[[str], AbstractContextManager[None]]

MONITORED = 64  # completions a step whose KL to the base is measured where the loss has no use for it


@dataclass(frozen=True)
class Crew:
    """Who takes part in a step, and under which rules."""

    team: Team
    judge: Judge
    algo: Algorithm
    sampling: Sampling
    should_stop: Callable[[], bool]
    critic_rate: float = 0.0  # the critic's learning rate
    actor_waits: bool = False  # only the critic learns


@dataclass(frozen=True)
class Sampled:
    """A step's experience, before anything is learnt from it."""

    batch: Batch  # with rewards
    rounds: int  # of sampling
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


def sample(number: int, draw: Drawing, crew: Crew, phase: Phases) -> Sampled:
    """Completions and their rewards, in as many rounds as the algorithm wants and there are too few groups with a variance.

    ``draw(n, max_tokens)`` gives the next n prompts. Raises Stopped, RewardError, DivergedError.
    """
    algo, sampling, version = crew.algo, crew.sampling, crew.team.version
    batch = Batch((), ())
    for number_of_round in range(algo.sampling_rounds):
        with phase("rollout"):
            prompts = draw(sampling.prompts, sampling.max_tokens)
            key = ("step", number, *([number_of_round] if number_of_round else []))
            drawn = Draw(key, sampling.temperature, sampling.max_tokens, sampling.seeded)
            completions = crew.team.rollout([p.ids for p in prompts], algo.group_size, drawn, crew.should_stop)
            more = Batch(tuple(prompts), tuple(completions))
        with phase("reward"):
            batch = batch.joined(replace(more, rewards=tuple(score(more, crew))))
        if len(_choose(batch, crew)[1]) == sampling.prompts:
            break
    return Sampled(batch, number_of_round + 1, crew, version)


def learn(number: int, sampled: Sampled, rate: float, phase: Phases, engines_at_rest: Callable[[], None]) -> Outcome:
    """Score against the reference, ask the critic, let both learn, sync. Raises Stopped, SyncError, DivergedError.

    ``engines_at_rest()`` returns once no engine samples any more: a sync waits for it. With several minibatches an error or a stop
    may leave some of a step's updates made; ``team.in_sync`` tells.
    """
    crew, batch = sampled.crew, sampled.batch
    team, algo, sampling, stop = crew.team, crew.algo, crew.sampling, crew.should_stop
    staleness = team.version - sampled.version
    informative, chosen = _choose(batch, crew)
    part = batch.groups(chosen)
    with phase("reference"):
        ref_logp = team.reference(part, sampling.temperature, stop) if algo.needs_reference and chosen else None
        kl = _kl(part if ref_logp else batch, ref_logp, crew)
    values, critic = None, None
    if algo.needs_critic and chosen:
        with phase("values"):
            values = team.values(part, stop)
    with phase("advantages"):
        tokens = _tokens(part, ref_logp, values, crew) if chosen else None
        advantages = [] if tokens is None else _by_row(checked_token_advantages(algo, tokens), part)
        batch = _shown(batch, chosen, advantages)
    if tokens is not None and values is not None:
        learnt = Estimate(values, _by_row(checked_value_targets(algo, tokens).float(), part))
        with phase("update_critic"):
            critic = team.update_critic(part, learnt, algo, crew.critic_rate, sampling, stop)
    if crew.actor_waits or (algo.skips_zero_advantage and not any(bool(row.any()) for row in advantages)):
        return Outcome(sampled, batch, informative, kl, None, None, staleness, critic)
    with phase("update_actor"):
        update = team.update(part, Signal(advantages, ref_logp, sampled.version), algo, rate, sampling, stop)
    engines_at_rest()
    with phase("sync"):
        sync = team.sync(number, stop)
    return Outcome(sampled, batch, informative, kl, update, sync, staleness, critic)


def _choose(batch: Batch, crew: Crew) -> tuple[int, list[int]]:
    """How many groups have a variance, and which groups the step learns from: all, or with dynamic sampling the first of those."""
    wide = informative_groups(_rewards(batch))
    if crew.algo.sampling_rounds == 1:
        return int(wide.sum()), list(range(len(wide)))
    return int(wide.sum()), wide.nonzero().flatten().tolist()[: crew.sampling.prompts]


def _tokens(batch: Batch, ref_logp: Sequence[torch.Tensor] | None, values: Sequence[torch.Tensor] | None, crew: Crew) -> StepTokens:
    """What advantages per token are made from."""
    algo, rewards_BG = crew.algo, _rewards(batch)
    lengths_N = torch.tensor([len(c.ids) for c in batch.completions])
    kl_T = kl_BG = None
    if ref_logp is not None:
        engine_T = torch.tensor([x for c in batch.completions for x in c.logp])
        kl_T = kl_estimate(engine_T, torch.cat(list(ref_logp)).cpu(), "k1")
        kl_BG = torch.stack([part.sum() for part in kl_T.split(lengths_N.tolist())]).view(rewards_BG.shape)
    shaped_BG = checked_shaped(algo, rewards_BG, lengths_N.view(rewards_BG.shape), kl_BG, crew.sampling.max_tokens)
    advantage_N = checked_advantages(algo, shaped_BG).flatten()
    sequence_T = torch.arange(len(lengths_N)).repeat_interleave(lengths_N)
    return StepTokens(advantage_N[sequence_T], sequence_T, kl_T, None if values is None else torch.cat(list(values)))


def _by_row(values_T: torch.Tensor, batch: Batch) -> list[torch.Tensor]:
    """One (length,) tensor a completion."""
    return list(values_T.split([len(c.ids) for c in batch.completions]))


def _shown(batch: Batch, chosen: Sequence[int], advantages: Sequence[torch.Tensor]) -> Batch:
    """``batch`` with the mean advantage of every completion; 0 of those that were left out."""
    size = batch.group_size
    means = [float(row.mean()) if len(row) else 0.0 for row in advantages]
    by_group = {group: means[place * size : (place + 1) * size] for place, group in enumerate(chosen)}
    return replace(batch, advantages=tuple(a for group in range(len(batch.prompts)) for a in by_group.get(group, [0.0] * size)))


def _rewards(batch: Batch) -> torch.Tensor:
    """(B, G), float64."""
    return torch.tensor(batch.rewards, dtype=torch.float64).view(len(batch.prompts), batch.group_size)


def score(batch: Batch, crew: Crew) -> list[float]:
    """The reward of every completion of ``batch``, in order."""
    asked = [batch.prompt_of(row) for row in range(len(batch.completions))]
    rows = [(prompt.given, completion.text, prompt.answer) for prompt, completion in zip(asked, batch.completions, strict=True)]
    return crew.judge.score(rows, [prompt.index for prompt in asked], crew.should_stop)


def _kl(batch: Batch, ref_logp: Sequence[torch.Tensor] | None, crew: Crew) -> float:
    """Nats per token between the policy that sampled and the base, on ``MONITORED`` completions where no loss needs the reference.

    By k1: on the policy's own samples it is unbiased. (k3 is, too, but one token that the base finds likely and the policy
    found unlikely outweighs all others.)
    """
    count = len(batch.completions)
    rows = range(count) if ref_logp else range(0, count, -(-count // MONITORED))
    part = Batch(tuple(batch.prompt_of(r) for r in rows), tuple(batch.completions[r] for r in rows))
    ref = ref_logp or crew.team.reference(part, crew.sampling.temperature, crew.should_stop)
    policy = torch.tensor([x for completion in part.completions for x in completion.logp])
    return float(kl_estimate(policy, torch.cat(list(ref)).cpu(), "k1").mean())
