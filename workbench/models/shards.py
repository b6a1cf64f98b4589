"""Tensors that lie in pieces on several ranks: this rank's piece, and the whole. Plain tensors are their own piece."""

import torch
from torch.distributed.tensor import DTensor


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
