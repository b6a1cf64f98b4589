"""Dr. GRPO as a whole."""

import pytest
import torch

from workbench.algos import GRPO, DrGRPO, TokenTerms


def test_advantages_are_not_divided_by_the_deviation():
    assert DrGRPO().advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0]])).tolist() == [
        [0.5, -0.5, -0.5, 0.5],
        [0.25, 0.25, 0.25, -0.75],
    ]


def test_constant_length_is_the_runs_or_ones_own():
    lengths = torch.tensor([1, 30])
    assert DrGRPO().weights(lengths, max_tokens=50).tolist() == pytest.approx([1 / 100, 1 / 100])
    assert DrGRPO(length=20).weights(lengths, max_tokens=50).tolist() == pytest.approx([1 / 40, 1 / 40])


def test_no_bias_by_length():
    """A token of a long wrong answer is pushed down as hard as one of a short wrong answer; GRPO's is pushed less."""
    lengths = torch.tensor([2, 10])

    def gradient_per_token(algo):
        logp = torch.full((12,), -1.0, requires_grad=True)
        weight = algo.weights(lengths, max_tokens=10).repeat_interleave(lengths)
        algo.loss(TokenTerms(logp, logp.detach(), logp.detach(), torch.full((12,), -1.0), weight)).total.backward()
        return logp.grad[0].item(), logp.grad[-1].item()

    assert gradient_per_token(DrGRPO()) == pytest.approx((1 / 20, 1 / 20))
    assert gradient_per_token(GRPO()) == pytest.approx((1 / 4, 1 / 20))
