"""PPO as a whole."""

import math
from dataclasses import replace

import pytest
import torch

from tests.algos.helpers import step_advantages, tensor
from workbench.algos import PPO, StepTokens, TokenTerms, ValueTerms, check_algorithm, checked_token_advantages, checked_value_targets
from workbench.errors import ConfigError

# completions of 3 and 2 tokens with rewards 1 and 2
TOKENS = StepTokens(tensor(1.0, 1.0, 1.0, 2.0, 2.0), torch.tensor([0, 0, 0, 1, 1]), values=tensor(0.5, 0.25, 1.0, 2.0, 4.0))
KL = tensor(1.0, 2.0, 3.0, -1.0, 4.0)


def test_the_reward_sits_on_the_last_token():
    # δ = -0.25, 0.75, 1 - 1 and 4 - 2, 2 - 4; half of what comes next
    algo = PPO(gae_lambda=0.5, whiten=False)
    assert algo.token_advantages(TOKENS).tolist() == [0.125, 0.75, 0.0, 1.0, -2.0]
    assert algo.value_targets(TOKENS).tolist() == [0.625, 1.0, 1.0, 3.0, 2.0]
    assert algo.advantages(torch.tensor([[3.0], [1.0]])).tolist() == [[3.0], [1.0]]


def test_whitening_is_of_the_whole_batch_and_leaves_the_targets_alone():
    # 0.125, 0.75, 0, 1, -2: mean -0.025
    plain, white = PPO(gae_lambda=0.5, whiten=False), PPO(gae_lambda=0.5)
    values = [x + 0.025 for x in (0.125, 0.75, 0.0, 1.0, -2.0)]
    deviation = math.sqrt(sum(x**2 for x in values) / 4)
    advantages = checked_token_advantages(white, TOKENS)
    assert advantages.tolist() == pytest.approx([x / deviation for x in values], rel=1e-5)
    assert advantages.mean().item() == pytest.approx(0, abs=1e-15)
    assert advantages.std().item() == pytest.approx(1, rel=1e-5)
    assert torch.equal(checked_value_targets(white, TOKENS), plain.value_targets(TOKENS))


def test_kl_in_the_reward_is_taken_off_each_token():
    # with lam 1 and no values: the reward minus 0.1 times the KL to come; 6, 5, 3 and 3, 4
    tokens = replace(TOKENS, kl=KL, values=torch.zeros(5))
    algo = PPO(kl=0.1, gae_lambda=1.0, whiten=False)
    expected = [0.4, 0.5, 0.7, 1.7, 1.6]
    assert algo.token_advantages(tokens).tolist() == pytest.approx(expected)
    assert algo.value_targets(tokens).tolist() == pytest.approx(expected)
    # one token ahead: each answers for its own
    assert PPO(kl=0.1, gae_lambda=0.0, whiten=False).token_advantages(tokens).tolist() == pytest.approx([-0.1, -0.2, 0.7, 0.1, 1.6])


def test_kl_in_the_loss_alone():
    tokens, algo = replace(TOKENS, kl=KL), PPO(kl=0.5, kl_in="loss")
    assert torch.equal(algo.token_advantages(tokens), PPO().token_advantages(TOKENS))
    assert torch.equal(algo.value_targets(tokens), PPO().value_targets(TOKENS))
    # d = ln 0.5: k3 = 0.5 - 1 + ln 2, k2 = ln(2)²/2; ratio 1, A = 1
    x = tensor(0.5).log()
    terms = TokenTerms(x, x, x, tensor(1.0), tensor(1.0), ref_logp=tensor(0.25).log())
    k3, k2 = 0.5 - 1 + math.log(2), math.log(2) ** 2 / 2
    assert algo.loss(terms).total.item() == pytest.approx(-1 + 0.5 * k3)
    assert PPO(kl=0.5, kl_in="loss", kl_estimator="k2").loss(terms).total.item() == pytest.approx(-1 + 0.5 * k2)
    in_reward = PPO(kl=0.5).loss(terms)
    assert in_reward.total.item() == pytest.approx(-1)
    assert in_reward.stats.kl.item() == pytest.approx(k3)  # measured all the same


