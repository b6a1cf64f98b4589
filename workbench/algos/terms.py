"""The terms that policy losses are made of: pure functions of tensors, no model, no configuration.

Legend: T = response tokens of one packed micro-batch (flat, no padding). Terms give one value per token, so any other shape
such as (B, L) does as well. N = completions of one optimizer step. Log-probabilities are natural, at the sampling temperature.
Half-precision inputs are computed in float32.
"""

from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from workbench.errors import ConfigError

KlEstimator = Literal["k1", "k2", "k3"]
Reduction = Literal["token", "sequence", "constant"]
KL_ESTIMATORS: tuple[str, ...] = get_args(KlEstimator)
REDUCTIONS: tuple[str, ...] = get_args(Reduction)

MAX_LOG_RATIO = 20.0  # exp of more is no probability ratio but a fault; the ratio stays finite and such a token has no gradient


class Surrogate(NamedTuple):
    """A token's policy loss, and whether its gradient was clipped away."""

    loss: Tensor  # (T,)
    clipped: Tensor  # (T,) bool


class Importance(NamedTuple):
    """Weights that correct for sampling from the engine, not from the trainer. Detached."""

    weight: Tensor  # (T,) after truncation
    ratio: Tensor  # (T,) before
    truncated: Tensor  # (T,) bool


def clipped_surrogate(logp: Tensor, old_logp: Tensor, advantage: Tensor, clip_low: float, clip_high: float) -> Surrogate:
    """PPO's clipped objective as a loss per token (T,), and the mask of clipped tokens (T,).

    loss = -min(r·A, clip(r, 1 - clip_low, 1 + clip_high)·A) with r = exp(logp - old_logp): PPO (arXiv 1707.06347), equation 7.
    A ``clip_high`` above ``clip_low`` is the clip-higher of DAPO (arXiv 2503.14476). A token is clipped, and has no gradient,
    where A > 0 and r > 1 + clip_high, or A < 0 and r < 1 - clip_low. At r = 1 the gradient is that of -A·logp.
    """
    advantage = wide(advantage)
    ratio = _ratio(wide(logp) - wide(old_logp).detach())
    bounded = ratio.clamp(1 - clip_low, 1 + clip_high)
    clipped = ((advantage > 0) & (ratio > 1 + clip_high)) | ((advantage < 0) & (ratio < 1 - clip_low))
    return Surrogate(-torch.minimum(ratio * advantage, bounded * advantage), clipped.detach())


def reinforce_surrogate(logp: Tensor, advantage: Tensor) -> Surrogate:
    """REINFORCE (Williams, 1992) as a loss per token (T,): -A·logp. There is no ratio, so nothing is clipped."""
    loss = -wide(advantage) * wide(logp)
    return Surrogate(loss, torch.zeros_like(loss, dtype=torch.bool))


def sequence_mean(values: Tensor, sequence: Tensor, counted: Tensor) -> Tensor:
    """The mean of each completion's ``values`` over its counted tokens, given back to each of its tokens: (T,), float64.

    ``sequence`` says which completion a token belongs to, by any integers. Tokens that are not ``counted`` get that mean,
    too, but have no part in it. The sums are float64: they don't depend on the order in which a GPU adds. Never waits for
    the device.
    """
    ordered, place = sequence.flatten().sort()
    rank = torch.cat([ordered.new_zeros(min(1, len(ordered))), ordered.diff().ne(0).cumsum(0)])
    row = torch.empty_like(rank).scatter(0, place, rank)  # 0, 1, ... without gaps; its size needs no look at the values
    parts = torch.where(counted, values.double(), 0.0).flatten()
    total = torch.zeros_like(parts).index_add(0, row, parts)
    count = torch.zeros_like(parts).index_add(0, row, counted.flatten().double())
    return (total / count.clamp(min=1))[row].view_as(values)


def kl_estimate(logp: Tensor, ref_logp: Tensor, kind: KlEstimator) -> Tensor:
    """KL(policy || reference) estimated at each sampled token: (T,), nats. (J. Schulman, "Approximating KL Divergence", 2020.)

    With d = ref_logp - logp, for tokens sampled from the policy:
    ``k1`` = -d: unbiased, high variance, may be negative. As a loss its gradient has expectation zero: it only adds noise.
    ``k2`` = d²/2: biased, low variance. As a loss its expected gradient is exactly that of KL(policy || reference).
    ``k3`` = exp(d) - 1 - d: unbiased, never negative; GRPO's choice (arXiv 2402.03300, equation 4). As a loss its expected
    gradient is that of KL(reference || policy), which agrees with the former near the reference.
    """
    check_choice("kl_estimator", kind, KL_ESTIMATORS)
    d = wide(ref_logp).detach() - wide(logp)
    if kind == "k1":
        return -d
    if kind == "k2":
        return d.square() / 2
    d = d.clamp(max=MAX_LOG_RATIO)
    return torch.expm1(d) - d


def importance_weight(trainer_logp: Tensor, engine_logp: Tensor, cap: float | None) -> Importance:
    """Truncated importance weights for the difference between engine and trainer: min(exp(trainer - engine), cap), detached.

    Engine and trainer compute the same policy with different kernels, so tokens come from a slightly different
    distribution than the one that is trained (TIS: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You
    Off-Policy RL Training"). ``cap`` None switches the correction off: weights of 1, the ratio is still measured.
    """
    ratio = _ratio(wide(trainer_logp).detach() - wide(engine_logp).detach())
    if cap is None:
        return Importance(torch.ones_like(ratio), ratio, torch.zeros_like(ratio, dtype=torch.bool))
    return Importance(ratio.clamp(max=cap), ratio, ratio > cap)


def token_weights(lengths_N: Tensor, reduction: Reduction, *, constant: int | None = None) -> Tensor:
    """The weight of each token of each completion, (N,) float32: the step's loss is the sum over all tokens of weight·loss.

    ``token``: mean over all response tokens of the step (DAPO, arXiv 2503.14476).
    ``sequence``: mean over the completions that have tokens, of each one's mean over its tokens (GRPO, arXiv 2402.03300).
    ``constant``: sum over tokens / (N·``constant``); no bias by length, and the divisor does not depend on what was sampled
    (Dr. GRPO, arXiv 2503.20783).

    ``lengths_N`` are the response lengths of *one optimizer step*, over all its micro-batches and ranks; then micro-batches
    of any split add up to the same loss and gradient. A completion left out of the loss has length 0 and weight 0. One whose
    loss is 0 anyway may be dropped after its length was counted here.
    """
    check_choice("reduction", reduction, REDUCTIONS)
    lengths = lengths_N.double()
    if reduction == "token":
        divisor = lengths.sum().expand_as(lengths)
    elif reduction == "sequence":
        divisor = lengths * (lengths > 0).sum()
    elif constant is None or constant < 1:
        raise ConfigError(f"reduction='constant' with constant={constant}", "it divides by a length in tokens", "give the run's max_tokens")
    else:
        divisor = torch.full_like(lengths, lengths.numel() * constant)
    return torch.where(lengths > 0, 1 / divisor.clamp(min=1), 0.0).float()


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ConfigError unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ConfigError(f"{name}={value!r}", f"known are {', '.join(choices)}", "use one of these")


def wide(x: Tensor) -> Tensor:
    """bfloat16 and float16 as float32: a difference of log-probabilities has no digits left in half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _ratio(log_ratio: Tensor) -> Tensor:
    return log_ratio.clamp(max=MAX_LOG_RATIO).exp()
