"""RLOO: REINFORCE with a leave-one-out baseline ("Back to Basics", arXiv 2402.14740).

    R_i = r_i - kl·sum_t log(π / π_ref)                             the KL is a part of the reward, one sum per completion
    A_i = R_i - mean of the group's other R_j                       unbiased: the baseline doesn't know the completion
    gradient = mean_i A_i·∇log π(y_i)                               log π(y_i) = sum_t log π(y_it): the completion is one action

No ratio and no clipping, so one optimizer step per rollout. Departures: the sum is divided by the run's ``max_tokens``, a
constant, so that the direction is the paper's and the gradient's norm is of the size that it has with the others here; each
token is weighted for the difference between engine and trainer (``importance_cap``); and ``kl`` is 0 by default, as for the
others here, which suits rewards that can be verified. Against a reward model give it one: TRL's is 0.05.
"""

from dataclasses import dataclass

from torch import Tensor

from workbench.algos.advantages import leave_one_out
from workbench.algos.algorithm import Algorithm
from workbench.algos.checks import check_cap, check_group_size, check_weight, given_reference
from workbench.algos.loss import Loss, TokenTerms, surrogate_loss
from workbench.algos.terms import reinforce_surrogate, token_weights
from workbench.errors import spelled


@spelled(num_generations="group_size", rloo_k="group_size", beta="kl", kl_coef="kl")
@dataclass(frozen=True, kw_only=True)
class RLOO(Algorithm):
    """REINFORCE, leave one out. Raises ConfigError on values that can't work."""

    group_size: int = 8  # completions per prompt
    kl: float = 0.0  # nats of KL to the reference, taken off a completion's reward; 0: no reference needed
    importance_cap: float | None = 2.0  # truncated importance weights, trainer over engine; None: off

    def __post_init__(self) -> None:
        check_group_size(self.group_size)
        check_weight("kl", self.kl)
        check_cap(self.importance_cap)

    def shaped(self, rewards_BG: Tensor, lengths_BG: Tensor, kl_BG: Tensor | None, max_tokens: int) -> Tensor:
        """(B, G): each reward minus the KL of its whole completion."""
        return rewards_BG if self.kl == 0 else rewards_BG - self.kl * given_reference(self.kl, kl_BG, "kl_BG")

    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """(B, G): each reward minus the mean of its group's others."""
        return leave_one_out(rewards_BG)

    def weights(self, lengths_N: Tensor, max_tokens: int) -> Tensor:
        """(N,): 1 / (N·max_tokens) for every token, so a completion's log-probabilities are summed."""
        return token_weights(lengths_N, "constant", constant=max_tokens)

    def loss(self, tokens: TokenTerms) -> Loss:
        """-A·log π, without a ratio. The KL is in A."""
        surrogate = reinforce_surrogate(tokens.logp, tokens.advantage)
        return surrogate_loss(tokens, surrogate, kl=0.0, kl_estimator="k1", importance_cap=self.importance_cap)

    @property
    def needs_reference(self) -> bool:
        """Only the KL reads it."""
        return self.kl > 0

    @property
    def skips_zero_advantage(self) -> bool:
        """The loss is the advantage's multiple, with the KL or without."""
        return True
