"""REINFORCE++: PPO without a critic (arXiv 2501.03262, version 9).

    A_t = r - kl·sum from t to the end of log(π / π_ref)            the KL is a reward of each token, k1
    A_t <- (A_t - mean(A)) / std(A)                                 over all tokens of the whole batch
    loss = mean over all tokens [ -min(ρ·A_t, clip(ρ)·A_t) ]        ρ = policy / old policy, per token

The batch is large, so its mean and deviation hardly depend on one completion; those of a group do, which biases GRPO. A group
is not needed: ``group_size=1`` with more prompts is the paper's. With ``baseline`` (its REINFORCE++ w/ baseline, for rewards
that can be verified) the group's mean is taken off first, and the KL is a part of the loss, estimated by k2:

    A_i = r_i - mean(r) over the group, then as above;  loss + kl·k2

Departures: the correction for the engine (``importance_cap``), and ``kl`` is 0 by default, as for the others here.
"""

from dataclasses import dataclass

from torch import Tensor

from workbench.algos.advantages import StepTokens, batch_normalized, group_advantages, sums_to_end
from workbench.algos.checks import check_group_size, clip_range, given_reference
from workbench.algos.group_policy import ELSEWHERE, ClippedPolicy
from workbench.algos.loss import Loss, TokenTerms, policy_loss
from workbench.errors import check_kind, spelled


@spelled(**ELSEWHERE)
@dataclass(frozen=True, kw_only=True)
class ReinforcePlusPlus(ClippedPolicy):
    """Advantages against the whole batch: group_size, clip, kl, importance_cap, minibatches, and below."""

    baseline: bool = False  # take the group's mean off first; the KL is then a part of the loss, not of the rewards

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("baseline", self.baseline, bool, "True or False")
        if self.baseline:
            check_group_size(self.group_size)

    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """(B, G): the rewards, with ``baseline`` minus their group's mean. ``token_advantages`` does the rest."""
        return group_advantages(rewards_BG, normalize_std=False) if self.baseline else rewards_BG

    def token_advantages(self, tokens: StepTokens) -> Tensor:
        """(T,): what is still to come at each token, normalised over the batch."""
        if self.baseline or self.kl == 0:
            return batch_normalized(tokens.advantage)
        to_come = sums_to_end(given_reference(self.kl, tokens.kl, "StepTokens.kl"), tokens.sequence)
        return batch_normalized(tokens.advantage - self.kl * to_come)

    def loss(self, tokens: TokenTerms) -> Loss:
        """Clipped surrogate, with ``baseline`` plus the KL term."""
        kl = self.kl if self.baseline else 0.0
        return policy_loss(tokens, clip=clip_range(self.clip), kl=kl, kl_estimator="k2", importance_cap=self.importance_cap)

    @property
    def skips_zero_advantage(self) -> bool:
        """No advantage is no gradient, unless a KL term is a part of the loss."""
        return self.kl == 0 or not self.baseline
