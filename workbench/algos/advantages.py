"""From rewards to advantages: pure functions of tensors.

Legend: B = prompts (one group each), G = completions per prompt (group size).
"""

import torch
from torch import Tensor

ROUNDING_ULPS = 4  # rewards of a group closer than this many units in the last place are the same reward


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


def _float(rewards: Tensor) -> Tensor:
    """Integers and booleans as float32; float dtypes stay."""
    return rewards if rewards.is_floating_point() else rewards.float()
