"""DAPO: decoupled clip and dynamic sampling (arXiv 2503.14476).

    A_i = (r_i - mean(r)) / std(r)                                  over the G completions of one prompt   (equation 9)
    loss = mean over all tokens [ -min(ρ·A_i, clip(ρ, 0.8, 1.28)·A_i) ]       ρ = policy / old policy      (equation 8)

Four changes to GRPO. Clip-higher: the upper bound is the wider one, so that rare tokens can grow and the entropy stays. Token
loss: every token counts the same, also that of a long completion. Dynamic sampling: prompts that are always or never solved
are replaced by others (``sampling_rounds``), up to 10 rounds as in verl's recipes. Soft punishment of long completions
(equation 13): it grows from 0 to 1 over the last fifth of ``max_tokens`` (4096 of 20480 tokens in the paper, on rewards of
±1). There is no KL term unless you give one. Departure: the correction for the engine (``importance_cap``).
"""

from dataclasses import dataclass

from torch import Tensor

from workbench.algos.advantages import group_advantages
from workbench.algos.checks import Clip, check_count, check_share, check_weight
from workbench.algos.group_policy import ELSEWHERE, GroupPolicy
from workbench.errors import spelled

OVERLONG_ELSEWHERE = {
    "penalty_factor": "overlong_penalty",
    "overlong_buffer_len": "overlong_share",
    "soft_punish_cache": "overlong_share",
    "max_num_gen_batches": "sampling_rounds",
}


@spelled(**ELSEWHERE, **OVERLONG_ELSEWHERE)
@dataclass(frozen=True, kw_only=True)
class DAPO(GroupPolicy):
    """GRPO with DAPO's four changes: group_size, kl, kl_estimator, importance_cap, minibatches, and below."""

    clip: Clip = (0.2, 0.28)
    sampling_rounds: int = 10  # draws of prompts a step, at most; 1: no dynamic sampling
    overlong_penalty: float = 1.0  # taken off the reward of a completion of max_tokens; 0: off
    overlong_share: float = 0.2  # of max_tokens: the last part, in which the punishment grows

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("sampling_rounds", self.sampling_rounds, why="it is how often a step may draw prompts; 1 is no dynamic sampling")
        check_weight("overlong_penalty", self.overlong_penalty)
        check_share("overlong_share", self.overlong_share)

    def shaped(self, rewards_BG: Tensor, lengths_BG: Tensor, kl_BG: Tensor | None, max_tokens: int) -> Tensor:
        """(B, G): each reward minus the punishment of its length, equation 13."""
        cache = self.overlong_share * max_tokens
        over = (lengths_BG.double() - (max_tokens - cache)) / cache
        return rewards_BG - self.overlong_penalty * over.clamp(0, 1)

    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """(B, G): each reward against its group."""
        return group_advantages(rewards_BG, normalize_std=True)
