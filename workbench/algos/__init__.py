"""Tensor maths of RL post-training: pure functions, and algorithms as small frozen dataclasses over them."""

from workbench.algos.advantages import group_advantages, informative_groups
from workbench.algos.algorithm import Algorithm, check_algorithm, checked_advantages, checked_loss
from workbench.algos.dr_grpo import DrGRPO
from workbench.algos.grpo import GRPO
from workbench.algos.loss import Loss, LossStats, LossSummary, TokenTerms, policy_loss, reduce_loss
from workbench.algos.terms import clipped_surrogate, importance_weight, kl_estimate, token_weights

__all__ = [
    "GRPO",
    "Algorithm",
    "DrGRPO",
    "Loss",
    "LossStats",
    "LossSummary",
    "TokenTerms",
    "check_algorithm",
    "checked_advantages",
    "checked_loss",
    "clipped_surrogate",
    "group_advantages",
    "importance_weight",
    "informative_groups",
    "kl_estimate",
    "policy_loss",
    "reduce_loss",
    "token_weights",
]
