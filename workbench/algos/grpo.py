"""GRPO: group relative policy optimization (DeepSeekMath, arXiv 2402.03300).

    A_i = (r_i - mean(r)) / std(r)                                  over the G completions of one prompt
    loss = mean_i mean_t [ -min(ρ·A_i, clip(ρ)·A_i) + kl·k3 ]       ρ = policy / old policy, per token   (equation 3)

Departures: the surrogate is also weighted for the difference between engine and trainer (``importance_cap``), and ``kl`` is
0 by default, as in TRL. A group whose rewards are all equal has no gradient.
"""

from dataclasses import dataclass

from torch import Tensor

from workbench.algos.advantages import group_advantages
from workbench.algos.group_policy import ELSEWHERE, GroupPolicy
from workbench.algos.terms import REDUCTIONS, Reduction, check_choice, token_weights
from workbench.errors import spelled


@spelled(**ELSEWHERE)
@dataclass(frozen=True, kw_only=True)
class GRPO(GroupPolicy):
    """Group relative policy optimization: group_size, clip, kl, kl_estimator, importance_cap, minibatches, and below."""

    normalize_std: bool = True  # divide advantages by the group's standard deviation
    reduction: Reduction = "sequence"  # "token": mean over all response tokens; "constant": sum / (N·max_tokens)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice("reduction", self.reduction, REDUCTIONS)

    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """(B, G): each reward against its group."""
        return group_advantages(rewards_BG, normalize_std=self.normalize_std)

    def weights(self, lengths_N: Tensor, max_tokens: int) -> Tensor:
        """(N,): the weight of each completion's tokens, by ``reduction``."""
        return token_weights(lengths_N, self.reduction, constant=max_tokens)
