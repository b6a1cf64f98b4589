"""GAE by hand and against its definition; the critic's loss by hand, however it is split or padded; what is recorded of it."""

from dataclasses import fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.algos.helpers import tensor
from workbench.algos import ValueStats, ValueTerms, clipped_value_loss, gae, reduce_value_loss, token_weights
from workbench.errors import ConfigError

SEQUENCE = torch.tensor([0, 0, 0, 2, 2])  # completion 1 has no token
REWARDS = tensor(0.0, 0.0, 1.0, -1.0, 2.0)
VALUES = tensor(0.5, 0.25, 1.0, 2.0, 4.0)


def test_gae_by_hand():
    # δ = 0.25 - 0.5, 1 - 0.25, 1 - 1 and -1 + 4 - 2, 2 - 4
    # A = -0.25 + 0.5·0.75, 0.75, 0 and 1 - 0.5·2, -2
    advantages = gae(REWARDS, VALUES, SEQUENCE, discount=1.0, lam=0.5)
    assert advantages.tolist() == [0.125, 0.75, 0.0, 0.0, -2.0]
    assert advantages.dtype == torch.float64


def test_gae_with_a_discount_by_hand():
    # δ = 0.125 - 0.5, 0.5 - 0.25, 0 and -1 + 2 - 2, -2; then a quarter (0.5·0.5) of what comes next
    advantages = gae(REWARDS, VALUES, SEQUENCE, discount=0.5, lam=0.5)
    assert advantages.tolist() == [-0.375 + 0.0625, 0.25, 0.0, -1.5, -2.0]


def test_lam_1_is_the_return_minus_the_value():
    assert gae(REWARDS, VALUES, SEQUENCE, discount=1.0, lam=1.0).tolist() == [1 - 0.5, 1 - 0.25, 1 - 1.0, 1 - 2.0, 2 - 4.0]


def test_lam_0_is_the_error_one_token_ahead():
    assert gae(REWARDS, VALUES, SEQUENCE, discount=1.0, lam=0.0).tolist() == [-0.25, 0.75, 0.0, 1.0, -2.0]


def test_gae_of_nothing():
    assert gae(tensor(), tensor(), torch.zeros(0, dtype=torch.int64), discount=1.0, lam=0.9).shape == (0,)


def direct_sum(rewards, values, discount, lam):
    """Equation 16 as it stands, for one completion."""
    following = [*values[1:], 0.0]
    delta = [r + discount * after - v for r, after, v in zip(rewards, following, values, strict=True)]
    return [sum((discount * lam) ** (k - t) * delta[k] for k in range(t, len(delta))) for t in range(len(delta))]


numbers = st.floats(-10, 10)
completions = st.lists(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20), max_size=6)


@given(rows=completions, discount=st.floats(0, 1), lam=st.floats(0, 1))
def test_gae_is_its_definition_on_ragged_batches(rows, discount, lam):
    expected = [a for row in rows for a in direct_sum(*zip(*row, strict=True), discount, lam)]
    flat = tensor(*(pair for row in rows for pair in row)).view(-1, 2)
    sequence = torch.arange(len(rows)).repeat_interleave(torch.tensor([len(row) for row in rows], dtype=torch.int64))
    assert gae(flat[:, 0], flat[:, 1], sequence, discount=discount, lam=lam).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)


# from the old value 1, held within 0.8 and 1.2
@pytest.mark.parametrize(
    ("value", "target", "squared", "gradient"),
    [
        (1.1, 2.0, 0.9**2, -0.9),  # upwards, inside
        (1.5, 2.0, 0.8**2, 0.0),  # upwards and too far: the error of 1.2, and no gradient
        (0.9, 0.0, 0.9**2, 0.9),  # downwards, inside
        (0.5, 0.0, 0.8**2, 0.0),  # downwards and too far: the error of 0.8
        (0.5, 2.0, 1.5**2, -1.5),  # away from the target: brought back
        (1.5, 0.0, 1.5**2, 1.5),  # the same on the other side
        (1.8, 1.3, 0.5**2, 0.5),  # past the target: brought back
    ],
)
def test_value_clipping_by_hand(value, target, squared, gradient):
    v, old = tensor(value).requires_grad_(), tensor(1.0).requires_grad_()
    goal = tensor(target).requires_grad_()
    loss, clipped = clipped_value_loss(v, old, goal, 0.2)
    loss.sum().backward()
    assert loss.item() == pytest.approx(squared / 2)
    assert v.grad.item() == pytest.approx(gradient)
    assert clipped.item() == (gradient == 0)
    assert (old.grad, goal.grad) == (None, None)


