"""Advantages against their group, by hand."""

import math

import pytest
import torch

from tests.algos.helpers import tensor
from workbench.algos import batch_normalized, group_advantages, informative_groups, leave_one_out, sums_to_end
from workbench.algos.advantages import last_tokens


def test_without_std_is_reward_minus_group_mean():
    # means 2 and 10: (3-2, 1-2), (4-10, 16-10)
    assert group_advantages(torch.tensor([[3.0, 1.0], [4.0, 16.0]]), normalize_std=False).tolist() == [[1.0, -1.0], [-6.0, 6.0]]


def test_with_std_divides_by_the_sample_deviation():
    # mean 0.5; variance (4 * 0.25) / 3 = 1/3; so ±0.5 / sqrt(1/3) = ±sqrt(3)/2
    advantages = group_advantages(torch.tensor([[1.0, 0.0, 0.0, 1.0]], dtype=torch.float64), normalize_std=True, eps=0.0)
    a = math.sqrt(3) / 2
    assert advantages.tolist() == [pytest.approx([a, -a, -a, a], abs=1e-15)]


def test_eps_is_added_to_the_deviation():
    # (1, 0): mean 0.5, deviation sqrt(0.5); 0.5 / (sqrt(0.5) + 0.5)
    advantages = group_advantages(torch.tensor([[1.0, 0.0]]), normalize_std=True, eps=0.5)
    assert advantages[0, 0].item() == pytest.approx(0.5 / (math.sqrt(0.5) + 0.5), rel=1e-6)


def test_groups_do_not_mix():
    alone = group_advantages(torch.tensor([[1.0, 0.0, 0.5]]), normalize_std=True)
    beside = group_advantages(torch.tensor([[7.0, 7.5, 90.0], [1.0, 0.0, 0.5]]), normalize_std=True)
    assert torch.equal(beside[1:], alone)


@pytest.mark.parametrize("normalize_std", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("group_size", [1, 3, 6, 7, 10])
def test_no_variance_gives_exactly_zero(normalize_std, dtype, group_size):
    rewards = torch.full((4, group_size), 0.1, dtype=dtype) * torch.tensor([[1.0], [3.0], [-7.0], [0.0]], dtype=dtype)
    assert not group_advantages(rewards, normalize_std=normalize_std).any()
    assert informative_groups(rewards).tolist() == [False] * 4


def test_a_mean_that_rounds_leaves_no_noise():
    rewards = torch.full((1, 3), 0.1, dtype=torch.float64)
    assert (rewards - rewards.mean(1, keepdim=True)).abs().max() > 0, "the case must be one in which the plain formula gives noise"
    assert group_advantages(rewards, normalize_std=True, eps=0.0).tolist() == [[0.0, 0.0, 0.0]]


def test_rewards_that_differ_by_rounding_are_equal():
    rewards = torch.tensor([[0.1 + 0.2, 0.3, 0.3], [0.3, 0.3, 0.3001]], dtype=torch.float64)
    assert informative_groups(rewards).tolist() == [False, True]
    assert group_advantages(rewards, normalize_std=True, eps=0.0)[0].tolist() == [0.0, 0.0, 0.0]


def test_a_reward_that_is_not_finite_is_not_hidden():
    rewards = torch.tensor([[math.nan, 1.0], [math.inf, math.inf], [math.inf, 1.0]])
    assert informative_groups(rewards).all()
    assert not group_advantages(rewards, normalize_std=False).isfinite().all(dim=1).any()


@pytest.mark.parametrize(
    ("given", "made"),
    [(torch.float32, torch.float32), (torch.float64, torch.float64), (torch.bfloat16, torch.float32), (torch.int64, torch.float32)],
)
def test_dtypes(given, made):
    advantages = group_advantages(torch.tensor([[1, 0, 0, 1]], dtype=given), normalize_std=False)
    assert advantages.dtype == made
    assert advantages.tolist() == [[0.5, -0.5, -0.5, 0.5]]


def test_half_precision_rewards_keep_an_exact_mean():
    advantages = group_advantages(torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.bfloat16), normalize_std=False)
    assert advantages[0].tolist() == pytest.approx([2 / 3, -1 / 3, -1 / 3], rel=1e-6)


def test_no_groups():
    assert group_advantages(torch.zeros(0, 4), normalize_std=True).shape == (0, 4)
    assert informative_groups(torch.zeros(0, 4)).shape == (0,)


# ---------------------------------------------------------------- leave one out


def test_leave_one_out_by_its_definition():
    rewards = torch.randn(3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    others = (rewards.sum(1, keepdim=True) - rewards) / 4
    torch.testing.assert_close(leave_one_out(rewards), rewards - others, rtol=0, atol=1e-15)


def test_leave_one_out_without_variance_or_others_is_exactly_zero():
    assert not leave_one_out(torch.full((2, 3), 0.1, dtype=torch.float64)).any()
    assert leave_one_out(tensor(7.0)[None]).tolist() == [[0.0]]


# ---------------------------------------------------------------- over tokens


def test_batch_normalized_by_hand():
    # 1, 2, 6: mean 3, variance (4 + 1 + 9) / 2 = 7
    expected = [x / math.sqrt(7) for x in (-2, -1, 3)]
    assert batch_normalized(tensor(1.0, 2.0, 6.0)).tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_batch_normalized_of_equal_values_is_exactly_zero(count):
    normalized = batch_normalized(torch.full((count,), 0.1, dtype=torch.float64))
    assert normalized.tolist() == [0.0] * count


def test_sums_to_end_stay_in_their_completion():
    # completion 0: 1, 2, 3; 2 (1 has no token): 4; 3: 5, 6
    sums = sums_to_end(tensor(1.0, 2.0, 3.0, 4.0, 5.0, 6.0), torch.tensor([0, 0, 0, 2, 3, 3]))
    assert sums.tolist() == [6.0, 5.0, 3.0, 4.0, 11.0, 6.0]


def test_sums_to_end_of_nothing():
    assert sums_to_end(tensor(), torch.zeros(0, dtype=torch.int64)).shape == (0,)


def test_what_comes_later_decays():
    # 1 + 2/2 + 4/4; 2 + 4/2; 4; then 8 + 2/2 and 2
    sums = sums_to_end(tensor(1.0, 2.0, 4.0, 8.0, 2.0), torch.tensor([0, 0, 0, 3, 3]), decay=0.5)
    assert sums.tolist() == [3.0, 4.0, 4.0, 9.0, 2.0]
    assert sums_to_end(tensor(1.0, 2.0, 4.0), torch.tensor([0, 0, 1]), decay=0.0).tolist() == [1.0, 2.0, 4.0]


def test_the_last_token_of_each_completion():
    assert last_tokens(torch.tensor([0, 0, 2, 3, 3])).tolist() == [False, True, True, False, True]
    assert last_tokens(torch.zeros(0, dtype=torch.int64)).tolist() == []
