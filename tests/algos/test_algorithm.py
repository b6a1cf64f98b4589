"""An algorithm of one's own, as written in a notebook cell, and what its author is told."""

import math

import pytest
import torch

from workbench.algos import (
    GRPO,
    Algorithm,
    Loss,
    TokenTerms,
    check_algorithm,
    checked_advantages,
    checked_loss,
    clipped_surrogate,
    reduce_loss,
)
from workbench.errors import ConfigError


class Reinforce(Algorithm):
    group_size = 2

    def advantages(self, rewards_BG):
        return rewards_BG - rewards_BG.mean()

    def loss(self, tokens):
        return reduce_loss(tokens, -tokens.advantage * tokens.logp)


class SequenceRatio(Reinforce):
    """GSPO's idea (arXiv 2507.18071) over the shared terms: the ratio of a completion is the mean of its tokens' log-ratios."""

    def loss(self, tokens):
        log_ratio = tokens.logp - tokens.old_logp
        count = int(tokens.sequence.max()) + 1
        total = torch.zeros(count, dtype=log_ratio.dtype).index_add(0, tokens.sequence, log_ratio)
        mean = (total / torch.bincount(tokens.sequence, minlength=count))[tokens.sequence]
        term = clipped_surrogate(mean, torch.zeros_like(mean), tokens.advantage, 0.2, 0.2)
        return reduce_loss(tokens, term.loss, clipped=term.clipped)


def tokens_of(logp, old, **terms):
    defaults = {"advantage": torch.ones_like(old), "weight": torch.full_like(old, 1 / len(old))}
    return TokenTerms(logp=logp, old_logp=old, engine_logp=old, **(defaults | terms))


def test_two_methods_are_enough():
    algo = check_algorithm(Reinforce())
    assert checked_advantages(algo, torch.tensor([[1.0, 0.0], [1.0, 1.0]])).tolist() == [[0.25, -0.75], [0.25, 0.25]]
    assert algo.weights(torch.tensor([1, 3]), max_tokens=9).tolist() == [0.25, 0.25]
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss = checked_loss(algo, tokens_of(logp, logp.detach(), advantage=torch.tensor([3.0, 1.0])))
    assert loss.total.item() == pytest.approx((3 * 1 + 1 * 2) / 2)
    assert not algo.needs_reference
    assert not algo.skips_zero_advantage


def test_a_ratio_per_sequence_fits_the_terms():
    # completion 0: log-ratios 0.1 and 0.3, ratio e^0.2 clipped at 1.2; completion 1: ratio e^0.1, gradient -e^0.1 on its token
    old = torch.tensor([-1.0, -1.0, -1.0], dtype=torch.float64)
    logp = (old + torch.tensor([0.1, 0.3, 0.1], dtype=torch.float64)).requires_grad_()
    loss = checked_loss(SequenceRatio(), tokens_of(logp, old, weight=torch.ones_like(old), sequence=torch.tensor([0, 0, 1])))
    loss.total.backward()
    assert loss.total.item() == pytest.approx(-1.2 * 2 - math.exp(0.1))
    assert logp.grad.tolist() == pytest.approx([0.0, 0.0, -math.exp(0.1)])
    assert loss.stats.clipped.item() == 2


def test_both_methods_are_required():
    class Half(Algorithm):
        def advantages(self, rewards_BG):
            return rewards_BG

    with pytest.raises(TypeError, match=r"abstract method '?loss"):
        Half()


class Broken(Reinforce):
    def __init__(self, **parts):
        self.__dict__.update(parts)


@pytest.mark.parametrize(
    ("algo", "message"),
    [
        (GRPO, r"algo=GRPO: that is the class\n  fix: give an object: GRPO\(\)"),
        ("grpo", r"algo='grpo': str is no Algorithm\n  fix: give wb\.GRPO\(\)"),
        (Broken(group_size=0), r"group_size=0: it is the number of completions per prompt"),
        (Broken(minibatches="2"), r"minibatches='2'"),
    ],
)
def test_no_algorithm(algo, message):
    with pytest.raises(ConfigError, match=message):
        check_algorithm(algo)


@pytest.mark.parametrize(
    ("advantages", "message"),
    [
        (lambda r: r.mean(1), r"Broken\.advantages: shape \(2,\) from rewards of shape \(2, 2\)"),
        (
            lambda r: (r - r.mean(1, keepdim=True)) / r.std(1, keepdim=True),
            r"\[nan, nan\] from the rewards \[1\.0, 1\.0\] of group 1\n.*eps",
        ),
        (lambda r: r.tolist(), r"Broken\.advantages: it returned list"),
    ],
)
def test_advantages_that_cannot_work(advantages, message):
    with pytest.raises(ConfigError, match=message):
        checked_advantages(Broken(advantages=advantages), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda t: (t.logp * t.weight).sum(), r"Broken\.loss: it returned Tensor\n  fix: return reduce_loss"),
        (lambda t: Loss(t.logp, reduce_loss(t, t.logp).stats), r"the total has shape \(2,\)"),
        (lambda t: reduce_loss(t, t.logp.detach()), r"the total has no gradient"),
    ],
)
def test_losses_that_cannot_work(loss, message):
    logp = torch.tensor([-1.0, -2.0], requires_grad=True)
    with pytest.raises(ConfigError, match=message):
        checked_loss(Broken(loss=loss), tokens_of(logp, logp.detach()))
