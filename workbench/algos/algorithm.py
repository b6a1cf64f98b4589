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
from workbench.algos.values import ValueLoss, ValueTerms, clipped_value_loss, reduce_value_loss
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
    count), ``shaped`` (other rewards), ``advantages``, ``token_advantages`` (other advantages per token), ``value_targets`` (what
    a critic is to learn), ``weights``, ``value_loss`` and ``loss``; after the step ``adapted`` (the algorithm of the next). All
    are pure: no state from call to call.
    """

    group_size: int = 8  # completions per prompt
    minibatches: int = 1  # optimizer steps per rollout; with more than 1 all but the first are off policy
    epochs: int = 1  # passes over a rollout, each of ``minibatches`` optimizer steps
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

    def value_targets(self, tokens: StepTokens) -> Tensor:
        """What the critic's value before each token should have been: (T,), over the step's whole batch. Only with ``needs_critic``."""
        raise _without_targets(self)

    def value_loss(self, tokens: ValueTerms) -> ValueLoss:
        """The critic's loss of one micro-batch (T,); those of a step add up to the step's. The default is the squared error."""
        per_token, clipped = clipped_value_loss(tokens.value, tokens.old_value, tokens.target, clip=None)
        return reduce_value_loss(tokens, per_token, clipped=clipped)

    def adapted(self, kl: float, completions: int) -> "Algorithm":
        """The algorithm of the next step, after one of ``completions`` whose KL to the reference was ``kl``, nats per token."""
        return self

    @property
    def needs_critic(self) -> bool:
        """Whether ``token_advantages`` reads ``StepTokens.values``, so that a critic has to give and to learn them."""
        return False

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
    check_count("epochs", algo.epochs, why="it is the number of passes over a rollout")
    check_count("sampling_rounds", algo.sampling_rounds, why="it is how often a step may draw prompts; 1 is no dynamic sampling")
    if algo.sampling_rounds > 1 and algo.group_size == 1:
        found = "dynamic sampling leaves out groups without variance, and a group of one has none: nothing would be learnt"
        raise ConfigError(
            f"sampling_rounds={algo.sampling_rounds} with group_size=1", found, "give group_size=4, say, or sampling_rounds=1"
        )
    if algo.needs_critic and type(algo).value_targets is Algorithm.value_targets:
        raise _without_targets(algo)
    return algo


def _without_targets(algo: Algorithm) -> ConfigError:
    asked, found = f"{type(algo).__name__}.value_targets", "it is not written, and needs_critic is True"
    return ConfigError(asked, found, "return a tensor (T,): returns per token")


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


def checked_value_targets(algo: Algorithm, tokens: StepTokens) -> Tensor:
    """``algo.value_targets(tokens)``, (T,). Raises ConfigError where they have another shape or are not finite."""
    targets, asked = algo.value_targets(tokens), f"{type(algo).__name__}.value_targets"
    _check_returned(asked, targets, tokens.advantage, "advantages", "return a tensor (T,), one target per token")
    bad = ~torch.isfinite(targets)
    if bad.any():
        value, sequence = targets[bad][0].item(), int(tokens.sequence[bad][0])
        raise ConfigError(asked, f"{value} in completion {sequence}", "keep targets finite: look at StepTokens.values and the rewards")
    return targets


def checked_loss(algo: Algorithm, tokens: TokenTerms) -> Loss:
    """``algo.loss(tokens)``. Raises ConfigError where there is nothing to differentiate. Never waits for the device."""
    loss, asked = algo.loss(tokens), f"{type(algo).__name__}.loss"
    if not isinstance(loss, Loss):
        raise ConfigError(asked, f"it returned {type(loss).__name__}", "return reduce_loss(tokens, per_token_loss)")
    _check_total(asked, loss.total, tokens.logp, "reduce_loss", "tokens.logp")
    return loss


def checked_value_loss(algo: Algorithm, tokens: ValueTerms) -> ValueLoss:
    """``algo.value_loss(tokens)``. Raises ConfigError where there is nothing to differentiate. Never waits for the device."""
    loss, asked = algo.value_loss(tokens), f"{type(algo).__name__}.value_loss"
    if not isinstance(loss, ValueLoss):
        raise ConfigError(asked, f"it returned {type(loss).__name__}", "return reduce_value_loss(tokens, per_token_loss)")
    _check_total(asked, loss.total, tokens.value, "reduce_value_loss", "tokens.value")
    return loss


def _check_total(asked: str, total: Tensor, trained: Tensor, reduce: str, source: str) -> None:
    """Raise ConfigError unless ``total`` is a scalar, with a gradient where ``trained`` has one."""
    if total.ndim != 0:
        raise ConfigError(asked, f"the total has shape {tuple(total.shape)}", f"return {reduce}(tokens, per_token_loss), one scalar")
    if trained.requires_grad and not total.requires_grad:
        raise ConfigError(asked, "the total has no gradient", f"make it from {source}, without detach() or no_grad()")


def _check_returned(asked: str, values: object, given: Tensor, name: str, fix: str) -> None:
    """Raise ConfigError unless ``values`` is a tensor of the shape of ``given``, the ``name`` it was made from."""
    if not isinstance(values, Tensor):
        raise ConfigError(asked, f"it returned {type(values).__name__}", fix)
    if values.shape != given.shape:
        raise ConfigError(asked, f"shape {tuple(values.shape)} from {name} of shape {tuple(given.shape)}", fix)
