"""One step of RL post-training, in the order of the papers. The only hook is ``with phase("rollout"):``.

Departures from GRPO as published: one optimizer step per rollout unless the algorithm says otherwise; the surrogate is
corrected for the difference between engine and trainer; a step without any advantage is recorded and skipped. The numbers of
a step's record are over everything that was sampled, also where an algorithm learns from a part of it. Where engines and trainer
have devices of their own, the next step is sampled while this one is learnt from (ahead.py): one version off policy, corrected by
the same truncated importance weight, and recorded as ``staleness``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from workbench.algos import (
    StepTokens,
    checked_advantages,
    checked_shaped,
    checked_token_advantages,
    checked_value_targets,
    informative_groups,
    kl_estimate,
)
from workbench.batch import Batch, Prompt
from workbench.beside import both
from workbench.early import EarlyScores
from workbench.models.actor import Update
from workbench.models.critic import ValueUpdate
from workbench.roles import Role
from workbench.runtime.plans import Draw, Estimate, Signal, Stop
from workbench.stages import Crew, Outcome, Phases, Sampled

Drawing = Callable[[int, int], Sequence[Prompt]]

MONITORED = 64  # completions a step whose KL to the base is measured where the loss has no use for it


def sample(number: int, draw: Drawing, crew: Crew, phase: Phases) -> Sampled:
    """Completions and their rewards, in as many rounds as the algorithm wants and there are too few groups with a variance.

    ``draw(n, max_tokens)`` gives the next n prompts. Raises Stopped, RewardError, DivergedError.
    """
    algo, sampling, version = crew.algo, crew.sampling, crew.team.version
    batch, early = Batch((), ()), 0
    for number_of_round in range(algo.sampling_rounds):
        with phase("rollout"):
            prompts = draw(sampling.prompts, sampling.max_tokens)
            key = ("step", number, *([number_of_round] if number_of_round else []))
            drawn = Draw(key, sampling.temperature, sampling.max_tokens, sampling.seeded)
            more, ahead = _drawn(tuple(prompts), drawn, crew, phase)
        with phase("reward"):
            known = ahead.end() if ahead else {}
            batch, early = batch.joined(replace(more, rewards=tuple(score(more, crew, known)))), early + len(known)
        if len(_choose(batch, crew)[1]) == sampling.prompts:
            break
    return Sampled(batch, number_of_round + 1, early, crew.judge.numbers(), crew, version)


def _drawn(prompts: tuple[Prompt, ...], drawn: Draw, crew: Crew, phase: Phases) -> tuple[Batch, EarlyScores | None]:
    """Completions of ``prompts``; and who has begun to score them, where that takes long."""
    size, stop, ids = crew.algo.group_size, crew.should_stop, [p.ids for p in prompts]
    if not crew.judge.scores_early:
        return Batch(prompts, tuple(crew.team.rollout(ids, size, drawn, stop))), None
    early = EarlyScores(crew.judge, prompts, size, lambda: phase("reward", beside=True), stop)
    try:
        return Batch(prompts, tuple(crew.team.rollout(ids, size, drawn, stop, early.told))), early
    except BaseException:
        early.end(drop=True)
        raise


def learn(number: int, sampled: Sampled, rate: float, phase: Phases, engines_at_rest: Callable[[], None]) -> Outcome:
    """Score against the reference, ask the critic, let both learn, sync. Raises Stopped, SyncError, DivergedError.

    ``engines_at_rest()`` returns once no engine samples any more: a sync waits for it. With several minibatches an error or a stop
    may leave some of a step's updates made; ``team.in_sync`` tells.
    """
    crew, batch = sampled.crew, sampled.batch
    team, algo = crew.team, crew.algo
    staleness = team.version - sampled.version
    informative, chosen = _choose(batch, crew)
    part = batch.groups(chosen)
    (ref_logp, kl), values = both(
        lambda stop: _reference(batch, part, crew, phase, stop),
        lambda stop: _values(part, crew, phase, stop),
        crew.should_stop,
        at_once=team.are_apart(Role.REFERENCE, Role.CRITIC),
    )
    with phase("advantages"):
        tokens = _tokens(part, ref_logp, values, crew) if chosen else None
        advantages = [] if tokens is None else _by_row(checked_token_advantages(algo, tokens), part)
        learnt = None if tokens is None or values is None else Estimate(values, _by_row(checked_value_targets(algo, tokens).float(), part))
        batch = _shown(batch, chosen, advantages)
    signal = Signal(advantages, ref_logp, sampled.version)
    critic, update = both(
        lambda stop: None if learnt is None else _update_critic(part, learnt, crew, phase, stop),
        lambda stop: _update_actor(part, signal, rate, crew, phase, stop),
        crew.should_stop,
        at_once=team.are_apart(Role.ACTOR, Role.CRITIC),
    )
    if update is None:
        return Outcome(sampled, batch, informative, kl, None, None, staleness, critic)
    engines_at_rest()
    with phase("sync"):
        sync = team.sync(number, crew.should_stop)
    return Outcome(sampled, batch, informative, kl, update, sync, staleness, critic)


def _reference(batch: Batch, part: Batch, crew: Crew, phase: Phases, stop: Stop) -> tuple[list[torch.Tensor] | None, float]:
    """The reference's log-probabilities of ``part``, where the algorithm needs them, and the KL of what was sampled, nats per token."""
    with phase("reference"):
        wanted = crew.algo.needs_reference and bool(part.prompts)
        ref_logp = crew.team.reference(part, crew.sampling.temperature, stop) if wanted else None
        return ref_logp, _kl(part if ref_logp else batch, ref_logp, crew, stop)


