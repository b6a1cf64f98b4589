"""From terms to one number to differentiate, with statistics that micro-batches add up exactly.

Legend: T = response tokens of one packed micro-batch (flat, no padding), or any other shape such as (B, L).
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from workbench.algos.checks import check_same_shape, given_reference
from workbench.algos.sums import counted_max, counted_sum, joined
from workbench.algos.terms import Importance, KlEstimator, Surrogate, clipped_surrogate, importance_weight, kl_estimate


@dataclass(frozen=True)
class TokenTerms:
    """What an algorithm's loss is made from: one value per response token, all of one shape.

    A token of weight 0 (padding, a completion left out) changes no loss and no statistic; its other values may be any finite numbers.
    """

    logp: Tensor  # (T,) of the policy being trained, with gradient, at the sampling temperature
    old_logp: Tensor  # (T,) the trainer's, at the start of the step; on policy: logp.detach()
    engine_logp: Tensor  # (T,) the engine's, when it sampled the token
    advantage: Tensor  # (T,) the completion's, spread over its tokens
    weight: Tensor  # (T,) from Algorithm.weights, spread over its tokens
    ref_logp: Tensor | None = None  # (T,) of the reference, where there is one
    sequence: Tensor | None = None  # (T,) int64, which completion of the micro-batch, from 0: for ratios per sequence (GSPO)

    def __post_init__(self) -> None:
        check_same_shape(self)

    def __getattr__(self, name: str) -> Tensor:
        raise AttributeError(f"the tokens have no {name!r}; they have {', '.join(f.name for f in fields(self))}")


@dataclass(frozen=True)
class LossStats:
    """Sums and maxima over the tokens of a micro-batch that count (weight not 0): detached float64 scalars, left on their device."""

    loss: Tensor  # this micro-batch's share of the step's loss
    tokens: Tensor  # how many count
    clipped: Tensor  # how many had their gradient clipped away
    kl: Tensor  # sum of the estimate against the reference, nats
    entropy: Tensor  # sum of -old_logp, nats
    importance: Tensor  # sum of trainer over engine, before truncation
    importance_max: Tensor
    truncated: Tensor  # how many weights were cut at the cap
    logprob_diff: Tensor  # sum of |old_logp - engine_logp|
    logprob_diff_max: Tensor

    @classmethod
    def merge(cls, parts: Sequence["LossStats"]) -> "LossStats":
        """The statistics of several micro-batches together; zeros of none.

        Over several optimizer steps the losses add up too: divide ``loss`` by their number for the mean.
        """
        return cls(**{f.name: joined(f.name, [getattr(part, f.name) for part in parts]) for f in fields(cls)})

    def summary(self) -> "LossSummary":
        """As plain numbers, means per token. One copy from the device; the only place that waits for it."""
        loss, tokens, *sums = torch.stack([getattr(self, f.name) for f in fields(self)]).tolist()
        clipped, kl, entropy, importance, importance_max, truncated, diff, diff_max = sums
        count = max(tokens, 1)
        return LossSummary(
            loss=loss,
            tokens=int(tokens),
            clip_fraction=clipped / count,
            kl=kl / count,
            entropy=entropy / count,
            importance_mean=importance / count,
            importance_max=importance_max,
            importance_truncated_fraction=truncated / count,
            logprob_diff_mean=diff / count,
            logprob_diff_max=diff_max,
        )


@dataclass(frozen=True)
class LossSummary:
    """``LossStats`` as plain numbers; the names are those of ``records.Step``. All 0 where no token counted."""

    loss: float
    tokens: int
    clip_fraction: float
    kl: float  # nats per token
    entropy: float  # nats per token
    importance_mean: float
    importance_max: float
    importance_truncated_fraction: float
    logprob_diff_mean: float
    logprob_diff_max: float


@dataclass(frozen=True)
class Loss:
    """What an algorithm makes of a micro-batch."""

    total: Tensor  # scalar to call backward() on; the totals of a step's micro-batches add up to its loss
    stats: LossStats


def policy_loss(
    tokens: TokenTerms, *, clip: tuple[float, float], kl: float, kl_estimator: KlEstimator, importance_cap: float | None
) -> Loss:
    """The loss that GRPO and its kin share: ``surrogate_loss`` of PPO's clipped surrogate, a ratio per token."""
    surrogate = clipped_surrogate(tokens.logp, tokens.old_logp, tokens.advantage, *clip)
    return surrogate_loss(tokens, surrogate, kl=kl, kl_estimator=kl_estimator, importance_cap=importance_cap)


def surrogate_loss(tokens: TokenTerms, surrogate: Surrogate, *, kl: float, kl_estimator: KlEstimator, importance_cap: float | None) -> Loss:
    """Sum over tokens of weight·(importance·surrogate + kl·estimate).

    The correction for the engine weighs the surrogate alone, not the KL term, as in TRL and verl. With ``kl`` 0 a
    reference that is given is only measured.
    """
    importance = importance_weight(tokens.old_logp, tokens.engine_logp, importance_cap)
    per_token = importance.weight * surrogate.loss
    divergence = None if tokens.ref_logp is None else kl_estimate(tokens.logp, tokens.ref_logp, kl_estimator)
    if kl > 0:
        per_token = per_token + kl * given_reference(kl, divergence, "TokenTerms.ref_logp")
    return reduce_loss(tokens, per_token, clipped=surrogate.clipped, kl=divergence, importance=importance)


def reduce_loss(
    tokens: TokenTerms, per_token: Tensor, *, clipped: Tensor | None = None, kl: Tensor | None = None, importance: Importance | None = None
) -> Loss:
    """Sum over tokens of weight·``per_token`` (T,), with the statistics of this micro-batch.

    ``clipped`` (T,) bool, ``kl`` (T,) and ``importance`` are for the statistics alone; without them those are 0 (the
    engine's ratio is measured in any case).
    """
    importance = importance or importance_weight(tokens.old_logp, tokens.engine_logp, None)
    counted = tokens.weight != 0
    total = (tokens.weight.to(per_token.dtype) * per_token).sum()
    old_logp = tokens.old_logp.detach().double()
    difference = (old_logp - tokens.engine_logp.detach().double()).abs()
    zero = torch.zeros((), dtype=torch.float64, device=total.device)
    stats = LossStats(
        loss=total.detach().double(),
        tokens=counted.sum(dtype=torch.float64),
        clipped=zero if clipped is None else counted_sum(clipped, counted),
        kl=zero if kl is None else counted_sum(kl, counted),
        entropy=-counted_sum(old_logp, counted),
        importance=counted_sum(importance.ratio, counted),
        importance_max=counted_max(importance.ratio, counted),
        truncated=counted_sum(importance.truncated, counted),
        logprob_diff=counted_sum(difference, counted),
        logprob_diff_max=counted_max(difference, counted),
    )
    return Loss(total, stats)
