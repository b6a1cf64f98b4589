"""RLOO as a whole."""

from dataclasses import replace

import pytest
import torch

from tests.algos.helpers import step_advantages, tensor
from workbench.algos import RLOO, DrGRPO, TokenTerms
from workbench.errors import ConfigError


def test_the_baseline_is_the_mean_of_the_others():
    # 3 - (1 + 2)/2, 1 - (3 + 2)/2, 2 - (3 + 1)/2
    assert RLOO(group_size=3).advantages(tensor(3.0, 1.0, 2.0)[None])[0].tolist() == [1.5, -1.5, 0.0]


def test_a_pair_is_each_others_baseline():
    assert RLOO(group_size=2).advantages(tensor(1.0, 0.25)[None])[0].tolist() == [0.75, -0.75]


def test_kl_of_the_whole_completion_is_taken_off_its_reward():
    # sums of k1 per completion: 0.5 + 1.5 = 2 and -1; rewards 1 - 0.1·2 = 0.8 and 0 + 0.1·1 = 0.1
    algo = RLOO(group_size=2, kl=0.1)
    shaped = algo.shaped(tensor(1.0, 0.0)[None], torch.tensor([[2, 1]]), tensor(2.0, -1.0)[None], 8)
    assert shaped[0].tolist() == pytest.approx([0.8, 0.1])
    advantages = step_advantages(algo, tensor(1.0, 0.0)[None], torch.tensor([[2, 1]]), kl_T=tensor(0.5, 1.5, -1.0))
    assert advantages.tolist() == pytest.approx([0.7, 0.7, -0.7])


def test_kl_alone_is_a_signal():
    """Equal rewards: the completion nearer to the reference is preferred."""
    advantages = step_advantages(RLOO(group_size=2, kl=0.5), tensor(1.0, 1.0)[None], torch.tensor([[1, 1]]), kl_T=tensor(2.0, 0.0))
    assert advantages.tolist() == [-1.0, 1.0]


def test_without_kl_rewards_stay():
    rewards = tensor(1.0, 0.0)[None]
    assert RLOO().shaped(rewards, torch.tensor([[2, 1]]), None, 8) is rewards


def test_gradient_is_the_leave_one_out_policy_gradient():
    """Of two completions of a softmax policy: the sum over i of -A_i·∇log π(y_i), over N·max_tokens."""
    lengths, actions = torch.tensor([3, 2]), torch.tensor([0, 2, 1, 3, 3])
    logits = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    algo = RLOO(group_size=2)
    advantage = step_advantages(algo, tensor(1.0, 0.25)[None], lengths[None])
    logp = logits.log_softmax(1)[torch.arange(5), actions]
    weight = algo.weights(lengths, max_tokens=10).double().repeat_interleave(lengths)
    algo.loss(TokenTerms(logp, logp.detach(), logp.detach(), advantage, weight)).total.backward()
    onehot = torch.nn.functional.one_hot(actions, 4).double()
    by_hand = tensor(0.75, 0.75, 0.75, -0.75, -0.75)[:, None] * (logits.detach().softmax(1) - onehot) / (2 * 10)
    torch.testing.assert_close(logits.grad, by_hand, rtol=1e-6, atol=0)


def test_loss_by_hand():
    # engine 0.25 against 0.5 now: importance 2, cut at 1.5; -A·log π = -2·ln 0.5; no ratio although old_logp differs
    logp = tensor(0.5).log().requires_grad_()
    tokens = TokenTerms(logp, tensor(0.5).log(), tensor(0.25).log(), tensor(2.0), tensor(0.1), ref_logp=tensor(0.25).log())
    loss = RLOO(kl=0.3, importance_cap=1.5).loss(tokens)
    loss.total.backward()
    assert loss.total.item() == pytest.approx(0.1 * 1.5 * 2 * 0.6931471805599453)
    assert logp.grad.item() == pytest.approx(-0.1 * 1.5 * 2)  # the reference has no part in the loss
    assert loss.stats.kl.item() == pytest.approx(0.6931471805599453)  # but is measured: ln(0.5 / 0.25)
    assert loss.stats.clipped.item() == 0


def test_on_policy_it_is_dr_grpo_times_g_over_g_minus_1(make_tokens):
    lengths = torch.tensor([3, 1, 4])
    tokens = make_tokens(lengths, RLOO().weights(lengths, max_tokens=4), reference=False)
    tokens = replace(tokens, old_logp=tokens.logp.detach())
    gradients = []
    for algo in (RLOO(group_size=3), DrGRPO(group_size=3)):
        advantage = step_advantages(algo, tensor(1.0, 0.0, 0.5)[None], lengths[None], max_tokens=4)
        logp = tokens.logp.detach().clone().requires_grad_()
        algo.loss(replace(tokens, logp=logp, advantage=advantage)).total.backward()
        gradients.append(logp.grad)
    torch.testing.assert_close(gradients[0], gradients[1] * 3 / 2, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_size": 1}, r"group_size=1: the baseline is the mean of a prompt's group"),
        ({"kl": -1}, r"kl=-1: a weight is a finite number"),
        ({"importance_cap": 0}, r"importance_cap=0"),
        ({"minibatches": 2}, r"RLOO\(minibatches=\.\.\.\): it takes group_size, kl, importance_cap"),
        ({"rloo_k": 4}, r"fix: write group_size=\.\.\."),
    ],
)
def test_values_that_cannot_work(values, message):
    with pytest.raises(ConfigError, match=message):
        RLOO(**values)


def test_kl_without_a_reference():
    with pytest.raises(ConfigError, match=r"kl=0\.1: there are no reference log-probabilities\n  fix: give kl_BG, or set kl=0"):
        RLOO(kl=0.1).shaped(tensor(1.0)[None], torch.tensor([[1]]), None, 8)


def test_what_the_trainer_may_leave_out():
    assert (RLOO().needs_reference, RLOO().skips_zero_advantage) == (False, True)
    assert (RLOO(kl=0.1).needs_reference, RLOO(kl=0.1).skips_zero_advantage) == (True, True)
