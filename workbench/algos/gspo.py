"""GSPO: group sequence policy optimization (arXiv 2507.18071).

    A_i = (r_i - mean(r)) / std(r)                                  over the G completions of one prompt   (equation 6)
    s_i = (π(y_i) / π_old(y_i))^(1/|y_i|)                           one ratio per completion               (equation 7)
    loss = mean_i [ -min(s_i·A_i, clip(s_i)·A_i) ]                                                         (equation 5)

The reward is one per completion, so the ratio and the clipping are, too: a token's own ratio is one sample and mostly noise.
log s_i is the mean of the tokens' log-ratios, so it stays close to 0 and the clip range is a thousandth of PPO's. Rollouts are
cut into 4 minibatches, as in the paper: with one the ratio is 1 and GSPO is GRPO.

It is written as the paper's GSPO-token (section 4.3): each token takes the *value* s_i and the gradient of its own log π.
As a completion has one advantage, value and gradient are those of equation 5. Departures: the correction for the engine is
per token (``importance_cap``); ``kl``, which the paper leaves out, is 0 by default.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from workbench.algos.advantages import group_advantages
from workbench.algos.checks import Clip, clip_range
from workbench.algos.group_policy import ELSEWHERE, GroupPolicy
from workbench.algos.loss import Loss, TokenTerms, surrogate_loss
from workbench.algos.terms import clipped_surrogate, sequence_mean, token_weights
from workbench.errors import ConfigError, spelled


@spelled(**ELSEWHERE)
@dataclass(frozen=True, kw_only=True)
class GSPO(GroupPolicy):
    """GRPO with one ratio per completion: group_size, kl, kl_estimator, importance_cap, and below."""

    clip: Clip = (3e-4, 4e-4)  # for the mean log-ratio per token; section 5.1
    minibatches: int = 4  # optimizer steps per rollout

    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """(B, G): each reward against its group."""
        return group_advantages(rewards_BG, normalize_std=True)

    def weights(self, lengths_N: Tensor, max_tokens: int) -> Tensor:
        """(N,): the mean over completions of each one's mean."""
        return token_weights(lengths_N, "sequence")

    def loss(self, tokens: TokenTerms) -> Loss:
        """Clipped surrogate of the completions' ratios, plus the KL term. Needs ``TokenTerms.sequence``."""
        log_ratio = sequence_log_ratio(tokens)
        surrogate = clipped_surrogate(log_ratio, torch.zeros_like(log_ratio), tokens.advantage, *clip_range(self.clip))
        return surrogate_loss(tokens, surrogate, kl=self.kl, kl_estimator=self.kl_estimator, importance_cap=self.importance_cap)


def sequence_log_ratio(tokens: TokenTerms) -> Tensor:
    """log s of each token's completion, (T,) float64: its value is the same for all tokens, its gradient each token's own.

    A completion's tokens have to be in one micro-batch. Tokens of weight 0 have no part in the mean.
    """
    if tokens.sequence is None:
        raise ConfigError("GSPO.loss", "the tokens don't say which completion they belong to", "give TokenTerms.sequence")
    difference = tokens.logp.detach().double() - tokens.old_logp.detach().double()
    own = tokens.logp - tokens.logp.detach()
    return sequence_mean(difference, tokens.sequence, tokens.weight != 0) + own
