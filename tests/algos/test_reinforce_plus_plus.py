"""REINFORCE++ as a whole."""

import math

import pytest
import torch

from tests.algos.helpers import step_advantages, tensor
from workbench.algos import ReinforcePlusPlus, StepTokens, TokenTerms
from workbench.errors import ConfigError


def test_advantages_are_normalised_over_all_tokens():
    # rewards 3 (one token) and 1 (three tokens): mean 1.5; deviations 1.5, -0.5 three times; variance (2.25 + 0.75) / 3 = 1
    advantages = step_advantages(ReinforcePlusPlus(group_size=1), tensor(3.0, 1.0)[:, None], torch.tensor([[1], [3]]))
    assert advantages.tolist() == pytest.approx([1.5, -0.5, -0.5, -0.5], rel=1e-5)


def test_the_groups_mean_first():
    # groups (2, 0) and (10, 10): ±1, 0, 0; all of one token: mean 0, variance 2/3
    rewards, lengths = tensor(2.0, 0.0, 10.0, 10.0).view(2, 2), torch.ones(2, 2, dtype=torch.int64)
    a = math.sqrt(3 / 2)
    assert step_advantages(ReinforcePlusPlus(baseline=True), rewards, lengths).tolist() == pytest.approx([a, -a, 0, 0], rel=1e-5)
    # without it the easy prompt's completions are all better than average
    assert (step_advantages(ReinforcePlusPlus(), rewards, lengths) > 0).tolist() == [False, False, True, True]


def test_kl_is_a_reward_of_each_token():
    """A token answers for the KL from it to the end of its completion, not for what came before."""
    # completion 0: reward 1, kl (1, 2, 3), to come 6, 5, 3; completion 1: reward 0, kl (4), to come 4; weight 0.1
    # so 0.4, 0.5, 0.7, -0.4: mean 0.3, squares 0.01 + 0.04 + 0.16 + 0.49 = 0.7, variance 0.7 / 3
    tokens = StepTokens(tensor(1.0, 1.0, 1.0, 0.0), torch.tensor([0, 0, 0, 1]), tensor(1.0, 2.0, 3.0, 4.0))
    advantages = ReinforcePlusPlus(kl=0.1).token_advantages(tokens)
    expected = [x / math.sqrt(0.7 / 3) for x in (0.1, 0.2, 0.4, -0.7)]
    assert advantages.tolist() == pytest.approx(expected, rel=1e-5)


def test_with_baseline_the_kl_is_in_the_loss_alone():
    tokens = StepTokens(tensor(1.0, -1.0), torch.tensor([0, 1]), tensor(5.0, -7.0))
    algo = ReinforcePlusPlus(baseline=True, kl=0.5)
    assert torch.equal(algo.token_advantages(tokens), ReinforcePlusPlus(baseline=True).token_advantages(tokens))
    # d = ln 0.5: k2 = ln(2)²/2; ratio 1, A = 1
    x = tensor(0.5).log()
    terms = TokenTerms(x, x, x, tensor(1.0), tensor(1.0), ref_logp=tensor(0.25).log())
    assert algo.loss(terms).total.item() == pytest.approx(-1 + 0.5 * math.log(2) ** 2 / 2)
    assert ReinforcePlusPlus(kl=0.5).loss(terms).total.item() == pytest.approx(-1)


def test_clip_and_weights():
    x = tensor(0.5).log()
    terms = TokenTerms(x + math.log(1.4), x, x, tensor(1.0), tensor(1.0))
    assert ReinforcePlusPlus(clip=(0.2, 0.3)).loss(terms).total.item() == pytest.approx(-1.3)
    assert ReinforcePlusPlus().weights(torch.tensor([1, 3]), max_tokens=8).tolist() == pytest.approx([1 / 4, 1 / 4])


def test_completions_without_a_token():
    lengths = torch.tensor([[0, 2], [1, 0]])
    advantages = step_advantages(ReinforcePlusPlus(kl=0.1), tensor(9.0, 1.0, 0.0, 9.0).view(2, 2), lengths, kl_T=tensor(0.0, 0.0, 0.0))
    # 1, 1, 0: mean 2/3, variance (2/9 + 4/9) / 2 = 1/3
    assert advantages.tolist() == pytest.approx([math.sqrt(3) / 3, math.sqrt(3) / 3, -2 * math.sqrt(3) / 3], rel=1e-5)
    nothing = step_advantages(ReinforcePlusPlus(kl=0.1), torch.ones(1, 2, dtype=torch.float64), torch.zeros(1, 2, dtype=torch.int64))
    assert nothing.shape == (0,)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_size": 0}, r"group_size=0: it is the number of completions per prompt"),
        ({"group_size": 1, "baseline": True}, r"group_size=1: the baseline is the mean of a prompt's group"),
        ({"baseline": "yes"}, r"baseline='yes': that is a str\n  fix: give True or False"),
        ({"kl": -0.1}, r"kl=-0\.1"),
        ({"clip": 0}, r"clip=0"),
        ({"importance_cap": 0}, r"importance_cap=0"),
        ({"minibatches": 0}, r"minibatches=0"),
        ({"kl_estimator": "k3"}, r"it takes group_size, clip, kl, importance_cap, minibatches, baseline"),
    ],
)
def test_values_that_cannot_work(values, message):
    with pytest.raises(ConfigError, match=message):
        ReinforcePlusPlus(**values)


def test_kl_without_a_reference():
    tokens = StepTokens(tensor(1.0), torch.tensor([0]))
    with pytest.raises(ConfigError, match=r"kl=0\.1: there are no reference log-probabilities\n  fix: give StepTokens\.kl"):
        ReinforcePlusPlus(kl=0.1).token_advantages(tokens)


@pytest.mark.parametrize(
    ("baseline", "kl", "reads_and_skips"),
    [(False, 0.0, (False, True)), (False, 0.1, (True, True)), (True, 0.0, (False, True)), (True, 0.1, (True, False))],
)
def test_what_the_trainer_may_leave_out(baseline, kl, reads_and_skips):
    algo = ReinforcePlusPlus(baseline=baseline, kl=kl)
    assert (algo.needs_reference, algo.skips_zero_advantage) == reads_and_skips
