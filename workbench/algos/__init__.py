"""Tensor maths of RL post-training: pure functions, and algorithms as small frozen dataclasses over them."""

from workbench.algos.advantages import (
    StepTokens,
    batch_normalized,
    group_advantages,
    informative_groups,
    leave_one_out,
    sums_to_end,
)
from workbench.algos.algorithm import (
    Algorithm,
    check_algorithm,
    checked_advantages,
    checked_loss,
    checked_shaped,
    checked_token_advantages,
    checked_value_loss,
    checked_value_targets,
)
from workbench.algos.dapo import DAPO
from workbench.algos.dr_grpo import DrGRPO
from workbench.algos.group_policy import ClippedPolicy, GroupPolicy
from workbench.algos.grpo import GRPO
from workbench.algos.gspo import GSPO
from workbench.algos.loss import Loss, LossStats, LossSummary, TokenTerms, policy_loss, reduce_loss, surrogate_loss
from workbench.algos.ppo import PPO
from workbench.algos.reinforce_plus_plus import ReinforcePlusPlus
from workbench.algos.rloo import RLOO
from workbench.algos.terms import clipped_surrogate, importance_weight, kl_estimate, reinforce_surrogate, sequence_mean, token_weights
from workbench.algos.values import (
    ValueLoss,
    ValueStats,
    ValueSummary,
    ValueTerms,
    clipped_value_loss,
    gae,
    reduce_value_loss,
)

__all__ = [
    "DAPO",
    "GRPO",
    "GSPO",
    "PPO",
    "RLOO",
    "Algorithm",
    "ClippedPolicy",
    "DrGRPO",
    "GroupPolicy",
    "Loss",
    "LossStats",
    "LossSummary",
    "ReinforcePlusPlus",
    "StepTokens",
    "TokenTerms",
    "ValueLoss",
    "ValueStats",
    "ValueSummary",
    "ValueTerms",
    "batch_normalized",
    "check_algorithm",
    "checked_advantages",
    "checked_loss",
    "checked_shaped",
    "checked_token_advantages",
    "checked_value_loss",
    "checked_value_targets",
    "clipped_surrogate",
    "clipped_value_loss",
    "gae",
    "group_advantages",
    "importance_weight",
    "informative_groups",
    "kl_estimate",
    "leave_one_out",
    "policy_loss",
    "reduce_loss",
    "reduce_value_loss",
    "reinforce_surrogate",
    "sequence_mean",
    "sums_to_end",
    "surrogate_loss",
    "token_weights",
]
