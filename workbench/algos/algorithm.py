"""What an algorithm has to offer, and the checks that tell the author of a new one what is wrong with it.

Legend: T = response tokens, N = completions of an optimizer step, B = prompts, G = completions per prompt.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from workbench.algos.advantages import StepTokens
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

    Everything else has a default that changes nothing. In the order in which a step asks: ``sampling_rounds`` (which prompts
    count), ``shaped`` (other rewards), ``advantages``, ``token_advantages`` (other advantages per token), ``weights`` and
    ``loss``. All are pure: no state from call to call.
    """

    group_size: int = 8  # completions per prompt
    minibatches: int = 1  # optimizer steps per rollout; with more than 1 all but the first are off policy
    # With more than 1, dynamic sampling (DAPO): groups without variance are left out of the step, and further prompts drawn,
    # up to so many rounds in all, until the step has its prompts. ``informative_groups`` of the rewards as they were scored
    # decides, before ``shaped``: the paper asks whether some answers are right and some wrong, not how long they are.
    sampling_rounds: int = 1

    def shaped(self, rewards_BG: Tensor, lengths_BG: Tensor, kl_BG: Tensor | None, max_tokens: int) -> Tensor:
        """The rewards (B, G) as the algorithm wants them, from those scored: minus a punishment of length (DAPO), of KL (RLOO).

        ``lengths_BG`` counts response tokens, ``max_tokens`` is the run's sampling limit. ``kl_BG`` is the sum over a
        completion's tokens of engine_logp - ref_logp, nats; None where ``needs_reference`` is False.
        """
        return rewards_BG

    @abstractmethod
    def advantages(self, rewards_BG: Tensor) -> Tensor:
        """One advantage per completion: (B, G) from rewards (B, G), as ``shaped``."""

    def token_advantages(self, tokens: StepTokens) -> Tensor:
        """One advantage per token: (T,), over the response tokens of the step's whole batch, before it is cut into parts."""
        return tokens.advantage

    @abstractmethod
    def loss(self, tokens: TokenTerms) -> Loss:
        """The loss of one micro-batch (T,); those of a step add up to the step's."""

    def weights(self, lengths_N: Tensor, max_tokens: int) -> Tensor:
        """The weight of each token of each completion in the loss: (N,), from the response lengths of one optimizer step.

        ``max_tokens`` is the run's sampling limit. The default is the mean over all response tokens. Call it over *all*
        completions of the step, before any is dropped for having no advantage.
        """
        return token_weights(lengths_N, "token")

    @property
    def needs_reference(self) -> bool:
        """Whether ``loss`` reads ``TokenTerms.ref_logp``, or ``shaped`` or ``token_advantages`` their KL."""
        return False

    @property
    def skips_zero_advantage(self) -> bool:
        """Whether a completion whose tokens all have advantage 0 adds nothing to the gradient, so that it may be left out."""
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
    check_count("sampling_rounds", algo.sampling_rounds, why="it is how often a step may draw prompts; 1 is no dynamic sampling")
    return algo


def checked_shaped(algo: Algorithm, rewards_BG: Tensor, lengths_BG: Tensor, kl_BG: Tensor | None, max_tokens: int) -> Tensor:
    """``algo.shaped(...)``, (B, G). Raises ConfigError where it has another shape or is not finite."""
    shaped, asked = algo.shaped(rewards_BG, lengths_BG, kl_BG, max_tokens), f"{type(algo).__name__}.shaped"
    _check_returned(asked, shaped, rewards_BG, "rewards", "return one reward per completion: the shape of rewards_BG")
    bad = ~torch.isfinite(shaped)
    if bad.any():
        reward, length = rewards_BG[bad][0].item(), int(lengths_BG[bad][0])
        raise ConfigError(asked, f"{shaped[bad][0].item()} from the reward {reward} of {length} tokens", "keep rewards finite")
    return shaped


def checked_advantages(algo: Algorithm, rewards_BG: Tensor) -> Tensor:
    """``algo.advantages(rewards_BG)``, (B, G). Raises ConfigError where they have another shape or are not finite."""
    advantages, asked = algo.advantages(rewards_BG), f"{type(algo).__name__}.advantages"
    fix = "return a tensor (B, G), one advantage per completion: the rewards' shape (keepdim=True in a mean?)"
    _check_returned(asked, advantages, rewards_BG, "rewards", fix)
    bad = ~torch.isfinite(advantages).all(dim=1)
    if bad.any():
        group = int(bad.nonzero()[0])
        found = f"{advantages[group].tolist()} from the rewards {rewards_BG[group].tolist()} of group {group}"
        raise ConfigError(asked, found, "keep advantages finite: a group without variance needs an eps in its divisor")
    return advantages


def checked_token_advantages(algo: Algorithm, tokens: StepTokens) -> Tensor:
    """``algo.token_advantages(tokens)``, (T,). Raises ConfigError where they have another shape or are not finite."""
    advantages, asked = algo.token_advantages(tokens), f"{type(algo).__name__}.token_advantages"
    _check_returned(asked, advantages, tokens.advantage, "advantages", "return a tensor (T,), one advantage per token")
    bad = ~torch.isfinite(advantages)
    if bad.any():
        value, sequence = advantages[bad][0].item(), int(tokens.sequence[bad][0])
        found = f"{value} in completion {sequence}, whose advantage is {tokens.advantage[bad][0].item()}"
        raise ConfigError(asked, found, "keep advantages finite: a batch without variance needs an eps in its divisor")
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


def _check_returned(asked: str, values: object, given: Tensor, name: str, fix: str) -> None:
    """Raise ConfigError unless ``values`` is a tensor of the shape of ``given``, the ``name`` it was made from."""
    if not isinstance(values, Tensor):
        raise ConfigError(asked, f"it returned {type(values).__name__}", fix)
    if values.shape != given.shape:
        raise ConfigError(asked, f"shape {tuple(values.shape)} from {name} of shape {tuple(given.shape)}", fix)
