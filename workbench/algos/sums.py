"""Sums and maxima over the tokens that count, which micro-batches join exactly. Detached float64 scalars; never wait for the device."""

from collections.abc import Sequence

import torch
from torch import Tensor


def counted_sum(values: Tensor, counted: Tensor) -> Tensor:
    """The sum of ``values`` where ``counted``, whatever the others are."""
    return torch.where(counted, values.detach().double(), 0.0).sum()


def counted_max(values: Tensor, counted: Tensor) -> Tensor:
    """The largest of values >= 0 where ``counted``; 0 of none (amax of nothing raises)."""
    kept = torch.where(counted, values.detach().double(), 0.0).flatten()
    return torch.cat([kept, kept.new_zeros(1)]).amax()


def joined(name: str, values: Sequence[Tensor]) -> Tensor:
    """One number of several parts: the largest where ``name`` ends in ``_max``, else the sum; 0 of none."""
    if not values:
        return torch.zeros((), dtype=torch.float64)
    together = torch.stack(list(values))
    return together.amax() if name.endswith("_max") else together.sum()
