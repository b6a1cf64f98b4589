"""A schedule carried out on arrays: what each rank then has."""

from collections.abc import Iterable

import numpy as np

from workbench.reshard.lying import Lying
from workbench.reshard.parameters import Parameter
from workbench.reshard.schedule import Copy
from workbench.reshard.slices import Box

Tensors = dict[tuple[str, int], np.ndarray]


def at(box: Box) -> tuple[slice, ...]:
    return tuple(slice(*span) for span in box)


def numbered(parameter: Parameter) -> np.ndarray:
    """Every element another number."""
    return np.arange(1, np.prod(parameter.shape) + 1).reshape(parameter.shape)


def lie(parameters: Iterable[Parameter], lying: Lying) -> Tensors:
    """What each rank holds of each parameter, in a tensor of its own."""
    found = {}
    for parameter in parameters:
        for rank in range(lying.ranks):
            pieces = lying.shard(parameter, rank).pieces
            if pieces:
                shape = np.max([[stop for _, stop in piece.local] for piece in pieces], axis=0)
                tensor = found[parameter.name, rank] = np.zeros(shape, dtype=int)
                for piece in pieces:
                    tensor[at(piece.local)] = numbered(parameter)[at(piece.part)]
    return found


def carry_out(copies: Iterable[Copy], before: Tensors, after: Tensors) -> None:
    """Write what the copies take from ``before`` into ``after``. No element is written twice."""
    for copy in copies:
        target = after[copy.parameter, copy.target_rank]
        assert not target[at(copy.target_slice)].any(), copy
        target[at(copy.target_slice)] = before[copy.parameter, copy.source_rank][at(copy.source_slice)]


def same(one: Tensors, other: Tensors) -> bool:
    return one.keys() == other.keys() and all(np.array_equal(one[key], other[key]) for key in one)