def test_clip_cap_and_weights():
    x = tensor(0.5).log()
    terms = TokenTerms(x + math.log(1.4), x, x - math.log(3.0), tensor(1.0), tensor(1.0))
    assert PPO(clip=(0.2, 0.3), importance_cap=1.5).loss(terms).total.item() == pytest.approx(-1.3 * 1.5)
    lengths = torch.tensor([1, 3])
    assert PPO().weights(lengths, max_tokens=8).tolist() == pytest.approx([1 / 4, 1 / 4])
    assert PPO(reduction="sequence").weights(lengths, max_tokens=8).tolist() == pytest.approx([1 / 2, 1 / 6])
    assert PPO(reduction="constant").weights(lengths, max_tokens=8).tolist() == pytest.approx([1 / 16, 1 / 16])


def test_on_policy_gradient_is_the_policy_gradient():
    """With one optimizer step per rollout, by the logits of a softmax policy: that of -mean(A·logp)."""
    algo, generator = PPO(minibatches=1, epochs=1), torch.Generator().manual_seed(1)
    logits = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(1)[torch.arange(5), torch.tensor([0, 3, 1, 2, 2])]
    advantage, old = algo.token_advantages(TOKENS), logp.detach()
    (plain,) = torch.autograd.grad(-(advantage * logp).mean(), logits, retain_graph=True)
    weight = algo.weights(torch.tensor([3, 2]), max_tokens=8).double().repeat_interleave(torch.tensor([3, 2]))
    (gradient,) = torch.autograd.grad(algo.loss(TokenTerms(logp, old, old, advantage, weight)).total, logits)
    torch.testing.assert_close(gradient, plain, rtol=1e-6, atol=0)  # weights are float32
    assert plain.any()


def test_values_are_clipped():
    # old 1, target 2: 1.5 is held at 1.2
    terms = ValueTerms(tensor(1.5), tensor(1.0), tensor(2.0), tensor(1.0))
    clipped, free = PPO().value_loss(terms), PPO(value_clip=None).value_loss(terms)
    assert clipped.total.item() == pytest.approx(0.8**2 / 2)
    assert (clipped.stats.clipped.item(), free.stats.clipped.item()) == (1, 0)
    assert free.total.item() == pytest.approx(0.5**2 / 2)


# kl 0.1, target 0.05 nats per token; 100 completions are a tenth of the horizon
@pytest.mark.parametrize(
    ("measured", "completions", "kl"),
    [
        (0.05, 100, 0.1),
        (0.055, 100, 0.1 * 1.01),  # a tenth too high
        (0.045, 100, 0.1 * 0.99),
        (5.0, 100, 0.1 * 1.02),  # far too high counts as a fifth
        (0.0, 100, 0.1 * 0.98),
        (-0.3, 100, 0.1 * 0.98),  # an estimate may be negative
        (5.0, 10**6, 0.1 * 1.2),  # a step larger than the horizon
        (0.0, 10**6, 0.1 * 0.8),  # stays above 0
    ],
)
def test_the_weight_of_the_kl_adapts(measured, completions, kl):
    algo = PPO(kl=0.1, kl_target=0.05, kl_horizon=1000, clip=0.1)
    after = algo.adapted(measured, completions)
    assert after.kl == pytest.approx(kl, rel=1e-12)
    assert replace(after, kl=0.1) == algo


def test_an_adapted_weight_comes_to_rest_at_the_target():
    """A toy in which the KL is inverse to its weight: rest at 0.5 / 0.05 = 10, from both sides."""
    for start in (0.5, 200.0):
        algo = PPO(kl=start, kl_target=0.05, kl_horizon=100)
        for _ in range(100):
            algo = algo.adapted(0.5 / algo.kl, completions=64)
        assert algo.kl == pytest.approx(10, rel=1e-3)


def test_without_a_target_the_weight_stays():
    algo = PPO(kl=0.1)
    assert algo.adapted(99.0, 64) is algo


