"""Dr. GRPO: GRPO done right ("Understanding R1-Zero-Like Training", arXiv 2503.20783).

    A_i = r_i - mean(r)                                             over the G completions of one prompt
    loss = 1/(N·L) sum_i sum_t [ -min(ρ·A_i, clip(ρ)·A_i) ]         ρ = policy / old policy, per token; L a constant length

Two biases of GRPO go: dividing by std(r) favours prompts that are nearly always or nearly never solved; dividing by a
completion's own length favours short right answers and long wrong ones.
"""

from dataclasses import dataclass

from torch import Tensor

from workbench.algos.advantages import group_advantages
from workbench.algos.checks import check_count
from workbench.algos.group_policy import ELSEWHERE, GroupPolicy
from workbench.algos.terms import token_weights
from workbench.errors import spelled


@spelled(**ELSEWHERE)
@dataclass(frozen=True, kw_only=True)
class DrGRPO(GroupPolicy):
    """GRPO without its biases by difficulty and by length: group_size, clip, kl, kl_estimator, importance_cap, minibatches, and below."""

    length: int | None = None  # the constant L in tokens; None: the run's max_tokens

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.length is not None:
            check_count("length", self.length, why="it is a length in tokens; None takes the run's max_tokens")

    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """(B, G): each reward minus its group's mean."""
        return group_advantages(rewards_BG, normalize_std=False)

    def weights(self, lengths_N: Tensor, max_tokens: int) -> Tensor:
        """(N,): 1 / (N·L) for every token."""
        return token_weights(lengths_N, "constant", constant=self.length or max_tokens)
