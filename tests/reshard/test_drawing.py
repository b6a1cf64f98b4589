from fractions import Fraction

from workbench.reshard.drawing import amount, drawing, ranks
from workbench.reshard.grids import Generation, Training


def test_bytes_in_words():
    found = [amount(count) for count in (0, 999, 1000, 13_125_000_000, 999_999_999, Fraction(20, 3))]
    assert found == ["0 B", "999 B", "1 kB", "13.125 GB", "1 GB", "6.667 B"]


def test_ranks_in_a_short_line():
    assert (ranks([5, 0, 1, 2]), ranks([])) == ("0-2,5", "-")
    assert ranks(range(1, 64, 2)) == "32 of 1 to 63"


def test_who_gathers_what_from_whom():
    lines = drawing(Generation(Training(1, 4, 1), 1, 2)).splitlines()
    assert lines == [
        "█ has and keeps  ░ gathers  · lies elsewhere",
        f"rank  {'the model':<48}  gathers from",
        f"   0  {'█' * 12}{'░' * 12}{'·' * 24}  1",
        f"   1  {'░' * 12}{'█' * 12}{'·' * 24}  0",
        f"   2  {'·' * 24}{'█' * 12}{'░' * 12}  3",
        f"   3  {'·' * 24}{'░' * 12}{'█' * 12}  2",
    ]


def test_many_replicas_are_drawn_once_and_large_ones_not_at_all():
    lines = drawing(Generation(Training(1, 2, 40), 1, 1)).splitlines()
    assert (len(lines), lines[-1]) == (5, "and so in each of 40 replicas, 2 ranks further on")
    assert drawing(Generation(Training(16, 8, 1), 1, 1)) == "(drawn are replicas of up to 64 ranks; this one has 128)"


def test_no_line_is_wider_than_100_columns():
    for grid in (Generation(Training(8, 8, 1), 1, 4), Generation(Training(1, 64, 1), 1, 1), Generation(Training(7, 7, 1), 1, 7)):
        assert max(map(len, drawing(grid).splitlines())) <= 100
