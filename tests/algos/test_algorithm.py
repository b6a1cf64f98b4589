"""An algorithm of one's own, as written in a notebook cell, and what its author is told."""

import pytest
import torch

from workbench.algos import (
    GRPO,
    Algorithm,
    Loss,
    StepTokens,
    TokenTerms,
    ValueLoss,
    ValueTerms,
    check_algorithm,
    checked_advantages,
    checked_loss,
    checked_shaped,
    checked_token_advantages,
    checked_value_loss,
    checked_value_targets,
    reduce_loss,
    reduce_value_loss,
)
from workbench.errors import ConfigError


class Reinforce(Algorithm):
    group_size = 2

    def advantages(self, rewards_BG):
        return rewards_BG - rewards_BG.mean()

    def loss(self, tokens):
        return reduce_loss(tokens, -tokens.advantage * tokens.logp)


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


def test_the_other_hooks_change_nothing_unless_written():
    algo, rewards = check_algorithm(Reinforce()), torch.tensor([[1.0, 0.0]])
    tokens = StepTokens(torch.tensor([0.5, 0.5, -0.5]), torch.tensor([0, 0, 1]))
    assert checked_shaped(algo, rewards, torch.tensor([[2, 1]]), None, 8) is rewards
    assert checked_token_advantages(algo, tokens) is tokens.advantage
    assert (algo.sampling_rounds, algo.epochs, algo.needs_critic) == (1, 1, False)
    assert algo.adapted(kl=5.0, completions=64) is algo


def test_a_hook_of_ones_own():
    class Brief(Reinforce):
        def shaped(self, rewards_BG, lengths_BG, kl_BG, max_tokens):
            return rewards_BG - lengths_BG / max_tokens

        def token_advantages(self, tokens):
            return tokens.advantage - tokens.kl

    assert checked_shaped(Brief(), torch.tensor([[1.0, 0.0]]), torch.tensor([[2, 4]]), None, 8).tolist() == [[0.75, -0.5]]
    tokens = StepTokens(torch.tensor([1.0, 1.0]), torch.tensor([0, 0]), torch.tensor([0.5, 0.0]))
    assert checked_token_advantages(Brief(), tokens).tolist() == [0.5, 1.0]


class Critical(Reinforce):
    """Actor and critic in the plainest form."""

    needs_critic = True

    def token_advantages(self, tokens):
        return tokens.advantage - tokens.values

    def value_targets(self, tokens):
        return tokens.advantage


def test_a_critic_of_ones_own():
    algo, tokens = check_algorithm(Critical()), StepTokens(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]), values=torch.tensor([0.5, 0.5]))
    assert checked_token_advantages(algo, tokens).tolist() == [0.5, -0.5]
    assert checked_value_targets(algo, tokens).tolist() == [1.0, 0.0]
    value = torch.tensor([0.5, 0.25], requires_grad=True)
    loss = checked_value_loss(algo, ValueTerms(value, value.detach(), torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])))
    assert loss.total.item() == pytest.approx((0.5**2 / 2 + 0.25**2 / 2) / 2)
    loss.total.backward()
    assert value.grad.tolist() == [-0.25, 0.125]


def test_an_algorithm_with_a_critic_has_to_say_what_it_learns():
    tokens = StepTokens(torch.zeros(1), torch.tensor([0]))
    with pytest.raises(ConfigError, match=r"Reinforce\.value_targets: it is not written, and needs_critic is True\n  fix: return"):
        Reinforce().value_targets(tokens)
    with pytest.raises(ConfigError, match=r"Broken\.value_targets: it is not written"):
        check_algorithm(Broken(needs_critic=True))  # before any step


def test_both_methods_are_required():
    class Half(Algorithm):
        def advantages(self, rewards_BG):
            return rewards_BG

    with pytest.raises(TypeError, match=r"abstract method '?loss"):
        Half()


class Broken(Reinforce):
    needs_critic = False

    def __init__(self, **parts):
        self.__dict__.update(parts)