def test_a_kl_that_is_no_number():
    with pytest.raises(ConfigError, match=r"measured kl=nan: that is no finite number\n  fix: give the KL of the step to the reference"):
        PPO(kl=0.1, kl_target=0.05).adapted(math.nan, 64)


def test_actor_and_critic_learn_which_of_two_choices_mattered():
    """Two tokens of four; the first one decides. Tables as models: logits per place; values after each first one, and at the start."""
    algo, generator = PPO(minibatches=2, epochs=2, whiten=False), torch.Generator().manual_seed(0)
    logits, table = torch.zeros(2, 4, requires_grad=True), torch.zeros(5, requires_grad=True)
    optimizer, critic = torch.optim.SGD([logits], lr=1.0), torch.optim.SGD([table], lr=1.0)
    place, sequence = torch.tensor([0, 1]).repeat(64), torch.arange(64).repeat_interleave(2)
    lengths = torch.full((32,), 2)
    weight = algo.weights(lengths, max_tokens=2).repeat_interleave(lengths)
    for _ in range(40):
        old = logits.detach().log_softmax(1)
        arms = torch.multinomial(old.exp(), 64, replacement=True, generator=generator).T  # (64, 2)
        chosen, state = arms.flatten(), torch.stack([torch.full((64,), 4), arms[:, 0]], dim=1).flatten()
        values = table.detach()[state]
        tokens = StepTokens((arms[:, 0] == 2).float().repeat_interleave(2), sequence, values=values)
        advantage, target = checked_token_advantages(algo, tokens), checked_value_targets(algo, tokens).float()
        for part in list(torch.arange(128).chunk(algo.minibatches)) * algo.epochs:
            before = old[place, chosen][part]
            terms = TokenTerms(logits.log_softmax(1)[place, chosen][part], before, before, advantage[part], weight)
            learns = ValueTerms(table[state][part], values[part], target[part], weight)
            for loss, stepper in ((algo.loss(terms), optimizer), (algo.value_loss(learns), critic)):
                stepper.zero_grad()
                loss.total.backward()
                stepper.step()
    first, second = logits.detach().softmax(1)
    assert first[2] > 0.9
    assert second.max() < 0.4  # the critic took the credit off it
    assert table[2] > 0.9
    assert table[4] > 0.9
    assert max(table[0], table[1], table[3]) < 0.3


@pytest.mark.parametrize(("kl", "reads"), [(0.0, False), (0.1, True)])
@pytest.mark.parametrize("kl_in", ["reward", "loss"])
def test_what_the_trainer_has_to_give(kl, reads, kl_in):
    algo = check_algorithm(PPO(kl=kl, kl_in=kl_in))
    assert (algo.needs_critic, algo.needs_reference, algo.skips_zero_advantage) == (True, reads, False)


def test_completions_without_a_token():
    algo = PPO(group_size=2, gae_lambda=1.0, whiten=False, kl=0.1)
    rewards = tensor(9.0, 1.0, 0.0, 9.0).view(2, 2)
    assert step_advantages(algo, rewards, torch.tensor([[0, 2], [1, 0]])).tolist() == [1.0, 1.0, 0.0]
    assert step_advantages(replace(algo, whiten=True), rewards, torch.zeros(2, 2, dtype=torch.int64)).shape == (0,)


