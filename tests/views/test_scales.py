"""Axes hold their data, with few round ticks; labels keep apart."""

import pytest

from workbench.views.scales import scale, spread, steps_axis


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 0.11, ["0", "0.05", "0.10", "0.15"]),
        (0, 0.0066, ["0", "0.005", "0.010"]),
        (0, 9.3e-5, ["0", "5e-5", "1e-4"]),
        (-0.02, 0.11, ["-0.05", "0", "0.05", "0.10", "0.15"]),
        (0, 13, ["0", "5", "10", "15"]),
        (0, 12345, ["0", "5000", "10k", "15k"]),
        (5, 5, ["4", "6"]),
    ],
)
def test_ticks_are_round_and_hold_the_data(low: float, high: float, labels: list[str]) -> None:
    axis = scale(low, high)
    assert [label for _, label in axis.ticks] == labels
    assert axis.low <= low <= high <= axis.high


@pytest.mark.parametrize(
    ("done", "total", "ticks"),
    [
        (0, 0, [0, 5, 10]),
        (1, 60, [0, 5, 10]),  # a long way to go: the beginning is drawn large
        (23, 60, [0, 20, 40, 60]),
        (60, 60, [0, 20, 40, 60]),
        (70, 60, [0, 50, 100]),  # a run that goes on beyond its plan
        (1, 1, [0, 1]),
    ],
)
def test_steps_axis_grows_in_leaps_to_the_known_end(done: int, total: int, ticks: list[int]) -> None:
    assert [at for at, _ in steps_axis(done, total).ticks] == ticks


def test_steps_axis_stands_still_most_of_the_time() -> None:
    assert len({steps_axis(done, 1000) for done in range(1001)}) <= 7


def test_labels_are_spread_in_order() -> None:
    assert spread([0.5, 0.5, 0.51], 0.1) == pytest.approx([0.5, 0.6, 0.7])
    assert spread([0.98, 1.0], 0.1) == pytest.approx([0.9, 1.0])
    assert spread([0.0, 2.0], 0.1) == [0.0, 1.0]
    crowded = spread([0.5] * 9, 0.2)
    assert crowded == sorted(crowded)
    assert (crowded[0], crowded[-1]) == pytest.approx((0.0, 1.0))
    assert spread([], 0.1) == []


def test_a_hair_below_zero_needs_no_room_of_its_own() -> None:
    assert scale(-0.006, 0.59).low == 0
    assert scale(-0.2, 0.59).low < 0