def _values(part: Batch, crew: Crew, phase: Phases, stop: Stop) -> list[torch.Tensor] | None:
    """The critic's, where there is one."""
    if not crew.algo.needs_critic or not part.prompts:
        return None
    with phase("values"):
        return crew.team.values(part, stop)


def _update_critic(part: Batch, learnt: Estimate, crew: Crew, phase: Phases, stop: Stop) -> ValueUpdate:
    with phase("update_critic"):
        return crew.team.update_critic(part, learnt, crew.algo, crew.critic_rate, crew.sampling, stop)


def _update_actor(part: Batch, signal: Signal, rate: float, crew: Crew, phase: Phases, stop: Stop) -> Update | None:
    """None where there is nothing to learn, or the critic learns alone."""
    nothing = crew.algo.skips_zero_advantage and not any(bool(row.any()) for row in signal.advantages)
    if crew.actor_waits or nothing or not part.prompts:
        return None
    with phase("update_actor"):
        return crew.team.update(part, signal, crew.algo, rate, crew.sampling, stop)


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


def score(batch: Batch, crew: Crew, known: Mapping[int, float] | None = None) -> list[float]:
    """The reward of every completion of ``batch``, in order. ``known``: of some rows. While a reward service is down it is waited for."""
    known = dict(known or {})
    left = [row for row in range(len(batch.completions)) if row not in known]
    asked = [batch.prompt_of(row) for row in left]
    rows = [(prompt.given, batch.completions[row].text, prompt.answer) for prompt, row in zip(asked, left, strict=True)]
    indices = [prompt.index for prompt in asked]
    if rows:
        known |= zip(left, crew.patiently(lambda: crew.judge.score(rows, indices, crew.should_stop)), strict=True)
    return [known[row] for row in range(len(batch.completions))]


def _kl(batch: Batch, ref_logp: Sequence[torch.Tensor] | None, crew: Crew, stop: Stop) -> float:
    """Nats per token between the policy that sampled and the base, on ``MONITORED`` completions where no loss needs the reference.

    By k1: on the policy's own samples it is unbiased. (k3 is, too, but one token that the base finds likely and the policy
    found unlikely outweighs all others.)
    """
    count = len(batch.completions)
    rows = range(count) if ref_logp else range(0, count, -(-count // MONITORED))
    part = Batch(tuple(batch.prompt_of(r) for r in rows), tuple(batch.completions[r] for r in rows))
    ref = ref_logp or crew.team.reference(part, crew.sampling.temperature, stop)
    policy = torch.tensor([x for completion in part.completions for x in completion.logp])
    return float(kl_estimate(policy, torch.cat(list(ref)).cpu(), "k1").mean())
