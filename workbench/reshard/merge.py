"""What an engine gets of a trainer's weights: the weights as they are, or W + s·B·A of the frozen ones, always from W itself.

The sum is rounded once, from float32, so that nothing adds up over the steps of a run. What the rounding loses is measured.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch

from workbench.errors import ConfigError
from workbench.reshard.apply import cut, rows_at_once
from workbench.reshard.faults import some
from workbench.reshard.schedule import Copy

ELEMENTS = 2**20  # of a slice, enough for what rounding loses to a thousandth of it
SLICES = 32  # of which what rounding loses is measured at a time, if there are so many


@dataclass(frozen=True)
class Delta:
    """What an adapter adds to a weight (out, in): ``scaling`` · ``b`` (out, r) · ``a`` (r, in), both whole on every rank."""

    a: torch.Tensor
    b: torch.Tensor
    scaling: float


@dataclass(frozen=True)
class Plain:
    """Reads weights as they are: views on this rank's tensors."""

    weights: Mapping[str, torch.Tensor]

    def __call__(self, copy: Copy) -> torch.Tensor:
        """The slice of this rank's tensor that ``copy`` takes."""
        tensor = self.weights.get(copy.parameter)
        if tensor is None:
            asked = f"read {copy.parameter}, {copy.source_slice}, on rank {copy.source_rank}"
            raise ConfigError(asked, "the trainer has no such weight", f"it has {some(sorted(self.weights))}")
        return cut(tensor.detach(), copy.source_slice)


@dataclass(frozen=True)
class Merging:
    """Reads W + s·B·A, computed in float32 and rounded once to W's precision; a weight without a delta as it is. See :func:`merging`."""

    weights: Mapping[str, torch.Tensor]
    deltas: Mapping[str, Delta]

    def __call__(self, copy: Copy) -> torch.Tensor:
        """The slice of this rank's tensor that ``copy`` takes, merged."""
        weight = self.source(copy)
        if copy.parameter not in self.deltas:
            return weight
        merged = torch.empty_like(weight, memory_format=torch.contiguous_format)
        self.write(copy, weight, merged)
        return merged

    def source(self, copy: Copy) -> torch.Tensor:
        """W."""
        return Plain(self.weights)(copy)

    def write(self, copy: Copy, source: torch.Tensor, into: torch.Tensor) -> None:
        """The same as a call, straight into a tensor."""
        delta = self.deltas.get(copy.parameter)
        if delta is None:
            into.copy_(source)
            return
        a, b = _cut(delta, copy)
        if a.dtype == b.dtype == source.dtype != torch.float32:
            # in half precision one kernel multiplies and adds in float32, and rounds as it writes
            torch.addmm(source, b, a, alpha=delta.scaling, out=into)
            return
        for rows, product in products(delta, copy):
            # reads both precisions, adds in float32 and rounds as it writes
            torch.add(source[rows], product, alpha=delta.scaling, out=into[rows])


@dataclass(frozen=True)
class Measured(Merging):
    """Reads the same, and measures meanwhile what rounding takes away: of each slice at most its first ``ELEMENTS``, by whole rows.

    Of many merged weights every n-th, so that some ``SLICES`` are measured, from the ``turn``-th on: syncs take turns.
    """

    turn: int = 0
    lost: list[torch.Tensor] = field(default_factory=list)  # norms, of each slice
    added: list[torch.Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, read: Merging, turn: int = 0) -> Self:
        """The same weights and deltas, nothing read so far."""
        return cls(read.weights, read.deltas, turn)

    @cached_property
    def _chosen(self) -> frozenset[str]:
        step = max(1, len(self.deltas) // SLICES)
        return frozenset(sorted(self.deltas)[self.turn % step :: step])

    def __call__(self, copy: Copy) -> torch.Tensor:
        """As of ``Merging``."""
        merged = super().__call__(copy)
        if copy.parameter in self._chosen:
            self._measure(copy, merged)
        return merged

    @property
    def rounding(self) -> float:
        """‖round(W + d) - (W + d)‖ / ‖d‖ over all that was read so far, d = s·B·A: what part of the adapter rounding takes away.

        0 without an adapter, or while it is still zero.
        """
        if not self.added:
            return 0.0
        lost, added = torch.stack([torch.stack(self.lost).norm(), torch.stack(self.added).norm()]).tolist()  # one copy from the device
        return float(lost / added) if added else 0.0

    def _measure(self, copy: Copy, merged: torch.Tensor) -> None:
        delta, weight = self.deltas[copy.parameter], self.source(copy)
        better = torch.float64 if weight.dtype == torch.float32 else torch.float32  # in which differences are exact
        (first, last), *columns = copy.part
        count = min(last - first, max(1, ELEMENTS // weight.shape[1]))
        weight, merged = weight[:count], merged[:count]
        for rows, product in products(delta, replace(copy, part=((first, first + count), *columns))):
            product = product.to(better)
            self.lost.append(merged[rows].to(better).sub_(weight[rows]).sub_(product, alpha=delta.scaling).norm())
            self.added.append(product.norm() * abs(delta.scaling))


def plain(weights: Mapping[str, torch.Tensor]) -> Plain:
    """``weights``: a parameter's name -> this rank's tensor of it."""
    return Plain(weights)


def merging(weights: Mapping[str, torch.Tensor], deltas: Mapping[str, Delta]) -> Merging:
    """``weights``: a parameter's name -> this rank's tensor of W; ``deltas``: what is added to some of them, as they are now.

    Raises ConfigError for a delta whose A and B don't go together.
    """
    for name, delta in deltas.items():
        a, b = tuple(delta.a.shape), tuple(delta.b.shape)
        if len(a) != 2 or len(b) != 2 or a[0] != b[1]:
            raise ConfigError(f"merge an adapter into {name}", f"A has shape {a} and B {b}", "give A (r, in) and B (out, r)")
    return Merging(weights, deltas)


def products(delta: Delta, copy: Copy) -> Iterator[tuple[slice, torch.Tensor]]:
    """B·A where ``copy`` lies in the parameter, in float32 or better, some rows at a time: which of the slice, and their product."""
    kind = torch.promote_types(delta.a.dtype, torch.float32)
    a, b = (factor.to(kind) for factor in _cut(delta, copy))
    step = rows_at_once(a.device, a.shape[1] * a.element_size())
    for start in range(0, len(b), step):
        rows = slice(start, start + step)
        yield rows, b[rows] @ a


def _cut(delta: Delta, copy: Copy) -> tuple[torch.Tensor, torch.Tensor]:
    """A and B of the part of the weight that ``copy`` takes."""
    (first, last), (left, right) = copy.part
    if last > delta.b.shape[0] or right > delta.a.shape[1]:
        found = f"its adapter is for a weight of {delta.b.shape[0]} x {delta.a.shape[1]}"
        raise ConfigError(f"merge {copy.parameter}, {copy.part}", found, "give the adapter whole on every rank, not its shard")
    a = delta.a if right - left == delta.a.shape[1] else delta.a[:, left:right]
    b = delta.b if last - first == delta.b.shape[0] else delta.b[first:last]
    return a.detach(), b.detach()
