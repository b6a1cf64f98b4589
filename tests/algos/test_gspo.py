"""GSPO as a whole."""

import math
from dataclasses import replace

import pytest
import torch

from tests.algos.helpers import tensor
from workbench.algos import GRPO, GSPO, TokenTerms
from workbench.errors import ConfigError


def tokens_of(log_ratio, sequence, **terms):
    old = torch.full_like(log_ratio, -1.0)
    defaults = {"advantage": torch.ones_like(old), "weight": torch.ones_like(old), "engine_logp": old}
    return TokenTerms(**({"logp": (old + log_ratio).requires_grad_(), "old_logp": old, "sequence": sequence} | defaults | terms))


def test_one_ratio_per_completion_by_hand():
    # completion 0: log-ratios 0.1 and 0.3, mean 0.2, e^0.2 clipped at 1.2, also the token of ratio e^0.1;
    # completion 1: ratio e^0.1, not clipped, gradient -e^0.1
    tokens = tokens_of(tensor(0.1, 0.3, 0.1), torch.tensor([0, 0, 1]))
    loss = GSPO(clip=0.2).loss(tokens)
    loss.total.backward()
    assert loss.total.item() == pytest.approx(-1.2 * 2 - math.exp(0.1))
    assert tokens.logp.grad.tolist() == pytest.approx([0.0, 0.0, -math.exp(0.1)])
    assert loss.stats.clipped.item() == 2


def test_gradient_is_that_of_the_sequence_objective():
    """Equation 5 written down as it stands: mean over completions of -s·A, s = exp(mean log-ratio), through autograd."""
    lengths, advantages = torch.tensor([2, 3]), tensor(1.5, -0.5)
    log_ratio = tensor(1e-4, -3e-4, 2e-4, -1e-4, 1e-4)  # means -1e-4 and 0.67e-4: inside the clip range
    sequence = torch.arange(2).repeat_interleave(lengths)
    weight = GSPO().weights(lengths, max_tokens=8).double()
    tokens = tokens_of(log_ratio, sequence, advantage=advantages[sequence], weight=weight[sequence])
    loss = GSPO().loss(tokens)
    loss.total.backward()

    direct = log_ratio.clone().requires_grad_()
    means = torch.stack([part.mean() for part in direct.split(lengths.tolist())])
    objective = (-means.exp() * advantages).mean()
    objective.backward()
    assert loss.total.item() == pytest.approx(objective.item(), rel=1e-6)
    torch.testing.assert_close(tokens.logp.grad, direct.grad, rtol=1e-6, atol=0)


@pytest.mark.parametrize(("log_ratio", "advantage", "clipped"), [(3.9e-4, 1, 0), (4.1e-4, 1, 3), (-2.9e-4, -1, 0), (-3.1e-4, -1, 3)])
def test_the_papers_clip_range_is_met_by_whole_completions(log_ratio, advantage, clipped):
    # float32, as in training; the tokens lie far apart, their mean decides
    spread = torch.tensor([0.5, -0.5, 0.0]) + log_ratio
    tokens = tokens_of(spread, torch.zeros(3, dtype=torch.int64), advantage=torch.full((3,), float(advantage)))
    loss = GSPO().loss(tokens)
    loss.total.backward()
    assert loss.stats.clipped.item() == clipped
    assert bool(tokens.logp.grad.any()) == (clipped == 0)


def test_a_completions_length_does_not_count():
    """Ten tokens of log-ratio 0.01 have the ratio of one: e^0.01, not e^0.1."""
    tokens = tokens_of(torch.full((10,), 0.01, dtype=torch.float64), torch.zeros(10, dtype=torch.int64), weight=torch.full((10,), 0.1))
    assert GSPO(clip=0.2).loss(tokens).total.item() == pytest.approx(-math.exp(0.01), rel=1e-6)


def test_weight_zero_has_no_part_in_a_completions_mean():
    tokens = tokens_of(tensor(0.1, 50.0, 0.3), torch.zeros(3, dtype=torch.int64), weight=tensor(0.5, 0.0, 0.5))
    assert GSPO(clip=0.5).loss(tokens).total.item() == pytest.approx(-math.exp(0.2))


def test_one_token_is_its_own_ratio():
    tokens = tokens_of(tensor(0.1), torch.tensor([7]))
    assert GSPO(clip=0.2).loss(tokens).total.item() == pytest.approx(-math.exp(0.1))


def test_on_policy_it_is_grpo(make_tokens):
    lengths = torch.tensor([3, 1, 6])
    tokens = make_tokens(lengths, GSPO().weights(lengths, max_tokens=8))
    tokens = replace(tokens, old_logp=tokens.logp.detach())
    gradients = []
    for algo in (GSPO(kl=0.1), GRPO(kl=0.1)):
        logp = tokens.logp.detach().clone().requires_grad_()
        algo.loss(replace(tokens, logp=logp)).total.backward()
        gradients.append(logp.grad)
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-14)


def test_weights_are_a_mean_over_completions():
    assert GSPO().weights(torch.tensor([1, 3]), max_tokens=8).tolist() == pytest.approx([1 / 2, 1 / 6])


def test_it_is_off_policy_by_default():
    assert GSPO().minibatches == 4


def test_tokens_without_a_sequence():
    with pytest.raises(ConfigError, match=r"GSPO\.loss: the tokens don't say which completion.*\n  fix: give TokenTerms\.sequence"):
        GSPO().loss(tokens_of(tensor(0.1), None))
