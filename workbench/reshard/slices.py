"""Slices of a tensor: one (start, stop) per dimension, as plain data."""

from collections.abc import Sequence
from math import prod

Span = tuple[int, int]
"""(start, stop) along one dimension."""
Box = tuple[Span, ...]
"""One span per dimension."""


def whole(shape: Sequence[int]) -> Box:
    """All of a tensor."""
    return tuple((0, size) for size in shape)


def elements(box: Box) -> int:
    """How many elements lie in ``box``."""
    return prod([stop - start for start, stop in box])


def meet(one: Box, other: Box) -> Box | None:
    """What both have; None where that is nothing. Both have the same dimensions."""
    common = []
    for (a, b), (c, d) in zip(one, other, strict=True):
        start, stop = max(a, c), min(b, d)
        if start >= stop:
            return None
        common.append((start, stop))
    return tuple(common)


def without(box: Box, hole: Box) -> list[Box]:
    """``box`` less what it shares with ``hole``: at most two boxes for each dimension, that do not overlap."""
    common = meet(box, hole)
    if common is None:
        return [box]
    rest = []
    for dim, ((start, stop), (first, last)) in enumerate(zip(box, common, strict=True)):
        if start < first:
            rest.append((*common[:dim], (start, first), *box[dim + 1 :]))
        if last < stop:
            rest.append((*common[:dim], (last, stop), *box[dim + 1 :]))
    return rest


def shifted(box: Box, old: Box, new: Box) -> Box:
    """``box``, which lies in ``old``, where ``old`` is called ``new``: the same place in another numbering."""
    if box == old:
        return new
    return tuple((a + n - o, b + n - o) for (a, b), (o, _), (n, _) in zip(box, old, new, strict=True))
