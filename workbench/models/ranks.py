"""The processes that train one model together: who they are, their named groups, and what they do in common.

Every call of torch.distributed that the models need is here. Ranks of one tensor-parallel group are consecutive; ranks with the
same place in their tensor-parallel group are one data-parallel group: of 4 ranks with tp 2, tensor (0, 1) (2, 3), data (0, 2) (1, 3).
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from workbench.errors import CollectiveError, ConfigError
from workbench.models.purposes import PURPOSES, SECONDS

T = TypeVar("T")
BUCKET_BYTES = 2**28  # of gradients that are summed at once


class Waits:
    """Seconds that this process has spent in exchanges with other ranks, waiting for the last of them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what is within."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.seconds += time.monotonic() - began


@dataclass(frozen=True)
class Ranks:
    """This process among those that train one model. ``alone`` has no groups and never waits for anybody."""

    rank: int
    size: int
    tp: int = 1
    role: str = "actor"
    timeouts: Mapping[str, float] = field(default_factory=dict)  # purpose -> seconds
    groups: Mapping[str, Any] = field(default_factory=dict, repr=False)  # purpose -> process group
    waits: Waits = field(default_factory=Waits, repr=False, compare=False)

    @classmethod
    def alone(cls) -> "Ranks":
        """One process."""
        return cls(0, 1)

    @classmethod
    def of_world(cls, *, role: str, tp: int = 1, timeouts: Mapping[str, float] | None = None) -> "Ranks":
        """All ranks of the default process group; each of them has to call this. Makes the groups of every purpose.

        Raises ConfigError on a purpose that isn't there and on a ``tp`` that the ranks can't be cut into.
        """
        size, rank = dist.get_world_size(), dist.get_rank()
        seconds = {**dict.fromkeys(PURPOSES, SECONDS), **(timeouts or {})}
        for purpose in seconds.keys() - PURPOSES.keys():
            raise ConfigError(f"timeouts of {role}: {purpose!r}", "no group has this purpose", f"use {', '.join(PURPOSES)}")
        if size % tp:
            raise ConfigError(f"{role} with tp={tp}", f"it has {size} ranks", f"give it a multiple of {tp} devices")
        everyone = [list(range(size))]
        tensor = [list(range(start, start + tp)) for start in range(0, size, tp)]
        data = [list(range(start, size, tp)) for start in range(tp)]
        members = {"control": everyone, "gradients": data, "shards": everyone, "tensor": tensor}
        groups = {purpose: _group_of(rank, members[purpose], f"{role}.{purpose}", seconds[purpose]) for purpose in PURPOSES}
        return cls(rank, size, tp, role, seconds, groups)

    @property
    def data_index(self) -> int:
        """Which share of the rows is this rank's."""
        return self.rank // self.tp

    @property
    def data_size(self) -> int:
        """Into how many shares the rows are split."""
        return self.size // self.tp

    def agree(self, mine: T) -> list[T]:
        """What every rank gave, in the order of ranks: the same list on all of them, so that all decide alike.

        Raises CollectiveError where some did not arrive within the time of "control", naming them.
        """
        if self.size == 1:
            return [mine]
        everyone: list[Any] = [None] * self.size
        seconds, control = self.timeouts["control"], self.groups["control"]
        try:
            with self.waits.counted():
                dist.monitored_barrier(control, timeout=timedelta(seconds=seconds), wait_all_ranks=True)
                dist.all_gather_object(everyone, mine, group=control)
        except RuntimeError as error:
            fix = f"look at what that rank says; if it is only slow, give timeouts={{'control': ...}} more than {seconds:g} seconds"
            raise CollectiveError(f"{self.role}.control, rank {self.rank}", f"{self._missing(error)} within {seconds:g} s", fix) from error
        return everyone

    def sum_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Replace each ``.grad`` by its sum over the data-parallel ranks, in flat buckets of one dtype. None counts as zeros."""
        if self.data_size == 1:
            return
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for gradients in _buckets([parameter.grad for parameter in parameters if parameter.grad is not None]):
            flat = self.sum(torch.cat([gradient.flatten() for gradient in gradients]), "gradients")
            parts = flat.split([gradient.numel() for gradient in gradients])
            torch._foreach_copy_(gradients, [part.view_as(g) for part, g in zip(parts, gradients, strict=True)])

    def sum(self, tensor: torch.Tensor, purpose: str) -> torch.Tensor:
        """``tensor``, now the sum over the group of ``purpose``."""
        with self.waits.counted():  # NCCL only queues it: on a GPU what waits is whoever reads the sum
            dist.all_reduce(tensor, group=self.groups[purpose])
        return tensor

    def mesh(self, purpose: str, device: str) -> Any:
        """The group of ``purpose`` as a device mesh of one dimension, for DTensor and FSDP2. ``device``: "cpu" or "cuda"."""
        from torch.distributed.device_mesh import DeviceMesh

        return DeviceMesh.from_group(self.groups[purpose], device)

    def _missing(self, error: RuntimeError) -> str:
        """Who did not arrive. Only the first rank learns their names; the others learn whether it answered."""
        named = re.search(r"Ranks? ([\d, ]+?)\s*failed", str(error))
        if named:
            return f"rank {named[1]} of {self.size} did not arrive"
        return "rank 0 did not arrive, or found others missing" if self.rank else f"some rank of {self.size} did not arrive"


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """``tensors`` by dtype, as many at a time as fill ``BUCKET_BYTES``, at least one: all weights' gradients are not copied at once."""
    bucket: list[torch.Tensor] = []
    for tensor in sorted(tensors, key=_dtype):
        if bucket and (bucket[0].dtype != tensor.dtype or sum(t.nbytes for t in bucket) + tensor.nbytes > BUCKET_BYTES):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype)


def _group_of(rank: int, members: list[list[int]], name: str, seconds: float) -> Any:
    """Make a group of each of ``members``, on every rank in the same order; the one that ``rank`` is in."""
    backend = "gloo" if name.endswith(".control") else None
    made = [dist.new_group(ranks, timeout=timedelta(seconds=seconds), backend=backend, group_desc=name) for ranks in members]
    return next(group for group, ranks in zip(made, members, strict=True) if rank in ranks)
