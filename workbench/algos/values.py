"""What a critic is asked and taught: advantages from its values, its loss, and statistics that micro-batches add up exactly.

Legend: T = response tokens, of a step's whole batch for ``gae``, else of one packed micro-batch (flat, no padding); any other
shape such as (B, L) does as well for the loss.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor

from workbench.algos.advantages import last_tokens, sums_to_end
from workbench.algos.checks import check_same_shape
from workbench.algos.sums import counted_sum, joined
from workbench.algos.terms import wide

ROUNDING = 1e-12  # of the mean square: a variance below is rounding (of float32 targets, too), and the targets are all the same


class TokenError(NamedTuple):
    """A token's value loss, and whether its gradient was clipped away."""

    loss: Tensor  # (T,)
    clipped: Tensor  # (T,) bool


def gae(rewards_T: Tensor, values_T: Tensor, sequence_T: Tensor, *, discount: float, lam: float) -> Tensor:
    """Generalized advantage estimation: (T,), float64. (arXiv 1506.02438, equation 16.)

    A_t = sum over l of (discount·lam)^l · δ_(t+l) to the end of the completion, with δ_t = r_t + discount·V_(t+1) - V_t. ``values_T``
    are of the state *before* each token; after the last one of a completion there is nothing to come, so its value is 0. ``lam`` 1
    is the discounted return minus the value, 0 is δ alone. A completion's tokens lie together, in their order.
    """
    rewards, values = rewards_T.double(), values_T.double()
    following = torch.where(last_tokens(sequence_T), 0.0, values.roll(-1))
    return sums_to_end(rewards + discount * following - values, sequence_T, decay=discount * lam)


@dataclass(frozen=True)
class ValueTerms:
    """What a critic's loss is made from: one value per response token, all of one shape.

    A token of weight 0 (padding) changes no loss and no statistic; its other values may be any finite numbers.
    """

    value: Tensor  # (T,) float32, of the critic being trained, with gradient
    old_value: Tensor  # (T,) the critic's at the start of the step, from which the advantages were made
    target: Tensor  # (T,) from Algorithm.value_targets
    weight: Tensor  # (T,) from Algorithm.weights, spread over the completion's tokens

    def __post_init__(self) -> None:
        check_same_shape(self)


def clipped_value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float | None) -> TokenError:
    """Half the squared error of each token's value (T,), and the mask of clipped tokens (T,).

    loss = max((v - R)², (clip(v, v_old - clip, v_old + clip) - R)²) / 2, v_old and R without gradient: the value clipping of PPO2
    (OpenAI baselines; "What Matters In On-Policy Reinforcement Learning?", arXiv 2006.05990, appendix B.2). A token is clipped,
    and has no gradient, where v has already moved by more than ``clip`` towards R. ``clip`` None: the plain squared error.
    """
    value, old_value, target = wide(value), wide(old_value).detach(), wide(target).detach()
    error = (value - target).square()
    if clip is None:
        return TokenError(error / 2, torch.zeros_like(error, dtype=torch.bool))
    held = (value.clamp(old_value - clip, old_value + clip) - target).square()
    return TokenError(torch.maximum(error, held) / 2, (held > error).detach())


@dataclass(frozen=True)
class ValueStats:
    """Sums over the tokens of a micro-batch that count (weight not 0): detached float64 scalars, left on their device."""

    loss: Tensor  # this micro-batch's share of the step's loss
    tokens: Tensor  # how many count
    clipped: Tensor  # how many had their gradient clipped away
    error: Tensor  # sum of (value - target)², before clipping
    value: Tensor  # sum of values
    target: Tensor  # sum of targets
    target_squared: Tensor  # sum of target²
    missed: Tensor  # sum of target - old_value
    missed_squared: Tensor  # sum of (target - old_value)²

    @classmethod
    def merge(cls, parts: Sequence["ValueStats"]) -> "ValueStats":
        """The statistics of several micro-batches together; zeros of none.

        Over several optimizer steps the losses add up too: divide ``loss`` by their number for the mean.
        """
        return cls(**{f.name: joined(f.name, [getattr(part, f.name) for part in parts]) for f in fields(cls)})

    def summary(self) -> "ValueSummary":
        """As plain numbers, means per token. One copy from the device; the only place that waits for it."""
        loss, tokens, *sums = torch.stack([getattr(self, f.name) for f in fields(self)]).tolist()
        clipped, error, value, target, target_squared, missed, missed_squared = (each / max(tokens, 1) for each in sums)
        return ValueSummary(
            loss=loss,
            tokens=int(tokens),
            clip_fraction=clipped,
            error=error,
            value_mean=value,
            target_mean=target,
            explained_variance=_explained(target_squared - target**2, missed_squared - missed**2, ROUNDING * target_squared),
        )


@dataclass(frozen=True)
class ValueSummary:
    """``ValueStats`` as plain numbers. All 0 where no token counted."""

    loss: float
    tokens: int
    clip_fraction: float
    error: float  # mean of (value - target)²
    value_mean: float
    target_mean: float
    explained_variance: float  # 1 - Var(target - old_value) / Var(target); 0: no better than a constant, or targets all the same


@dataclass(frozen=True)
class ValueLoss:
    """What an algorithm makes of a critic's micro-batch."""

    total: Tensor  # scalar to call backward() on; the totals of a step's micro-batches add up to its loss
    stats: ValueStats


def reduce_value_loss(tokens: ValueTerms, per_token: Tensor, clipped: Tensor | None = None) -> ValueLoss:
    """Sum over tokens of weight·``per_token`` (T,), with the statistics of this micro-batch. ``clipped`` (T,) bool is for those alone."""
    counted = tokens.weight != 0
    total = (tokens.weight.to(per_token.dtype) * per_token).sum()
    value, target = tokens.value.detach().double(), tokens.target.detach().double()
    missed = target - tokens.old_value.detach().double()
    stats = ValueStats(
        loss=total.detach().double(),
        tokens=counted.sum(dtype=torch.float64),
        clipped=counted_sum(torch.zeros_like(counted) if clipped is None else clipped, counted),
        error=counted_sum((value - target).square(), counted),
        value=counted_sum(value, counted),
        target=counted_sum(target, counted),
        target_squared=counted_sum(target.square(), counted),
        missed=counted_sum(missed, counted),
        missed_squared=counted_sum(missed.square(), counted),
    )
    return ValueLoss(total, stats)


def _explained(variance: float, left: float, rounding: float) -> float:
    """The share of ``variance`` that is not ``left``; 0 where the variance is ``rounding``."""
    return 1 - max(left, 0.0) / variance if variance > rounding else 0.0
