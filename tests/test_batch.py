"""What flows in a step: how much of a completion says the same again."""

import pytest

from workbench.batch import repetition


@pytest.mark.parametrize(
    ("ids", "share"),
    [
        ((), 0.0),
        ((7, 7, 7), 0.0),  # shorter than a 4-gram
        ((1, 2, 3, 4, 5, 6), 0.0),
        ((1, 2, 3, 4, 1, 2, 3, 4), 1 / 5),  # of 1234 2341 3412 4123 1234 the last was there before
        ((7,) * 103, 99 / 100),
    ],
)
def test_repetition_is_the_share_of_four_grams_that_were_there_before(ids, share):
    assert repetition(ids) == pytest.approx(share)
    assert repetition(list(ids)) == repetition(ids)
