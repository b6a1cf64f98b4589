"""What the algorithms share that clip: the surrogate, the correction for the engine; and with a group baseline, the KL term.

An algorithm of this family adds what is its own: ``advantages`` and ``weights``.
"""

from dataclasses import dataclass

from workbench.algos.algorithm import Algorithm
from workbench.algos.checks import Clip, check_cap, check_count, check_group_size, check_kl, check_weight, clip_range
from workbench.algos.loss import Loss, TokenTerms, policy_loss
from workbench.algos.terms import KL_ESTIMATORS, KlEstimator, check_choice

# what TRL and verl call these fields
ELSEWHERE = {
    "num_generations": "group_size",
    "beta": "kl",
    "kl_coef": "kl",
    "epsilon": "clip",
    "clip_range": "clip",
    "num_iterations": "minibatches",
}


@dataclass(frozen=True, kw_only=True)
class ClippedPolicy(Algorithm):
    """Abstract: policy gradient with a clipped ratio. A subclass says where its KL term goes.

    With ``minibatches`` above 1 a rollout is cut into that many optimizer steps; then clipping comes into play. Raises
    ConfigError on values that can't work.
    """

    group_size: int = 8  # completions per prompt
    clip: Clip = 0.2  # ratio held within 1 ± clip, or (low, high)
    kl: float = 0.0  # weight of the KL term; 0: no reference needed
    importance_cap: float | None = 2.0  # truncated importance weights, trainer over engine; None: off
    minibatches: int = 1  # optimizer steps per rollout

    def __post_init__(self) -> None:
        check_count("group_size", self.group_size, why="it is the number of completions per prompt")
        clip_range(self.clip)
        check_weight("kl", self.kl)
        check_cap(self.importance_cap)
        check_count("minibatches", self.minibatches, why="it is the number of optimizer steps per rollout")

    @property
    def needs_reference(self) -> bool:
        """Only the KL term reads it."""
        return self.kl > 0


@dataclass(frozen=True, kw_only=True)
class GroupPolicy(ClippedPolicy):
    """Abstract: the completions of one prompt are each other's baseline, the KL term is a part of the loss."""

    kl_estimator: KlEstimator = "k3"

    def __post_init__(self) -> None:
        check_group_size(self.group_size)
        super().__post_init__()
        check_choice("kl_estimator", self.kl_estimator, KL_ESTIMATORS)
        check_kl(self.kl, self.kl_estimator)

    def loss(self, tokens: TokenTerms) -> Loss:
        """Clipped surrogate plus the KL term."""
        return policy_loss(
            tokens, clip=clip_range(self.clip), kl=self.kl, kl_estimator=self.kl_estimator, importance_cap=self.importance_cap
        )

    @property
    def skips_zero_advantage(self) -> bool:
        """Without a KL term, no advantage is no gradient."""
        return self.kl == 0
