"""The whole loss: by hand, however it is split, however it is padded; and what is recorded of it."""

import math
from dataclasses import fields, replace

import pytest
import torch

from tests.algos.helpers import padded, pick, split_losses, tensor
from workbench.algos import LossStats, TokenTerms, policy_loss, reduce_loss, token_weights
from workbench.errors import ConfigError
from workbench.records import Step

FULL = {"clip": (0.2, 0.28), "kl": 0.1, "kl_estimator": "k3", "importance_cap": 1.5}


def test_loss_by_hand():
    # probabilities: policy 0.6, 0.3; old 0.5, 0.5; engine 0.25, 0.5; reference 0.3, 0.3. Clip 0.2, kl 0.1 of k3, cap 1.5
    tokens = TokenTerms(
        logp=tensor(0.6, 0.3).log(),
        old_logp=tensor(0.5, 0.5).log(),
        engine_logp=tensor(0.25, 0.5).log(),
        advantage=tensor(2.0, -1.0),
        weight=tensor(0.5, 0.25),
        ref_logp=tensor(0.3, 0.3).log(),
    )
    loss = policy_loss(tokens, clip=(0.2, 0.2), kl=0.1, kl_estimator="k3", importance_cap=1.5)
    # token 1: importance min(2, 1.5) = 1.5; ratio 1.2 (not clipped), surrogate -2.4; d = ln 0.5, k3 = 0.5 - 1 + ln 2
    # token 2: importance 1; ratio 0.6 < 0.8 with A < 0: clipped, surrogate 0.8; k3 = 0
    k3 = 0.5 - 1 + math.log(2)
    assert loss.total.item() == pytest.approx(0.5 * (1.5 * -2.4 + 0.1 * k3) + 0.25 * 0.8, abs=1e-12)
    summary = loss.stats.summary()
    assert summary.loss == pytest.approx(loss.total.item())
    assert summary.tokens == 2
    assert summary.clip_fraction == 0.5
    assert summary.kl == pytest.approx(k3 / 2)
    assert summary.entropy == pytest.approx(math.log(2))  # both -ln 0.5
    assert summary.importance_mean == pytest.approx(1.5)  # (2 + 1) / 2, before truncation
    assert summary.importance_max == pytest.approx(2.0)
    assert summary.importance_truncated_fraction == 0.5
    assert summary.logprob_diff_mean == pytest.approx(math.log(2) / 2)
    assert summary.logprob_diff_max == pytest.approx(math.log(2))


