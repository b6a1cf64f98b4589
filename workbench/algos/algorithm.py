"""What an algorithm has to offer, and the checks that tell the author of a new one what is wrong with it.

Legend: T = response tokens of a micro-batch, N = completions of an optimizer step, B = prompts, G = completions per prompt.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from workbench.algos.checks import check_count
from workbench.algos.loss import Loss, TokenTerms
from workbench.algos.terms import token_weights
from workbench.errors import ConfigError


class Algorithm(ABC):
    """An algorithm: rewards to advantages, token terms to a loss. Two methods are enough, in a notebook cell too::

        class Reinforce(wb.algos.Algorithm):
            group_size = 4

            def advantages(self, rewards_BG):
                return rewards_BG - rewards_BG.mean()

            def loss(self, tokens):
                return wb.algos.reduce_loss(tokens, -tokens.advantage * tokens.logp)

    Both are pure: no state from call to call.
    """

    group_size: int = 8  # completions per prompt
    minibatches: int = 1  # optimizer steps per rollout; with more than 1 all but the first are off policy

    @abstractmethod
    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """One advantage per completion: (B, G) from rewards (B, G)."""

    @abstractmethod
    def loss(self, tokens: TokenTerms) -> Loss:
        """The loss of one micro-batch; those of a step add up to the step's."""

    def weights(self, lengths_N: Tensor, max_tokens: int) -> Tensor:
        """The weight of each token of each completion in the loss: (N,), from the response lengths of one optimizer step.

        ``max_tokens`` is the run's sampling limit. The default is the mean over all response tokens. Call it over *all*
        completions of the step, before any is dropped for having no advantage.
        """
        return token_weights(lengths_N, "token")

    @property
    def needs_reference(self) -> bool:
        """Whether ``loss`` reads ``TokenTerms.ref_logp``."""
        return False

    @property
    def skips_zero_advantage(self) -> bool:
        """Whether a completion of advantage 0 adds nothing to the gradient, so that the trainer may leave it out."""
        return False


def check_algorithm(algo: object) -> Algorithm:
    """``algo``, if it is one. Raises ConfigError: a class in place of an object, no Algorithm, counts that can't be."""
    if isinstance(algo, type):
        raise ConfigError(f"algo={algo.__name__}", "that is the class", f"give an object: {algo.__name__}()")
    if not isinstance(algo, Algorithm):
        raise ConfigError(
            f"algo={algo!r}", f"{type(algo).__name__} is no Algorithm", "give wb.GRPO(), or an object of a subclass of wb.algos.Algorithm"
        )
    check_count("group_size", algo.group_size, why="it is the number of completions per prompt")
    check_count("minibatches", algo.minibatches, why="it is the number of optimizer steps per rollout")
    return algo


def checked_advantages(algo: Algorithm, rewards_BG: Tensor) -> Tensor:
    """``algo.advantages(rewards_BG)``, (B, G). Raises ConfigError where they have another shape or are not finite."""
    advantages, asked = algo.advantages(rewards_BG), f"{type(algo).__name__}.advantages"
    if not isinstance(advantages, Tensor):
        raise ConfigError(asked, f"it returned {type(advantages).__name__}", "return a tensor (B, G), one advantage per completion")
    if advantages.shape != rewards_BG.shape:
        found = f"shape {tuple(advantages.shape)} from rewards of shape {tuple(rewards_BG.shape)}"
        raise ConfigError(asked, found, "return one advantage per completion: the rewards' shape (keepdim=True in a mean?)")
    bad = ~torch.isfinite(advantages).all(dim=1)
    if bad.any():
        group = int(bad.nonzero()[0])
        found = f"{advantages[group].tolist()} from the rewards {rewards_BG[group].tolist()} of group {group}"
        raise ConfigError(asked, found, "keep advantages finite: a group without variance needs an eps in its divisor")
    return advantages


def checked_loss(algo: Algorithm, tokens: TokenTerms) -> Loss:
    """``algo.loss(tokens)``. Raises ConfigError where there is nothing to differentiate. Never waits for the device."""
    loss, asked = algo.loss(tokens), f"{type(algo).__name__}.loss"
    if not isinstance(loss, Loss):
        raise ConfigError(asked, f"it returned {type(loss).__name__}", "return reduce_loss(tokens, per_token_loss)")
    if loss.total.ndim != 0:
        raise ConfigError(asked, f"the total has shape {tuple(loss.total.shape)}", "return reduce_loss(tokens, per_token_loss), one scalar")
    if tokens.logp.requires_grad and not loss.total.requires_grad:
        raise ConfigError(asked, "the total has no gradient", "make it from tokens.logp, without detach() or no_grad()")
    return loss