def test_terms_that_are_missing():
    with pytest.raises(ConfigError, match=r"PPO without values: its advantages need a critic's\n  fix: give StepTokens\.values"):
        PPO().token_advantages(replace(TOKENS, values=None))
    with pytest.raises(ConfigError, match=r"kl=0\.1: there are no reference log-probabilities\n  fix: give StepTokens\.kl"):
        PPO(kl=0.1).value_targets(TOKENS)
    x = tensor(0.0)
    with pytest.raises(ConfigError, match=r"kl=0\.1: there are no reference log-probabilities\n  fix: give TokenTerms\.ref_logp"):
        PPO(kl=0.1, kl_in="loss").loss(TokenTerms(x, x, x, x, x))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"group_size": 0}, r"group_size=0: it is the number of completions per prompt"),
        ({"clip": 0}, r"clip=0"),
        ({"importance_cap": 0}, r"importance_cap=0"),
        ({"minibatches": 0}, r"minibatches=0"),
        ({"epochs": 0}, r"epochs=0: it is the number of passes over a rollout"),
        ({"kl": -0.1}, r"kl=-0\.1"),
        ({"kl_in": "advantage"}, r"kl_in='advantage': known are reward, loss"),
        ({"kl_estimator": "k9"}, r"kl_estimator='k9': known are k1, k2, k3"),
        ({"kl": 0.1, "kl_in": "loss", "kl_estimator": "k1"}, r"kl=0\.1 with kl_estimator='k1': the gradient of k1 has expectation zero"),
        ({"kl_target": 0.05}, r"kl_target=0\.05 with kl=0: kl adapts by factors, and 0 stays 0\n  fix: give kl=0\.05, say, to begin with"),
        ({"kl": 0.1, "kl_target": 0}, r"kl_target=0: it is a KL to the reference, nats per token\n.*None lets kl stay as it is"),
        ({"kl_horizon": 0}, r"kl_horizon=0: it is a number of completions"),
        ({"discount": 1.1}, r"discount=1\.1: it is a factor from token to token, from 0 to 1\n  fix: give discount=1\.0"),
        ({"gae_lambda": -0.1}, r"gae_lambda=-0\.1: it is a factor"),
        ({"gae_lambda": float("nan")}, r"gae_lambda=nan"),
        (
            {"value_clip": 0},
            r"value_clip=0: a value may move by so much in a step\n  fix: give a finite number above 0; None switches it off",
        ),
        ({"whiten": 1}, r"whiten=1: that is a int\n  fix: give True or False"),
        ({"reduction": "mean"}, r"reduction='mean': known are token, sequence, constant"),
    ],
)
def test_values_that_cannot_work(values, message):
    with pytest.raises(ConfigError, match=message):
        PPO(**values)


def test_values_that_work():
    assert PPO(value_clip=None, discount=0, gae_lambda=0, kl_estimator="k1").value_clip is None
    assert PPO(kl=0.1, kl_target=6, group_size=4, clip=(0.2, 0.28)).kl_target == 6


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("cliprange", "clip"),
        ("cliprange_value", "value_clip"),
        ("lam", "gae_lambda"),
        ("gamma", "discount"),
        ("num_ppo_epochs", "epochs"),
        ("ppo_epochs", "epochs"),
        ("num_iterations", "epochs"),
        ("num_mini_batches", "minibatches"),
        ("init_kl_coef", "kl"),
        ("kl_coef", "kl"),
        ("use_kl_loss", "kl_in"),
        ("horizon", "kl_horizon"),
        ("loss_agg_mode", "reduction"),
    ],
)
def test_names_of_other_libraries(theirs, ours):
    with pytest.raises(ConfigError, match=rf"PPO\({theirs}=\.\.\.\): it takes (.|\n)*fix: write {ours}=\.\.\."):
        PPO(**{theirs: 1})


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "vf_coef",
            r"PPO\(vf_coef=\.\.\.\): the critic has an optimizer of its own, so its loss has no weight\n  fix: leave it out, and set",
        ),
        ("value_loss_coef", r"the critic has an optimizer of its own"),
        ("adap_kl_ctrl", r"the weight of the KL adapts where a target is given\n.*write kl_target=0\.05, nats per token"),
        ("target", r"in nats per token here, not per completion\n  fix: write kl_target=\.\.\., divided by the usual length"),
        ("target_kl", r"a step does not stop early at a KL; the weight of the KL can adapt to one\n  fix: write kl_target=\.\.\."),
        ("early_stopping", r"a step does not stop early at a KL\n  fix: leave it out"),
    ],
)
def test_what_other_libraries_have_and_this_one_does_not(name, message):
    with pytest.raises(ConfigError, match=message):
        PPO(**{name: 1})
