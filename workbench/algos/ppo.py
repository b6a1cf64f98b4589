"""PPO with a critic (arXiv 1707.06347), as in RLHF (Ziegler et al. 2019, arXiv 1909.08593; InstructGPT, arXiv 2203.02155).

    r_t = -kl·log(π / π_ref), and the completion's reward on its last token      the KL is a reward of each token, k1
    A_t = sum_l (discount·λ)^l·δ_(t+l),  δ_t = r_t + discount·V_(t+1) - V_t      GAE (arXiv 1506.02438, equation 16)
    R_t = A_t + V_t                                                              what the critic is to learn
    A_t <- (A_t - mean(A)) / std(A)                                              over all tokens of the whole batch (whiten)
    loss = mean over all tokens [ -min(ρ·A_t, clip(ρ)·A_t) ]                     ρ = policy / old policy, per token (equation 7)
    value loss = mean over all tokens of max((V - R)², (clip(V, V_old ± value_clip) - R)²) / 2

A critic says of every token how good the state before it was, so a prompt needs one completion. With ``kl_in="loss"`` the KL is
a term of the loss instead, estimated by ``kl_estimator``, as GRPO's. With ``kl_target`` its weight adapts after every step
(Ziegler et al., section 2.2): kl <- kl·(1 + clip(KL / kl_target - 1, ±0.2)·completions / kl_horizon), KL in nats *per token*.
Theirs, and TRL's, is per completion: divide by the usual length.

Departures: the correction for the engine (``importance_cap``); actor and critic each have an optimizer of their own, so the value
loss has no weight; ``kl`` is 0 by default, as for the others here, which suits rewards that can be verified. The state after the
last token has value 0, also where ``max_tokens`` cut a completion off. Stopping a step's epochs early when the KL passes a bound
is not built: use fewer ``epochs``, or ``kl_target``.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from workbench.algos.advantages import StepTokens, batch_normalized, last_tokens
from workbench.algos.checks import check_count, check_fraction, check_kl, check_positive, clip_range, given_reference, refused
from workbench.algos.group_policy import ELSEWHERE, ClippedPolicy
from workbench.algos.loss import Loss, TokenTerms, policy_loss
from workbench.algos.terms import KL_ESTIMATORS, REDUCTIONS, KlEstimator, Reduction, check_choice, token_weights
from workbench.algos.values import ValueLoss, ValueTerms, clipped_value_loss, gae, reduce_value_loss
from workbench.errors import ConfigError, check_kind, spelled

KlPlace = Literal["reward", "loss"]
KL_PLACES: tuple[str, ...] = get_args(KlPlace)
MOST_KL_ERROR = 0.2  # of the target, by which the KL counts as off; so its weight changes by a fifth a step at most

# what TRL, verl, OpenRLHF and stable-baselines3 call these fields
PPO_ELSEWHERE = ELSEWHERE | {
    "cliprange": "clip",
    "clip_ratio": "clip",
    "eps_clip": "clip",
    "cliprange_value": "value_clip",
    "clip_range_vf": "value_clip",
    "lam": "gae_lambda",
    "lambd": "gae_lambda",
    "gamma": "discount",
    "num_ppo_epochs": "epochs",
    "ppo_epochs": "epochs",
    "n_epochs": "epochs",
    "num_iterations": "epochs",
    "num_mini_batches": "minibatches",
    "init_kl_coef": "kl",
    "kl_loss_coef": "kl",
    "kl_loss_type": "kl_estimator",
    "use_kl_in_reward": "kl_in",
    "use_kl_loss": "kl_in",
    "horizon": "kl_horizon",
    "normalize_advantage": "whiten",
    "loss_agg_mode": "reduction",
}
OWN_OPTIMIZER = ("the critic has an optimizer of its own, so its loss has no weight", "leave it out, and set the critic's learning rate")
NOT_BUILT = {
    "vf_coef": OWN_OPTIMIZER,
    "value_loss_coef": OWN_OPTIMIZER,
    "adap_kl_ctrl": ("the weight of the KL adapts where a target is given", "leave it out; write kl_target=0.05, nats per token, to adapt"),
    "target": (
        "a target of the KL is in nats per token here, not per completion",
        "write kl_target=..., divided by the usual length",
    ),
    "target_kl": (
        "a step does not stop early at a KL; the weight of the KL can adapt to one",
        "write kl_target=..., nats per token, to adapt, or fewer epochs",
    ),
    "early_stopping": ("a step does not stop early at a KL", "leave it out, and use fewer epochs or a kl_target"),
}


@refused(**NOT_BUILT)
@spelled(**PPO_ELSEWHERE)
@dataclass(frozen=True, kw_only=True)
class PPO(ClippedPolicy):
    """Proximal policy optimization with a critic: clip, kl, importance_cap, and below. Raises ConfigError on values that can't work."""

    group_size: int = 1  # completions per prompt
    minibatches: int = 4  # optimizer steps per epoch, each on its part of the rollout
    epochs: int = 1  # passes over a rollout
    kl_in: KlPlace = "reward"  # the KL is taken off each token's reward, or is a term of the loss
    kl_estimator: KlEstimator = "k3"  # of the term in the loss; with kl_in="reward" of what is measured and adapted to, no more
    kl_target: float | None = None  # nats per token, to which kl adapts after every step; None: kl stays
    kl_horizon: int = 10_000  # completions after which a kl whose target is missed has changed by about a fifth
    discount: float = 1.0  # of a reward one token later
    gae_lambda: float = 0.95  # 1: returns, no bias from the critic; 0: one token ahead, least variance
    value_clip: float | None = 0.2  # how far a value may move in a step, in units of reward; None: off
    whiten: bool = True  # advantages with mean 0 and deviation 1 over all tokens of the batch
    reduction: Reduction = "token"  # "sequence": mean of completions' means; "constant": sum / (N·max_tokens)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("epochs", self.epochs, why="it is the number of passes over a rollout")
        check_fraction("discount", self.discount)
        check_fraction("gae_lambda", self.gae_lambda)
        if self.value_clip is not None:
            check_positive("value_clip", self.value_clip, why="a value may move by so much in a step", off="None switches it off")
        check_kind("whiten", self.whiten, bool, "True or False")
        check_choice("reduction", self.reduction, REDUCTIONS)
        self._check_kl()

    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """(B, G): the rewards. ``token_advantages`` does the rest."""
        return rewards_BG

    def token_advantages(self, tokens: StepTokens) -> Tensor:
        """(T,): GAE, with ``whiten`` normalised over the batch. Needs ``StepTokens.values``."""
        advantages = self._gae(tokens)
        return batch_normalized(advantages) if self.whiten else advantages

    def value_targets(self, tokens: StepTokens) -> Tensor:
        """(T,): GAE, never normalised, plus the values."""
        return self._gae(tokens) + given_values(tokens)

    def weights(self, lengths_N: Tensor, max_tokens: int) -> Tensor:
        """(N,): the weight of each completion's tokens, by ``reduction``."""
        return token_weights(lengths_N, self.reduction, constant=max_tokens)

    def loss(self, tokens: TokenTerms) -> Loss:
        """Clipped surrogate, with ``kl_in="loss"`` plus the KL term."""
        kl = self.kl if self.kl_in == "loss" else 0.0
        return policy_loss(tokens, clip=clip_range(self.clip), kl=kl, kl_estimator=self.kl_estimator, importance_cap=self.importance_cap)

    def value_loss(self, tokens: ValueTerms) -> ValueLoss:
        """Squared error of the values, clipped by ``value_clip``."""
        per_token, clipped = clipped_value_loss(tokens.value, tokens.old_value, tokens.target, self.value_clip)
        return reduce_value_loss(tokens, per_token, clipped=clipped)

    def adapted(self, kl: float, completions: int) -> "PPO":
        """With ``kl_target`` a PPO whose ``kl`` went up or down, by a fifth at most; else this one. ``kl``: nats per token, measured."""
        if self.kl_target is None:
            return self
        check_kind("measured kl", kl, float, "the KL of the step to the reference, nats per token")
        off = max(-MOST_KL_ERROR, min(kl / self.kl_target - 1, MOST_KL_ERROR))
        return replace(self, kl=self.kl * (1 + off * min(1.0, completions / self.kl_horizon)))

    @property
    def needs_critic(self) -> bool:
        """Always."""
        return True

    def _gae(self, tokens: StepTokens) -> Tensor:
        rewards = torch.where(last_tokens(tokens.sequence), tokens.advantage.double(), 0.0)
        if self.kl > 0 and self.kl_in == "reward":
            rewards = rewards - self.kl * given_reference(self.kl, tokens.kl, "StepTokens.kl")
        return gae(rewards, given_values(tokens), tokens.sequence, discount=self.discount, lam=self.gae_lambda)

    def _check_kl(self) -> None:
        check_choice("kl_in", self.kl_in, KL_PLACES)
        check_choice("kl_estimator", self.kl_estimator, KL_ESTIMATORS)
        if self.kl_in == "loss":
            check_kl(self.kl, self.kl_estimator)
        check_count("kl_horizon", self.kl_horizon, why="it is a number of completions")
        if self.kl_target is None:
            return
        check_positive("kl_target", self.kl_target, why="it is a KL to the reference, nats per token", off="None lets kl stay as it is")
        if self.kl == 0:
            fix = "give kl=0.05, say, to begin with, or kl_target=None"
            raise ConfigError(f"kl_target={self.kl_target} with kl=0", "kl adapts by factors, and 0 stays 0", fix)


def given_values(tokens: StepTokens) -> Tensor:
    """The critic's values, (T,). Raises ConfigError where there are none."""
    if tokens.values is None:
        raise ConfigError("PPO without values", "its advantages need a critic's", "give StepTokens.values, or take GRPO, without a critic")
    return tokens.values
