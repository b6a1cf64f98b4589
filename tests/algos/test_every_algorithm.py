"""What holds for every algorithm, by its own hooks from rewards to a gradient."""

from dataclasses import fields, replace

import pytest
import torch

from tests.algos.helpers import padded, split_losses, step_advantages, tensor
from workbench.algos import DAPO, GRPO, GSPO, PPO, RLOO, DrGRPO, LossStats, ReinforcePlusPlus, TokenTerms, check_algorithm
from workbench.errors import ConfigError

ALGORITHMS = [
    GRPO(kl=0.1),
    DrGRPO(),
    RLOO(),
    RLOO(kl=0.1),
    DAPO(),
    GSPO(clip=(0.05, 0.1), kl=0.1),
    ReinforcePlusPlus(),
    ReinforcePlusPlus(kl=0.1),
    ReinforcePlusPlus(baseline=True, kl=0.1),
    PPO(),
    PPO(kl=0.1),
    PPO(kl=0.1, kl_in="loss", reduction="sequence"),
]


def name_of(algo):
    return "-".join(str(part) for part in (type(algo).__name__, algo.kl, getattr(algo, "baseline", ""), getattr(algo, "kl_in", "")) if part)


every_algorithm = pytest.mark.parametrize("algo", ALGORITHMS, ids=name_of)


@every_algorithm
@pytest.mark.parametrize("parts", [2, 5])
def test_any_split_into_micro_batches_is_the_same_step(make_tokens, algo, parts):
    lengths = torch.tensor([5, 1, 9, 3, 14, 2])
    tokens = make_tokens(lengths, algo.weights(lengths, max_tokens=16))
    whole = algo.loss(tokens)
    whole.total.backward()
    losses, gradient = split_losses(algo.loss, tokens, parts)
    assert sum(loss.total.item() for loss in losses) == pytest.approx(whole.total.item(), abs=1e-14)
    torch.testing.assert_close(gradient, tokens.logp.grad, rtol=0, atol=1e-15)
    merged, direct = LossStats.merge([loss.stats for loss in losses]).summary(), whole.stats.summary()
    for f in fields(direct):
        assert getattr(merged, f.name) == pytest.approx(getattr(direct, f.name), rel=1e-12), f.name


@every_algorithm
def test_padding_changes_nothing(make_tokens, algo):
    lengths = torch.tensor([3, 6, 1])
    flat = make_tokens(lengths, algo.weights(lengths, max_tokens=8))
    tokens, mask = padded(flat, lengths)
    loss, expected = algo.loss(tokens), algo.loss(flat)
    loss.total.backward()
    expected.total.backward()
    assert loss.total.item() == pytest.approx(expected.total.item(), abs=1e-14)
    torch.testing.assert_close(tokens.logp.grad[mask], flat.logp.grad, rtol=0, atol=1e-15)
    assert not tokens.logp.grad[~mask].any()
    assert loss.stats.clipped == expected.stats.clipped


@every_algorithm
def test_on_policy_gradient_is_minus_weight_times_advantage(make_tokens, algo):
    """At the old policy, without a difference to the engine and at the reference, where no KL term has a gradient."""
    lengths = torch.tensor([4, 2, 7])
    weights = algo.weights(lengths, max_tokens=8).double()
    tokens = make_tokens(lengths, weights)
    old = tokens.logp.detach()
    algo.loss(replace(tokens, old_logp=old, engine_logp=old, ref_logp=old)).total.backward()
    torch.testing.assert_close(tokens.logp.grad, -tokens.weight * tokens.advantage, rtol=1e-12, atol=1e-15)


@every_algorithm
@pytest.mark.parametrize("reward", [0.1, 0.0, 3.0])
def test_equal_rewards_are_no_signal(algo, reward):
    """Exactly zero, so that the trainer can see it. Lengths differ; none is long enough to be punished. A critic has learnt the reward."""
    rewards, lengths = torch.full((2, 3), reward, dtype=torch.float64), torch.tensor([[1, 5, 2], [3, 1, 4]])
    known = torch.full((16,), reward, dtype=torch.float64)
    advantages = step_advantages(replace(algo, group_size=3), rewards, lengths, values_T=known)
    assert not advantages.any()


@every_algorithm
def test_a_pair_of_single_tokens(algo):
    algo = replace(algo, group_size=2)
    better, worse = step_advantages(algo, tensor(1.0, 0.0)[None], torch.ones(1, 2, dtype=torch.int64)).tolist()
    assert better == pytest.approx(-worse)
    assert better > 0


@every_algorithm
def test_the_better_answer_becomes_likelier(algo):
    """A bandit of four arms, one of them pays; the reference is where it began."""
    algo, generator = replace(algo, group_size=16), torch.Generator().manual_seed(0)
    logits, uniform = torch.zeros(4, requires_grad=True), torch.full((64,), 0.25).log()
    ones = torch.ones(4, 16, dtype=torch.int64)
    for _ in range(20):
        old = logits.detach().log_softmax(0)
        arms = torch.multinomial(old.exp().expand(4, 4), 16, replacement=True, generator=generator)  # (B, G)
        chosen, logp = arms.flatten(), logits.log_softmax(0)
        advantage = step_advantages(algo, (arms == 2).double(), ones, kl_T=(old[chosen] - uniform).double(), max_tokens=2)
        weight = algo.weights(ones.flatten(), max_tokens=1)
        terms = TokenTerms(logp[chosen], old[chosen], old[chosen], advantage, weight, uniform, torch.arange(64))
        (gradient,) = torch.autograd.grad(algo.loss(terms).total, logits)
        logits = (logits.detach() - gradient).requires_grad_()
    assert logits.softmax(0)[2] > 0.7


@every_algorithm
def test_knobs_are_checked_when_they_are_turned(algo):
    assert check_algorithm(replace(algo, kl=0.5)).needs_reference
    assert not replace(algo, kl=0.0).needs_reference
    with pytest.raises(ConfigError, match=r"kl=-1"):
        replace(algo, kl=-1)
    with pytest.raises(ConfigError, match=r"group_size=0"):
        replace(algo, group_size=0)
    with pytest.raises(ConfigError, match=r"importance_cap=0"):
        replace(algo, importance_cap=0)
