"""Every term by hand, and its gradient."""

import math

import pytest
import torch

from workbench.algos import clipped_surrogate, importance_weight, kl_estimate, reinforce_surrogate, sequence_mean, token_weights
from workbench.errors import ConfigError


def logs(*values, dtype=torch.float64, grad=False):
    return torch.tensor([math.log(v) for v in values], dtype=dtype, requires_grad=grad)


# ---------------------------------------------------------------- surrogate


@pytest.mark.parametrize(
    ("advantage", "ratio", "loss", "gradient", "clipped"),
    [
        # A > 0: loss = -min(r·A, clip(r)·A); gradient of the loss by logp is -A·r, or 0 above 1 + 0.28
        (2.0, 0.5, -1.0, -1.0, False),  # below the range, but min() takes r·A: the token may come back
        (2.0, 1.0, -2.0, -2.0, False),
        (2.0, 1.25, -2.5, -2.5, False),
        (2.0, 1.3, -2.56, 0.0, True),  # -1.28·2
        # A < 0: 0 below 1 - 0.2
        (-2.0, 0.5, 1.6, 0.0, True),  # 0.8·2
        (-2.0, 0.9, 1.8, 1.8, False),
        (-2.0, 1.0, 2.0, 2.0, False),
        (-2.0, 1.5, 3.0, 3.0, False),  # above the range, but r·A is the smaller
        (0.0, 1.5, 0.0, 0.0, False),
        (0.0, 0.5, 0.0, 0.0, False),
    ],
)
def test_surrogate_loss_and_gradient(advantage, ratio, loss, gradient, clipped):
    old = logs(0.3)
    logp = (old + math.log(ratio)).requires_grad_()
    term = clipped_surrogate(logp, old, torch.tensor([advantage], dtype=torch.float64), 0.2, 0.28)
    term.loss.sum().backward()
    assert term.loss.item() == pytest.approx(loss, abs=1e-12)
    assert logp.grad.item() == pytest.approx(gradient, abs=1e-12)
    assert (logp.grad.item() == 0.0) == (gradient == 0.0), "a clipped gradient is exactly zero"
    assert term.clipped.tolist() == [clipped]


def test_surrogate_on_policy_is_exact_even_where_old_logp_shares_the_graph():
    logp = logs(0.1, 0.7, grad=True)
    clipped_surrogate(logp, logp, torch.tensor([3.0, -1.0], dtype=torch.float64), 0.2, 0.2).loss.sum().backward()
    assert logp.grad.tolist() == [-3.0, 1.0]


def test_surrogate_stays_finite_for_an_absurd_ratio():
    logp = torch.tensor([0.0, 0.0, -1000.0], requires_grad=True)
    term = clipped_surrogate(logp, torch.tensor([-1000.0, -1000.0, 0.0]), torch.tensor([-1.0, 1.0, 1.0]), 0.2, 0.2)
    term.loss.sum().backward()
    assert term.loss.tolist() == pytest.approx([math.exp(20), -1.2, 0.0])
    assert logp.grad.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_reinforce_is_minus_advantage_times_logp(dtype):
    logp = torch.tensor([-0.5, -2.0], dtype=dtype, requires_grad=True)
    term = reinforce_surrogate(logp, torch.tensor([3.0, -1.0], dtype=dtype))
    term.loss.sum().backward()
    assert term.loss.tolist() == [1.5, -2.0]
    assert logp.grad.tolist() == [-3.0, 1.0]
    assert term.clipped.tolist() == [False, False]
    assert term.loss.dtype == torch.promote_types(dtype, torch.float32)


# ---------------------------------------------------------------- a mean per completion


def test_sequence_mean_by_hand():
    # completion 4: (1 + 3) / 2, its uncounted 100 has no part; completion 0: 5; completion 9 has nothing that counts
    values, sequence = torch.tensor([1.0, 5.0, 3.0, 100.0, 7.0]), torch.tensor([4, 0, 4, 4, 9])
    counted = torch.tensor([True, True, True, False, False])
    assert sequence_mean(values, sequence, counted).tolist() == [2.0, 5.0, 2.0, 2.0, 0.0]


def test_sequence_mean_keeps_the_shape():
    means = sequence_mean(torch.tensor([[1.0, 3.0], [5.0, 9.0]]), torch.tensor([[0, 0], [1, 1]]), torch.ones(2, 2, dtype=torch.bool))
    assert means.tolist() == [[2.0, 2.0], [7.0, 7.0]]
    none = torch.zeros(0)
    assert sequence_mean(none, none.long(), none.bool()).shape == (0,)


