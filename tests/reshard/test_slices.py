from itertools import product

from workbench.reshard.slices import elements, meet, shifted, whole, without


def points(box):
    return set(product(*(range(*span) for span in box)))


def test_what_two_boxes_share():
    assert meet(((0, 4), (2, 6)), ((3, 9), (0, 3))) == ((3, 4), (2, 3))
    assert meet(((0, 4), (2, 6)), ((4, 9), (0, 3))) is None  # they touch
    assert elements(((3, 5), (2, 6))) == 8
    assert whole((3, 2)) == ((0, 3), (0, 2))


def test_a_hole_leaves_boxes_that_do_not_overlap():
    box, hole = ((0, 6), (0, 5), (1, 4)), ((2, 3), (0, 2), (2, 3))
    rest = without(box, hole)
    assert len(rest) == 5  # nothing before the hole in the second dimension
    assert sum(map(elements, rest)) == elements(box) - elements(hole)
    assert set().union(*map(points, rest)) == points(box) - points(hole)


def test_a_hole_may_reach_beyond_its_box():
    assert without(((0, 4),), ((2, 7),)) == [((0, 2),)]
    assert without(((6, 8),), ((2, 6),)) == [((6, 8),)]
    assert without(((2, 3),), ((0, 9),)) == []


def test_the_same_place_in_another_numbering():
    assert shifted(((5, 7), (1, 2)), ((4, 8), (0, 3)), ((0, 4), (10, 13))) == ((1, 3), (11, 12))
