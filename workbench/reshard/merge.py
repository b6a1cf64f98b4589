"""What an engine gets of a trainer's weights: the weights as they are, or W + s·B·A of the frozen ones, always from W itself.

The sum is rounded once, from float32, so that nothing adds up over the steps of a run. What the rounding loses is measured.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch

from workbench.errors import ConfigError
from workbench.reshard.apply import at, rows_at_once
from workbench.reshard.faults import some
from workbench.reshard.schedule import Copy


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
        return tensor.detach()[at(copy.source_slice)]


@dataclass(frozen=True)
class Merging:
    """Reads W + s·B·A, computed in float32 and rounded once to W's precision; a weight without a delta as it is. See :func:`merging`."""

    weights: Mapping[str, torch.Tensor]
    deltas: Mapping[str, Delta]

    def __call__(self, copy: Copy) -> torch.Tensor:
        """The slice of this rank's tensor that ``copy`` takes, merged."""
        weight, delta = Plain(self.weights)(copy), self.deltas.get(copy.parameter)
        if delta is None:
            return weight
        merged = torch.empty_like(weight, memory_format=torch.contiguous_format)
        for rows, product in products(delta, copy):
            # one kernel reads both precisions, adds in float32 and rounds as it writes
            torch.add(weight[rows], product, alpha=delta.scaling, out=merged[rows])
        return merged


def plain(weights: Mapping[str, torch.Tensor]) -> Plain:
    """``weights``: a parameter's name -> this rank's tensor of it."""
    return Plain(weights)


def merging(weights: Mapping[str, torch.Tensor], deltas: Mapping[str, Delta]) -> Merging:
    """``weights``: a parameter's name -> this rank's tensor of W; ``deltas``: what is added to some of them, as they are now.

    Raises ConfigError for a delta whose A and B don't go together.
    """
    wide = {}
    for name, delta in deltas.items():
        a, b = tuple(delta.a.shape), tuple(delta.b.shape)
        if len(a) != 2 or len(b) != 2 or a[0] != b[1]:
            raise ConfigError(f"merge an adapter into {name}", f"A has shape {a} and B {b}", "give A (r, in) and B (out, r)")
        kind = torch.promote_types(delta.a.dtype, torch.float32)
        wide[name] = Delta(delta.a.detach().to(kind), delta.b.detach().to(kind), delta.scaling)
    return Merging(weights, wide)


def products(delta: Delta, copy: Copy) -> Iterator[tuple[slice, torch.Tensor]]:
    """B·A where ``copy`` lies in the parameter, in the adapter's precision, some rows at a time: which of the slice, and their product."""
    (first, last), columns = copy.part[0], slice(*copy.part[1])
    if last > delta.b.shape[0] or columns.stop > delta.a.shape[1]:
        found = f"its adapter is for a weight of {delta.b.shape[0]} x {delta.a.shape[1]}"
        raise ConfigError(f"merge {copy.parameter}, {copy.part}", found, "give the adapter whole on every rank, not its shard")
    a, b = delta.a[:, columns], delta.b[first:last]
    step = rows_at_once(a.device, a.shape[1] * a.element_size())
    for start in range(0, last - first, step):
        rows = slice(start, start + step)
        yield rows, b[rows] @ a


def rounding(read: Merging, copies: Iterable[Copy]) -> float:
    """‖round(W + d) - (W + d)‖ / ‖d‖ over the merged weights of ``copies``, d = s·B·A: what part of the adapter rounding takes away.

    0 without an adapter, or while it is still zero. For a rank: the copies whose source it is (of a schedule's stays, say).
    """
    lost, added = [], []
    for copy in copies:
        if copy.parameter in read.deltas:
            merged, weight, delta = read(copy), Plain(read.weights)(copy), read.deltas[copy.parameter]
            for rows, product in products(delta, copy):
                d = product.double() * delta.scaling
                lost.append((merged[rows].double() - (weight[rows].double() + d)).square().sum())
                added.append(d.square().sum())
    if not added:
        return 0.0
    gone, whole = torch.stack([torch.stack(lost).sum(), torch.stack(added).sum()]).tolist()  # one copy from the device
    return float((gone / whole) ** 0.5) if whole else 0.0