def test_sequence_mean_adds_in_float64():
    values = torch.full((1000,), 0.1)
    assert sequence_mean(values, torch.zeros(1000, dtype=torch.int64), values != 0)[0].item() == pytest.approx(0.1, rel=1e-7)


# ---------------------------------------------------------------- KL

POLICY, REFERENCE = [0.5, 0.3, 0.2], [0.25, 0.25, 0.5]


def test_kl_estimates_by_hand():
    # logp = ln 0.5, ref = ln 0.25: d = -ln 2
    logp, ref = logs(0.5), logs(0.25)
    assert kl_estimate(logp, ref, "k1").item() == pytest.approx(math.log(2))
    assert kl_estimate(logp, ref, "k2").item() == pytest.approx(math.log(2) ** 2 / 2)
    assert kl_estimate(logp, ref, "k3").item() == pytest.approx(0.5 - 1 + math.log(2))


def exact_kl(p, q):
    return (p * (p / q).log()).sum()


@pytest.mark.parametrize("kind", ["k1", "k3"])
def test_kl_k1_and_k3_are_unbiased(kind):
    p, q = torch.tensor(POLICY, dtype=torch.float64), torch.tensor(REFERENCE, dtype=torch.float64)
    assert (p * kl_estimate(p.log(), q.log(), kind)).sum().item() == pytest.approx(exact_kl(p, q).item(), abs=1e-14)


def test_kl_k2_is_biased_by_a_known_amount():
    p, q = torch.tensor(POLICY, dtype=torch.float64), torch.tensor(REFERENCE, dtype=torch.float64)
    # sum of p·ln(p/q)²/2
    by_hand = 0.5 * math.log(2) ** 2 / 2 + 0.3 * math.log(1.2) ** 2 / 2 + 0.2 * math.log(0.4) ** 2 / 2
    assert (p * kl_estimate(p.log(), q.log(), "k2")).sum().item() == pytest.approx(by_hand, abs=1e-14)


@pytest.mark.parametrize(
    ("kind", "gradient_of"),
    [("k1", lambda p, q: 0 * p.sum()), ("k2", exact_kl), ("k3", lambda p, q: exact_kl(q, p))],
)
def test_kl_expected_gradient_as_a_loss(kind, gradient_of):
    q = torch.tensor(REFERENCE, dtype=torch.float64)
    logits = torch.tensor(POLICY, dtype=torch.float64).log().requires_grad_()
    logp = logits.log_softmax(0)
    (estimated,) = torch.autograd.grad((logp.exp().detach() * kl_estimate(logp, q.log(), kind)).sum(), logits)
    (exact,) = torch.autograd.grad(gradient_of(logits.softmax(0), q), logits)
    assert estimated.tolist() == pytest.approx(exact.tolist(), abs=1e-14)


def test_kl_is_zero_with_zero_gradient_at_the_reference():
    for kind, gradient in (("k2", 0.0), ("k3", 0.0), ("k1", 1.0)):
        logp = logs(0.4, grad=True)
        estimate = kl_estimate(logp, logp.detach(), kind)
        estimate.sum().backward()
        assert (estimate.item(), logp.grad.item()) == (0.0, gradient)


def test_kl_k3_never_negative_in_float32():
    d = torch.linspace(-1e-3, 1e-3, 1001)
    assert (kl_estimate(torch.full_like(d, -1.5), -1.5 + d, "k3") >= 0).all()


def test_kl_k3_keeps_its_digits_near_the_reference():
    # d = 2^-13, exact in float32: k3 = d²/2 + d³/6 + ...; 1 + d + ... as a float32 has no room for it
    logp = torch.tensor([-1.0])
    assert kl_estimate(logp, logp + 2**-13, "k3").item() == pytest.approx(2**-27, rel=2e-3)


@pytest.mark.parametrize("kind", ["k1", "k2", "k3"])
def test_kl_trains_the_policy_alone(kind):
    logp, reference = logs(0.4, grad=True), logs(0.3, grad=True)
    kl_estimate(logp, reference, kind).sum().backward()
    assert logp.grad is not None
    assert reference.grad is None


def test_kl_k3_stays_finite():
    logp = torch.tensor([-1000.0], requires_grad=True)
    estimate = kl_estimate(logp, torch.tensor([0.0]), "k3")
    estimate.sum().backward()
    assert estimate.item() == pytest.approx(math.exp(20) - 21)
    assert logp.grad.tolist() == [0.0]