def test_on_policy_gradient_is_the_policy_gradient():
    """With ratio 1 the gradient by the logits of a softmax policy is that of -mean(A·logp): A·(p - onehot) / T."""
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(5, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    actions = torch.tensor([0, 3, 1, 2, 2])
    advantage = torch.randn(5, generator=generator, dtype=torch.float64)
    logp = logits.log_softmax(1)[torch.arange(5), actions]
    tokens = TokenTerms(logp, logp.detach(), logp.detach(), advantage, torch.full((5,), 1 / 5, dtype=torch.float64))
    policy_loss(tokens, clip=(0.2, 0.2), kl=0.0, kl_estimator="k3", importance_cap=2.0).total.backward()
    onehot = torch.nn.functional.one_hot(actions, 4).double()
    by_hand = advantage[:, None] * (logits.detach().softmax(1) - onehot) / 5
    torch.testing.assert_close(logits.grad, by_hand, rtol=0, atol=1e-15)


@pytest.mark.parametrize("reduction", ["token", "sequence", "constant"])
@pytest.mark.parametrize("parts", [2, 3, 7])
def test_any_split_into_micro_batches_is_the_same_step(make_tokens, reduction, parts):
    lengths = torch.tensor([5, 1, 0, 9, 3, 30, 2, 1, 14])
    tokens = make_tokens(lengths, token_weights(lengths, reduction, constant=30))
    whole = policy_loss(tokens, **FULL)
    whole.total.backward()

    losses, gradient = split_losses(lambda part: policy_loss(part, **FULL), tokens, parts)
    assert sum(loss.total.item() for loss in losses) == pytest.approx(whole.total.item(), abs=1e-14)
    torch.testing.assert_close(gradient, tokens.logp.grad, rtol=0, atol=1e-15)
    merged, direct = LossStats.merge([loss.stats for loss in losses]).summary(), whole.stats.summary()
    for f in fields(direct):
        assert getattr(merged, f.name) == pytest.approx(getattr(direct, f.name), rel=1e-12), f.name


def test_reductions_are_the_means_they_say(make_tokens):
    lengths = torch.tensor([2, 5, 1])
    for reduction in ("token", "sequence", "constant"):
        tokens = make_tokens(lengths, token_weights(lengths, reduction, constant=7))
        per_token = torch.arange(8, dtype=torch.float64)
        rows = per_token.split(lengths.tolist())
        expected = {
            "token": per_token.mean(),
            "sequence": torch.stack([row.mean() for row in rows]).mean(),
            "constant": per_token.sum() / (3 * 7),
        }[reduction]
        assert reduce_loss(tokens, per_token).total.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize("reduction", ["token", "sequence", "constant"])
def test_padding_changes_nothing(make_tokens, reduction):
    lengths = torch.tensor([3, 6, 1])
    flat = make_tokens(lengths, token_weights(lengths, reduction, constant=6))
    tokens, mask = padded(flat, lengths)
    loss, expected = policy_loss(tokens, **FULL), policy_loss(flat, **FULL)
    loss.total.backward()
    expected.total.backward()
    assert loss.total.item() == pytest.approx(expected.total.item(), abs=1e-14)
    assert torch.equal(tokens.logp.grad[mask], flat.logp.grad)
    assert not tokens.logp.grad[~mask].any()
    for f in fields(LossStats):
        assert getattr(loss.stats, f.name).item() == pytest.approx(getattr(expected.stats, f.name).item(), abs=1e-13), f.name


def test_a_completion_of_no_advantage_may_be_dropped_once_its_length_is_counted(make_tokens):
    lengths = torch.tensor([4, 2, 5])
    tokens = make_tokens(lengths, token_weights(lengths, "token"), reference=False)
    tokens = replace(tokens, advantage=torch.where(tokens.sequence == 1, 0.0, tokens.advantage))
    options = {**FULL, "kl": 0.0}
    whole, rest = policy_loss(tokens, **options), policy_loss(pick(tokens, tokens.sequence != 1), **options)
    assert rest.total.item() == pytest.approx(whole.total.item(), abs=1e-15)


def test_the_importance_weight_scales_the_gradient_and_has_none(make_tokens):
    tokens = make_tokens(torch.tensor([6]), torch.ones(1, dtype=torch.float64), reference=False)
    options = {"clip": (0.99, 0.99), "kl": 0.0, "kl_estimator": "k3"}
    engine = tokens.engine_logp.clone().requires_grad_()
    old = tokens.old_logp.clone().requires_grad_()
    policy_loss(replace(tokens, engine_logp=engine, old_logp=old), importance_cap=1.5, **options).total.backward()
    weighted = tokens.logp.grad.clone()
    tokens.logp.grad = None
    policy_loss(tokens, importance_cap=None, **options).total.backward()
    expected = (tokens.old_logp - tokens.engine_logp).exp().clamp(max=1.5) * tokens.logp.grad
    torch.testing.assert_close(weighted, expected, rtol=0, atol=1e-14)
    assert engine.grad is None
    assert old.grad is None


def test_kl_of_weight_zero_is_measured_but_not_trained(make_tokens):
    lengths = torch.tensor([4])
    tokens = make_tokens(lengths, token_weights(lengths, "token"))
    measured = policy_loss(tokens, **{**FULL, "kl": 0.0})
    blind = policy_loss(replace(tokens, ref_logp=None), **{**FULL, "kl": 0.0})
    assert measured.total.item() == blind.total.item()
    assert measured.stats.kl.item() > 0
    assert blind.stats.kl.item() == 0


def test_kl_without_a_reference(make_tokens):
    tokens = make_tokens(torch.tensor([4]), torch.ones(1), reference=False)
    with pytest.raises(ConfigError, match=r"kl=0\.1: there are no reference log-probabilities"):
        policy_loss(tokens, **FULL)


def test_an_empty_micro_batch_is_zero_and_can_be_differentiated(make_tokens):
    tokens = make_tokens(torch.tensor([0, 0]), token_weights(torch.tensor([0, 0]), "token"))
    loss = policy_loss(tokens, **FULL)
    loss.total.backward()
    assert loss.total.item() == 0.0
    assert set(vars(loss.stats.summary()).values()) == {0}


def test_everything_filtered_is_zero(make_tokens):
    tokens = make_tokens(torch.tensor([3, 2]), torch.zeros(2, dtype=torch.float64))
    loss = policy_loss(tokens, **FULL)
    loss.total.backward()
    assert loss.total.item() == 0.0
    assert not tokens.logp.grad.any()
    assert set(vars(loss.stats.summary()).values()) == {0}


def test_a_single_token(make_tokens):
    tokens = make_tokens(torch.tensor([1]), torch.ones(1, dtype=torch.float64))
    assert policy_loss(tokens, **FULL).stats.tokens.item() == 1


def test_merging_nothing():
    assert set(vars(LossStats.merge([]).summary()).values()) == {0}


def test_statistics_are_detached(make_tokens):
    stats = policy_loss(make_tokens(torch.tensor([4]), torch.ones(1)), **FULL).stats
    for f in fields(stats):
        value = getattr(stats, f.name)
        assert value.shape == (), f.name
        assert not value.requires_grad, f.name


def test_summary_has_the_names_of_a_step():
    steps = {f.name for f in fields(Step)}
    assert {f.name for f in fields(LossStats.merge([]).summary())} - steps == {"tokens"}


def test_terms_of_different_shapes_are_refused():
    x = torch.zeros(6)
    with pytest.raises(ConfigError, match=r"logp of shape \(6,\): other shapes: \{'advantage': \(2,\)\}"):
        TokenTerms(x, x, x, torch.zeros(2), x)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_dtypes_agree_with_float64(make_tokens, dtype, tolerance):
    lengths = torch.tensor([5, 9])
    tokens = make_tokens(lengths, token_weights(lengths, "token"))
    narrow = TokenTerms(
        **{
            f.name: v if f.name == "sequence" else v.detach().to(dtype)
            for f in fields(tokens)
            if (v := getattr(tokens, f.name)) is not None
        }
    )
    exact, loss = policy_loss(tokens, **FULL).total.item(), policy_loss(narrow, **FULL).total
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact, abs=tolerance)
