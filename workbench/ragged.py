"""Rows of different lengths in one flat tensor: one copy from a device, one piece in a pickle."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Ragged(Sequence[Any]):
    """A sequence of 1-D tensors, views on ``flat``. (A pickle of a view holds all that it is a view on; this holds each value once.)"""

    def __init__(self, flat: "Tensor", lengths: Sequence[int]) -> None:
        self.flat, self.lengths = flat, tuple(lengths)
        self._ends = tuple(accumulate(self.lengths))

    @classmethod
    def of(cls, rows: Iterable["Tensor"]) -> "Ragged":
        """``rows`` laid one after the other."""
        import torch

        listed = list(rows)
        return cls(torch.cat(listed) if listed else torch.empty(0), [len(row) for row in listed])

    def cpu(self) -> "Ragged":
        """On the CPU."""
        return Ragged(self.flat.cpu(), self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, row: Any) -> Any:
        if isinstance(row, slice):
            return [self[r] for r in range(*row.indices(len(self)))]
        if not -len(self) <= row < len(self):
            raise IndexError(row)
        end = self._ends[row]
        return self.flat[end - self.lengths[row] : end]