def test_kl_unknown_estimator():
    with pytest.raises(ConfigError, match=r"kl_estimator='k4': known are k1, k2, k3"):
        kl_estimate(logs(0.5), logs(0.5), "k4")


# ---------------------------------------------------------------- importance


def test_importance_is_truncated_and_measured():
    weights = importance_weight(logs(0.5, 0.5, 0.2), logs(0.5, 0.1, 0.4), cap=2.0)
    assert weights.ratio.tolist() == pytest.approx([1.0, 5.0, 0.5])
    assert weights.weight.tolist() == pytest.approx([1.0, 2.0, 0.5])
    assert weights.truncated.tolist() == [False, True, False]


def test_importance_at_the_cap_is_not_truncated():
    assert importance_weight(logs(0.5), logs(0.5), cap=1.0).truncated.tolist() == [False]


def test_importance_off_still_measures():
    weights = importance_weight(logs(0.5, 0.5), logs(0.5, 0.1), cap=None)
    assert weights.weight.tolist() == [1.0, 1.0]
    assert weights.ratio.tolist() == pytest.approx([1.0, 5.0])
    assert not weights.truncated.any()


def test_importance_is_detached():
    weights = importance_weight(logs(0.5, grad=True), logs(0.4, grad=True), cap=2.0)
    assert not weights.weight.requires_grad
    assert not weights.ratio.requires_grad


# ---------------------------------------------------------------- reductions


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("token", [1 / 5, 1 / 5, 1 / 5]),  # 1 + 4 + 0 tokens
        ("sequence", [1 / 2, 1 / 8, 0.0]),  # two completions with tokens: 1/2·1/1, 1/2·1/4
        ("constant", [1 / 30, 1 / 30, 1 / 30]),  # three completions of constant length 10
    ],
)
def test_token_weights(reduction, expected):
    lengths = torch.tensor([1, 4, 0])
    weights = token_weights(lengths, reduction, constant=10)
    expected[2] = 0.0  # no token, no weight
    assert weights.tolist() == pytest.approx(expected)


@pytest.mark.parametrize("reduction", ["token", "sequence"])
def test_token_weights_sum_to_one_over_tokens(reduction):
    lengths = torch.tensor([3, 17, 1, 0, 256])
    assert (token_weights(lengths, reduction) * lengths).sum().item() == pytest.approx(1.0, rel=1e-6)


@pytest.mark.parametrize("reduction", ["token", "sequence", "constant"])
def test_token_weights_of_nothing_are_zero_not_nan(reduction):
    assert token_weights(torch.zeros(3, dtype=torch.int64), reduction, constant=8).tolist() == [0.0, 0.0, 0.0]
    assert token_weights(torch.zeros(0, dtype=torch.int64), reduction, constant=8).tolist() == []


@pytest.mark.parametrize("reduction", ["token", "sequence"])
def test_token_weights_of_a_single_token(reduction):
    assert token_weights(torch.tensor([1]), reduction).tolist() == [1.0]


def test_token_weights_errors():
    with pytest.raises(ConfigError, match=r"reduction='mean': known are token, sequence, constant"):
        token_weights(torch.tensor([1]), "mean")
    with pytest.raises(ConfigError, match=r"constant=None.*\n.*max_tokens"):
        token_weights(torch.tensor([1]), "constant")


# ---------------------------------------------------------------- dtypes


@pytest.mark.parametrize(
    ("given", "computed"), [(torch.bfloat16, torch.float32), (torch.float32, torch.float32), (torch.float64, torch.float64)]
)
def test_half_precision_is_computed_in_float32(given, computed):
    logp = torch.tensor([-1.0, -2.0], dtype=given, requires_grad=True)
    other = torch.tensor([-1.5, -2.0], dtype=given)
    surrogate = clipped_surrogate(logp, other, torch.ones(2, dtype=given), 0.2, 0.2)
    divergence = kl_estimate(logp, other, "k3")
    weights = importance_weight(logp, other, 2.0)
    assert surrogate.loss.dtype == divergence.dtype == weights.weight.dtype == computed
    (surrogate.loss + divergence).sum().backward()
    assert logp.grad.dtype == given
    # exactly representable inputs: d = -0.5, k3 = e^-0.5 - 1 + 0.5
    assert divergence.tolist() == pytest.approx([math.exp(-0.5) - 0.5, 0.0], rel=1e-6)