@pytest.mark.parametrize(
    ("algo", "message"),
    [
        (GRPO, r"algo=GRPO: that is the class\n  fix: give an object: GRPO\(\)"),
        ("grpo", r"algo='grpo': str is no Algorithm\n  fix: give wb\.GRPO\(\)"),
        (Broken(group_size=0), r"group_size=0: it is the number of completions per prompt"),
        (Broken(minibatches="2"), r"minibatches='2'"),
        (Broken(epochs=0), r"epochs=0: it is the number of passes over a rollout"),
        (Broken(sampling_rounds=0), r"sampling_rounds=0: it is how often a step may draw prompts"),
        (Broken(sampling_rounds=2, group_size=1), r"sampling_rounds=2 with group_size=1: dynamic sampling leaves out groups without"),
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
    ("shaped", "message"),
    [
        (lambda r, *_: r.mean(1), r"Broken\.shaped: shape \(2,\) from rewards of shape \(2, 2\)\n  fix: return one reward per completion"),
        (lambda r, *_: r.tolist(), r"Broken\.shaped: it returned list"),
        (lambda r, lengths, *_: r / lengths, r"Broken\.shaped: inf from the reward 1\.0 of 0 tokens\n  fix: keep rewards finite"),
    ],
)
def test_shaped_rewards_that_cannot_work(shaped, message):
    with pytest.raises(ConfigError, match=message):
        checked_shaped(Broken(shaped=shaped), torch.ones(2, 2), torch.tensor([[1, 2], [0, 3]]), None, 8)


@pytest.mark.parametrize(
    ("token_advantages", "message"),
    [
        (
            lambda t: t.advantage[None],
            r"Broken\.token_advantages: shape \(1, 3\) from advantages of shape \(3,\)\n.*one advantage per token",
        ),
        (lambda t: 0.0, r"Broken\.token_advantages: it returned float"),
        (lambda t: t.advantage / t.sequence, r"Broken\.token_advantages: nan in completion 0, whose advantage is 0\.0"),
    ],
)
def test_token_advantages_that_cannot_work(token_advantages, message):
    with pytest.raises(ConfigError, match=message):
        checked_token_advantages(Broken(token_advantages=token_advantages), StepTokens(torch.zeros(3), torch.tensor([1, 0, 1])))


@pytest.mark.parametrize(
    ("value_targets", "message"),
    [
        (lambda t: t.advantage[:2], r"Broken\.value_targets: shape \(2,\) from advantages of shape \(3,\)\n.*one target per token"),
        (lambda t: None, r"Broken\.value_targets: it returned NoneType"),
        (
            lambda t: t.advantage / t.sequence,
            r"Broken\.value_targets: nan in completion 0\n  fix: keep targets finite",
        ),
    ],
)
def test_value_targets_that_cannot_work(value_targets, message):
    with pytest.raises(ConfigError, match=message):
        checked_value_targets(Broken(value_targets=value_targets), StepTokens(torch.zeros(3), torch.tensor([1, 0, 1])))


@pytest.mark.parametrize(
    ("value_loss", "message"),
    [
        (
            lambda t: reduce_loss(TokenTerms(*[t.value] * 5), t.value),
            r"Broken\.value_loss: it returned Loss\n  fix: return reduce_value",
        ),
        (lambda t: ValueLoss(t.value, reduce_value_loss(t, t.value).stats), r"the total has shape \(2,\)\n  fix: return reduce_value_loss"),
        (lambda t: reduce_value_loss(t, t.value.detach()), r"the total has no gradient\n  fix: make it from tokens\.value"),
    ],
)
def test_value_losses_that_cannot_work(value_loss, message):
    value = torch.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(ConfigError, match=message):
        checked_value_loss(Broken(value_loss=value_loss), ValueTerms(value, *[torch.ones(2)] * 3))


def test_step_tokens_of_different_shapes_are_refused():
    with pytest.raises(ConfigError, match=r"StepTokens with advantage of shape \(3,\): other shapes: \{'kl': \(2,\)\}"):
        StepTokens(torch.zeros(3), torch.zeros(3, dtype=torch.int64), torch.zeros(2))


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