def test_without_a_clip_it_is_half_the_squared_error():
    loss, clipped = clipped_value_loss(tensor(1.5, 0.0), tensor(1.0, 1.0), tensor(2.0, 3.0), None)
    assert loss.tolist() == [0.125, 4.5]
    assert not clipped.any()


def test_half_precision_is_computed_in_float32():
    # in bfloat16 the sum 256 + 0.2 and the difference 257 - 256.2 have no digits left
    narrow = [torch.tensor([x], dtype=torch.bfloat16) for x in (256.0, 256.0, 258.0)]
    loss, _ = clipped_value_loss(*narrow, 0.2)
    assert loss.dtype == torch.float32
    assert loss.item() == 2.0


def make_values(lengths_N, seed=0):
    generator = torch.Generator().manual_seed(seed)
    old, moved, missed = torch.randn(3, int(lengths_N.sum()), generator=generator, dtype=torch.float64)
    weights = token_weights(lengths_N, "token").double()
    return ValueTerms((old + 0.3 * moved).requires_grad_(), old, old + missed, weights.repeat_interleave(lengths_N))


def loss_of(tokens, clip=0.2):
    return reduce_value_loss(tokens, *clipped_value_loss(tokens.value, tokens.old_value, tokens.target, clip))


def pick_values(tokens, mask):
    return ValueTerms(*(getattr(tokens, f.name)[mask] for f in fields(tokens)))


def test_loss_and_statistics_by_hand():
    # values 1.5 (old 1, target 3: clipped, (1.2 - 3)²) and 2 (old 2, target 1: 1²)
    tokens = ValueTerms(tensor(1.5, 2.0), tensor(1.0, 2.0), tensor(3.0, 1.0), tensor(0.5, 0.25))
    loss = loss_of(tokens)
    assert loss.total.item() == pytest.approx(0.5 * 1.8**2 / 2 + 0.25 * 0.5)
    summary = loss.stats.summary()
    assert summary.loss == pytest.approx(loss.total.item())
    assert (summary.tokens, summary.clip_fraction) == (2, 0.5)
    assert summary.error == pytest.approx((1.5**2 + 1) / 2)
    assert (summary.value_mean, summary.target_mean) == (1.75, 2.0)
    # targets 3 and 1: variance 1; missed by 2 and -1: variance 1.5² = 2.25
    assert summary.explained_variance == pytest.approx(1 - 2.25)


@pytest.mark.parametrize(
    ("old", "explained"),
    [
        ((1.0, 3.0), 1.0),  # knows
        ((1.0, 2.0), 0.75),  # missed by 0 and 1: variance 1/4 of 1
        ((7.0, 7.0), 0.0),  # a constant
        ((11.0, 13.0), 1.0),  # off by a constant, which a variance does not see
        ((3.0, 1.0), -3.0),  # the wrong way round: missed by -2 and 2, variance 4
    ],
)
def test_explained_variance_is_of_the_values_before_they_learnt(old, explained):
    tokens = ValueTerms(tensor(50.0, -50.0), tensor(*old), tensor(1.0, 3.0), tensor(0.5, 0.5))
    assert loss_of(tokens).stats.summary().explained_variance == pytest.approx(explained)


@pytest.mark.parametrize("target", [0.0, 0.1, 1e4 + 0.1])
def test_targets_all_the_same_explain_nothing(target):
    """Also where rounding leaves them a variance."""
    same = torch.full((7,), target, dtype=torch.float32)
    tokens = ValueTerms(same + 1, torch.arange(7.0), same, torch.full((7,), 1 / 7))
    assert loss_of(tokens).stats.summary().explained_variance == 0.0


