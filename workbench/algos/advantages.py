"""From rewards to advantages: pure functions of tensors.

Legend: B = prompts (one group each), G = completions per prompt (group size), T = response tokens of a step's whole batch.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.algos.checks import check_same_shape

ROUNDING_ULPS = 4  # rewards of a group closer than this many units in the last place are the same reward


@dataclass(frozen=True)
class StepTokens:
    """What advantages per token are made from: one value per response token of a step's *whole* batch, never of a part.

    The tokens of a completion lie together, in their order; completions without a token are not seen.
    """

    advantage: Tensor  # (T,) the completion's, from Algorithm.advantages, spread over its tokens
    sequence: Tensor  # (T,) int64, which completion, in the order of rewards_BG.flatten(): that of group sequence // G
    kl: Tensor | None = None  # (T,) nats, engine_logp - ref_logp of the sampled token (k1); None where no reference is needed
    values: Tensor | None = None  # (T,) the critic's value of the state before the token; None where there is no critic

    def __post_init__(self) -> None:
        check_same_shape(self)


def informative_groups(rewards_BG: Tensor) -> Tensor:
    """Which groups have a variance, and so a gradient: bool (B,).

    Rewards that differ by rounding alone (0.1 + 0.2 and 0.3) count as equal. A reward that is not finite makes its group
    count, so that it shows in the advantages and is not taken for a group without variance.
    """
    rewards = _float(rewards_BG)
    spread = rewards.amax(dim=1) - rewards.amin(dim=1)
    rounding = ROUNDING_ULPS * torch.finfo(rewards.dtype).eps * rewards.abs().amax(dim=1)
    return ~((spread <= rounding) & spread.isfinite())


def group_advantages(rewards_BG: Tensor, *, normalize_std: bool, eps: float = 1e-6) -> Tensor:
    """Each completion's reward against its group: (B, G), float32 (float64 for float64 rewards).

    With ``normalize_std``: A = (r - mean(r)) / (std(r) + eps), outcome supervision of GRPO (DeepSeekMath, arXiv 2402.03300,
    section 4.1.2); the standard deviation is the sample's (divisor G - 1), as in TRL and verl. Without: A = r - mean(r),
    Dr. GRPO (arXiv 2503.20783), which does not weigh prompts by how hard they are.

    A group without variance gives exactly 0 in every place, whatever the rounding of its mean.
    """
    rewards = _float(rewards_BG)
    wide = rewards.double()  # a mean in bfloat16 has three digits
    advantages = wide - wide.mean(dim=1, keepdim=True)
    if normalize_std and rewards.shape[1] > 1:
        variance = advantages.square().sum(dim=1, keepdim=True) / (rewards.shape[1] - 1)
        advantages = advantages / (variance.sqrt() + eps)
    return torch.where(informative_groups(rewards)[:, None], advantages, 0.0).to(torch.promote_types(rewards.dtype, torch.float32))


def leave_one_out(rewards_BG: Tensor) -> Tensor:
    """Each reward minus the mean of its group's *others*: (B, G), dtype as ``group_advantages``. RLOO (arXiv 2402.14740).

    That is G / (G - 1) times the reward minus the mean of all, so a group without variance gives exactly 0. A group of one
    has no others: 0.
    """
    others = max(1, rewards_BG.shape[1] - 1)
    return group_advantages(rewards_BG, normalize_std=False) * (rewards_BG.shape[1] / others)


def batch_normalized(values_T: Tensor) -> Tensor:
    """``values_T`` with mean 0 and (sample) deviation 1 over all tokens: (T,), dtype as ``group_advantages``.

    Global advantage normalization of REINFORCE++ (arXiv 2501.03262). Equal values, or one alone, give exactly 0.
    """
    return group_advantages(values_T[None], normalize_std=True)[0] if values_T.numel() else values_T


def sums_to_end(values_T: Tensor, sequence_T: Tensor, *, decay: float = 1.0) -> Tensor:
    """At each token the sum of ``values_T`` from there to the end of its completion, itself included: (T,), float64.

    What comes l tokens later counts ``decay`` to the power of l. A completion's tokens lie together, in their order.
    """
    sums, reach, longest = values_T.double().clone(), 1, _longest(sequence_T)
    while reach < longest:  # sums over the next ``reach`` tokens; two of them, one behind the other, are one of twice the reach
        follows = sequence_T[reach:] == sequence_T[:-reach]
        later = torch.where(follows, decay**reach * sums[reach:], 0.0)
        sums = torch.cat([sums[:-reach] + later, sums[-reach:]])
        reach *= 2
    return sums


def last_tokens(sequence_T: Tensor) -> Tensor:
    """Which tokens end their completion: bool (T,)."""
    last = torch.ones_like(sequence_T, dtype=torch.bool)
    last[:-1] = sequence_T[1:] != sequence_T[:-1]
    return last


def _longest(sequence_T: Tensor) -> int:
    """The length of the longest completion, tokens; 0 of none."""
    lengths: list[int] = torch.unique_consecutive(sequence_T, return_counts=True)[1].tolist()
    return max(lengths, default=0)


def _float(rewards: Tensor) -> Tensor:
    """Integers and booleans as float32; float dtypes stay."""
    return rewards if rewards.is_floating_point() else rewards.float()
