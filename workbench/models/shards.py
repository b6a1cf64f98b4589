"""Tensors that lie in pieces on several ranks: this rank's piece, and the whole. Plain tensors are their own piece."""

import math
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard


def is_shard(like: torch.Tensor) -> bool:
    """Whether the ranks hold different pieces of ``like``."""
    return isinstance(like, DTensor) and any(placement.is_shard() for placement in like.placements)


def piece(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's piece, sharing memory with ``tensor``."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def piece_as(whole: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """This rank's piece of ``whole``, cut as ``like`` is. No communication: every rank has the whole."""
    if not isinstance(like, DTensor):
        return whole
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(whole, like.device_mesh, like.placements, src_data_rank=None).to_local()


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """The whole of ``tensor`` on every rank; each of them has to call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def all_whole(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """``whole`` of each, by one message for all that are cut by rows over the same ranks; each of them has to call this."""
    kinds: dict[tuple[DeviceMesh, torch.dtype], list[int]] = {}
    for number, tensor in enumerate(tensors):
        if isinstance(tensor, DTensor) and tensor.placements == (Shard(0),):
            kinds.setdefault((tensor.device_mesh, tensor.dtype), []).append(number)
    gathered: dict[int, torch.Tensor] = {}
    for (mesh, _), numbers in kinds.items():
        alike = [tensor for number in numbers if isinstance(tensor := tensors[number], DTensor)]
        gathered |= zip(numbers, _gathered(alike, mesh), strict=True)
    return [gathered[number] if number in gathered else whole(tensor) for number, tensor in enumerate(tensors)]


def _gathered(tensors: Sequence[DTensor], mesh: DeviceMesh) -> Iterator[torch.Tensor]:
    """Rank r has the r-th of equally many rows each, the last ones fewer or none: they are filled up on the way."""
    ranks = mesh.size()
    rows = [-(-len(tensor) // ranks) for tensor in tensors]
    sizes = [count * math.prod(tensor.shape[1:]) for count, tensor in zip(rows, tensors, strict=True)]
    mine = torch.zeros(sum(sizes), dtype=tensors[0].dtype, device=tensors[0].device)
    for into, tensor in zip(mine.split(sizes), tensors, strict=True):
        local = tensor.to_local().flatten()
        into[: len(local)] = local
    every = mine.new_empty(ranks * len(mine))
    dist.all_gather_into_tensor(every, mine, group=mesh.get_group())
    for part, tensor in zip(every.view(ranks, -1).split(sizes, 1), tensors, strict=True):
        yield part.reshape(-1, *tensor.shape[1:])[: len(tensor)]


def whole_as(piece: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The whole of which every rank holds a ``piece``, cut as ``like`` is; each of them has to call this."""
    return whole(over_as(piece, like))


def over_as(piece: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor of which every rank holds a ``piece``, cut as ``like`` is, sharing memory with it."""
    if not isinstance(like, DTensor):
        return piece
    spread: torch.Tensor = DTensor.from_local(
        piece, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
    )
    return spread