def test_targets_that_differ_by_rounding_are_the_same():
    """As the sum of an advantage and a value in float32 does, where every return is 0.1."""
    low = torch.tensor(0.1)
    targets = torch.stack([low, torch.nextafter(low, torch.tensor(1.0))] * 4)
    tokens = ValueTerms(targets + 1, torch.arange(8.0), targets, torch.full((8,), 1 / 8))
    assert loss_of(tokens).stats.summary().explained_variance == 0.0


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_any_split_into_micro_batches_is_the_same_step(parts):
    lengths = torch.tensor([5, 1, 0, 9, 3, 14])
    tokens = make_values(lengths)
    whole = loss_of(tokens)
    whole.total.backward()
    split = replace(tokens, value=tokens.value.detach().clone().requires_grad_())
    part_of = torch.randint(parts, tokens.value.shape, generator=torch.Generator().manual_seed(parts))
    losses = [loss_of(pick_values(split, part_of == part)) for part in range(parts)]
    for loss in losses:
        loss.total.backward()
    assert sum(loss.total.item() for loss in losses) == pytest.approx(whole.total.item(), abs=1e-14)
    torch.testing.assert_close(split.value.grad, tokens.value.grad, rtol=0, atol=1e-15)
    merged, direct = ValueStats.merge([loss.stats for loss in losses]).summary(), whole.stats.summary()
    for f in fields(direct):
        assert getattr(merged, f.name) == pytest.approx(getattr(direct, f.name), rel=1e-12), f.name
    assert 0 < direct.clip_fraction < 1


def test_padding_changes_nothing():
    lengths = torch.tensor([3, 6, 1])
    flat = make_values(lengths)
    mask = torch.arange(8)[None] < lengths[:, None]
    junk = {"value": 800.0, "old_value": -900.0, "target": 1e6, "weight": 0.0}
    terms = {name: torch.full(mask.shape, x, dtype=torch.float64).masked_scatter(mask, getattr(flat, name)) for name, x in junk.items()}
    tokens = ValueTerms(**{name: term.detach() for name, term in terms.items()})
    tokens.value.requires_grad_()
    loss, expected = loss_of(tokens), loss_of(flat)
    loss.total.backward()
    expected.total.backward()
    assert loss.total.item() == pytest.approx(expected.total.item(), abs=1e-14)
    assert torch.equal(tokens.value.grad[mask], flat.value.grad)
    assert not tokens.value.grad[~mask].any()
    for f in fields(ValueStats):
        assert getattr(loss.stats, f.name).item() == pytest.approx(getattr(expected.stats, f.name).item(), abs=1e-12), f.name


def test_an_empty_micro_batch_is_zero_and_can_be_differentiated():
    loss = loss_of(make_values(torch.tensor([0, 0])))
    loss.total.backward()
    assert loss.total.item() == 0.0
    assert set(vars(loss.stats.summary()).values()) == {0}


def test_merging_nothing():
    assert set(vars(ValueStats.merge([]).summary()).values()) == {0}


def test_statistics_are_detached():
    stats = loss_of(make_values(torch.tensor([4]))).stats
    for f in fields(stats):
        value = getattr(stats, f.name)
        assert (value.shape, value.dtype, value.requires_grad) == ((), torch.float64, False), f.name


def test_without_a_mask_nothing_is_clipped():
    tokens = make_values(torch.tensor([4]))
    loss = reduce_value_loss(tokens, tokens.value)
    assert loss.stats.clipped.item() == 0
    assert loss.total.item() == pytest.approx(tokens.value.mean().item(), rel=1e-6)


def test_terms_of_different_shapes_are_refused():
    x = torch.zeros(6)
    with pytest.raises(ConfigError, match=r"ValueTerms with value of shape \(6,\): other shapes: \{'target': \(2,\)\}"):
        ValueTerms(x, x, torch.zeros(2), x)
