from fractions import Fraction

from workbench.reshard.grids import Generation, Training
from workbench.reshard.volumes import Volume, full_gather, hybrid, vanilla


def gb(volume: Volume) -> tuple[Fraction, ...]:
    return tuple(part / 10**9 for part in (volume.moved, volume.peak, volume.redundant))


def test_seven_billion_weights_by_hand():
    grid, weights = Generation(Training(1, 8, 2), 1, 2), 14 * 10**9
    assert gb(full_gather(grid, weights)) == (13.125, 14, 0.875)
    assert gb(vanilla(grid, weights)) == (12.25, 14, 1.75)
    assert gb(hybrid(grid, weights)) == (5.25, 7, 0)


def test_nothing_moves_where_nothing_changes():
    assert hybrid(Generation(Training(2, 4, 2), 2, 4), 800) == Volume(Fraction(0), Fraction(100), Fraction(0))


def test_fractions_of_bytes_are_exact():
    assert hybrid(Generation(Training(1, 3, 1), 1, 1), 10).moved == Fraction(20, 3)
