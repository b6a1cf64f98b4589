"""Small statistics, against numbers worked out by hand."""

import math
import random

import pytest

from workbench.telemetry.trends import Change, deviation, ends, jump, rank_correlation, rise


def test_a_rise_and_its_noise():
    change = rise([1, 3], [4, 8])  # means 2 and 6; variances 2 and 8, of two values each: sqrt(2/2 + 8/2)
    assert (change.size, change.noise) == (4, pytest.approx(5**0.5))
    assert change.exceeds(1.7)
    assert not change.exceeds(1.8)
    assert ends([1, 3, 99, 99, 4, 8]) == change
    assert not change.at_least(4).exceeds(1)


def test_without_noise_every_rise_is_one_and_standing_still_is_none():
    assert rise([1, 1], [1.1, 1.1]).exceeds(100)
    assert not rise([1, 1], [1, 1]).exceeds(0)
    assert not Change(math.nan, 1).exceeds(0)


def test_a_line_has_no_jump():
    assert jump([0.1 * t for t in range(16)]).size == pytest.approx(0)
    assert jump([0.1 * t + (5 if t >= 8 else 0) for t in range(16)]).size == pytest.approx(5)


def test_a_jump_and_its_noise_worked_out_by_hand():
    # k = 2; halves 0 1 and 5 8, means 0.5 and 6.5, slopes 1 and 3: together 2, so that the jump is 6 - 2·2.
    # What is left are +-0.5, four times: 1.0 in squares, of 2k - 3 = 1 degree of freedom. Sum of squared times 4·0.25 = 1: sqrt(2/2 + 4/1).
    change = jump([0, 1, 5, 8])
    assert (change.size, change.noise) == (pytest.approx(2), pytest.approx(5**0.5))
    assert jump([0, 1, 5, 8], floor=3.0).noise == pytest.approx(3 * 5**0.5)


def test_the_noise_of_a_jump_is_what_jumps_of_noise_scatter():
    dice = random.Random(0)
    changes = [jump([dice.gauss(0, 1) for _ in range(16)]) for _ in range(4000)]
    assert (sum(change.size**2 for change in changes) / 4000) ** 0.5 == pytest.approx(
        (sum(change.noise**2 for change in changes) / 4000) ** 0.5, rel=0.05
    )


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1, 2, 3], [10, 20, 90], 1.0),
        ([1, 2, 3], [3, 2, 1], -1.0),
        ([1, 2, 3, 4], [1, 3, 2, 4], 0.8),  # 1 - 6·2/(4·15)
        ([1, 2, 2, 3], [1, 2, 2, 3], 1.0),
        ([1, 1, 2, 2], [1, 2, 1, 2], 0.0),
        ([1, 2, 3], [5, 5, 5], 0.0),
    ],
)
def test_rank_correlation(left, right, expected):
    assert rank_correlation(left, right) == pytest.approx(expected)


def test_a_deviation_that_odd_ones_do_not_move():
    assert deviation([1, 2, 3, 4, 1000]) == pytest.approx(1.48)
    assert math.isnan(deviation([]))
