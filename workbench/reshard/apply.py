"""A schedule carried out: what stays is copied on its rank, what moves goes from rank to rank in buckets.

The copies of a bucket between two ranks are one flat message. A rank reads a slice once for all ranks that get it, writes it into their
messages, and what arrives is written where it belongs: no weight is whole anywhere, and beside both layouts lies one bucket.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.distributed as dist

from workbench.errors import ConfigError, SyncError
from workbench.reshard.faults import some
from workbench.reshard.messages import Exchange, Slot, Work, resident, work
from workbench.reshard.schedule import Copy, Schedule
from workbench.reshard.slices import Box

Read = Callable[[Copy], torch.Tensor | None]
"""This rank's part of a copy, of the shape of ``copy.source_slice``, in the precision and on the device of the target. None, only for what
stays: the target shares this storage, and nothing has to be done."""


@runtime_checkable
class Writes(Protocol):
    """A ``Read`` that can write what stays straight into the target: one way through memory less, and no buffer."""

    def source(self, copy: Copy) -> torch.Tensor:
        """What is changed on the way, of the shape and precision of what is written."""
        ...

    def write(self, copy: Copy, source: torch.Tensor, into: torch.Tensor) -> None:
        """Exactly what reading ``copy`` would give."""
        ...


Target = Mapping[str, torch.Tensor]
"""A parameter's name -> the tensor in which its ``target_slice`` lies: the engine's fused one where the parameter is fused."""

BUCKET_BYTES = 2**26
# Of a CPU, what stays in its cache (ten times faster than fresh memory) and is too little for torch to start threads on.
TEMPORARY_BYTES = {"cpu": 96 * 2**10}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8, torch.uint8)
UNKNOWN = len(DTYPES)  # of a rank that holds nothing of a parameter


@dataclass(frozen=True)
class Moved:
    """One rank's part of a reshard, as it was done. Bytes it received, sent, and wrote of its own; most bytes of buffers at one time."""

    received: int
    sent: int
    stayed: int
    peak_bytes: int
    seconds: float


def apply(
    schedule: Schedule,
    read: Read,
    target: Target,
    *,
    rank: int = 0,
    group: dist.ProcessGroup | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> Moved:
    """Carry out ``schedule`` on ``rank``; returns when the weights are there.

    Every rank of ``group`` calls it (None: there is one rank) with the same schedule and the same ``bucket_bytes``, which bound all the
    buffers of a rank together. Raises ConfigError, before anything is written, where this rank's tensors or its group don't fit the
    schedule; SyncError, on all ranks alike, where they disagree on the schedule or on a precision; SyncError where ``read`` gives
    something else than was asked. What is raised on one rank alone, by ``read`` too, leaves a part of the weights written, and the
    other ranks waiting until the time limit of their group: the run has to end.
    """
    began = time.perf_counter()
    check(schedule, target, rank, group)
    mine, mover = work(schedule, rank, bucket_bytes), _Mover(read, target, device_of(target, group), group)
    with torch.no_grad():
        dtypes = mover.agree(mine) if mine.exchanges else {}
        for copy in mine.stays:
            mover.keep(copy)
        for exchange in mine.exchanges:
            mover.carry_out(exchange, dtypes)
    if mover.device.type == "cuda":
        torch.cuda.synchronize(mover.device)
    return Moved(mover.received, mover.sent, mover.stayed, mover.peak, time.perf_counter() - began)


def at(box: Box) -> tuple[slice, ...]:
    """``box`` as an index."""
    return tuple(slice(*span) for span in box)


def cut(tensor: torch.Tensor, box: Box) -> torch.Tensor:
    """What lies at ``box`` of ``tensor``: a view, or itself."""
    return tensor if lengths(box) == tensor.shape else tensor[at(box)]


def lengths(box: Box) -> tuple[int, ...]:
    """The shape of ``box``."""
    return tuple(stop - start for start, stop in box)


def rows_at_once(device: torch.device, row_bytes: int) -> int:
    """How many rows arithmetic may take at a time, if a row of its temporaries has ``row_bytes``."""
    return max(1, TEMPORARY_BYTES.get(device.type, BUCKET_BYTES) // row_bytes)


def device_of(target: Target, group: dist.ProcessGroup | None) -> torch.device:
    """Where the tensors are; of a rank without any, where its group works."""
    for tensor in target.values():
        return tensor.device
    nccl = group is not None and "cuda:nccl" in dist.get_backend_config(group)
    return torch.device("cuda", torch.cuda.current_device()) if nccl and torch.cuda.is_available() else torch.device("cpu")


def check(schedule: Schedule, target: Target, rank: int, group: dist.ProcessGroup | None) -> None:
    """Raise ConfigError unless the group is the schedule's, and this rank's tensors are there and large enough."""
    ranks, size = len(schedule.loads), 1 if group is None else dist.get_world_size(group)
    here = 0 if group is None else dist.get_rank(group)
    if schedule.copies and (size < ranks or here != rank):
        found = f"this is rank {here} of a group of {size}"
        raise ConfigError(f"reshard over {ranks} ranks, as rank {rank}", found, "give the process group of all ranks of the schedule")
    for copy in resident(schedule, rank):
        tensor, asked = target.get(copy.parameter), f"write {copy.parameter}, {copy.target_slice}, on rank {rank}"
        if tensor is None:
            raise ConfigError(asked, "no tensor is given for it", f"give one of {some(sorted(target))}" if target else "give the engine's")
        if len(tensor.shape) != len(copy.part) or any(stop > room for (_, stop), room in zip(copy.target_slice, tensor.shape, strict=True)):
            raise ConfigError(asked, f"the engine's tensor has shape {tuple(tensor.shape)}", "cut the parameter as the engine does")
        if tensor.dtype not in DTYPES:
            raise ConfigError(asked, f"the engine's tensor has {tensor.dtype}", "use an engine whose weights are not packed")


class _Mover:
    """One rank at work, and what it did so far, in bytes."""

    def __init__(self, read: Read, target: Target, device: torch.device, group: dist.ProcessGroup | None) -> None:
        self._read, self._target, self._group, self.device = read, target, group, device
        self._writes = read if isinstance(read, Writes) else None
        self.received = self.sent = self.stayed = self.peak = 0

    def agree(self, mine: Work) -> dict[str, torch.dtype]:
        """The precision of each parameter that moves. Raises SyncError on all ranks where they have different ones, or schedules.

        The first thing that ranks do together: NCCL wants all of them there once, before some of them exchange anything.
        """
        asked = f"reshard {len(mine.moving)} parameters between ranks"
        (low,), (high,) = self._extremes([mine.signature], [mine.signature])
        if low != high:
            raise SyncError(asked, "the ranks have different schedules, or buckets", "give all of them the same layouts and bucket_bytes")
        kinds = [self._target[name].dtype if name in self._target else None for name in mine.moving]
        lows, highs = self._extremes([_code(kind, UNKNOWN) for kind in kinds], [_code(kind, -1) for kind in kinds])
        found = {name: (DTYPES[low], DTYPES[high]) for name, low, high in zip(mine.moving, lows, highs, strict=True)}
        other = [name for name, (one, another) in found.items() if one != another]
        if other:
            one, another = found[other[0]]
            raise SyncError(asked, f"wrong dtype: {one} on one rank, {another} on another, in {some(other)}", "start all engines in one")
        return {name: dtype for name, (dtype, _) in found.items()}

    def keep(self, copy: Copy) -> None:
        """Write what stays on this rank."""
        into = cut(self._target[copy.parameter], copy.target_slice)
        if self._writes is not None:
            self._writes.write(copy, _checked(copy, self._writes.source(copy), into.dtype), into)
        elif (value := self._read(copy)) is not None:
            into.copy_(_checked(copy, value, into.dtype))
        else:
            return
        self.stayed += into.nbytes

    def carry_out(self, exchange: Exchange, dtypes: Mapping[str, torch.dtype]) -> None:
        """Send and receive one bucket. A rank that has nothing in it goes on to the next."""
        sent, received = self._buffers(exchange.sent), self._buffers(exchange.received)
        for same in exchange.outgoing:
            value = _checked(same[0].copy, self._read(same[0].copy), dtypes[same[0].copy.parameter])
            for slot in same:
                _view(sent[slot.peer], slot, value.dtype).copy_(value)
        operations = [self._operation(dist.isend, buffer, peer) for peer, buffer in sent.items()]
        operations += [self._operation(dist.irecv, buffer, peer) for peer, buffer in received.items()]
        for pending in dist.batch_isend_irecv(operations) if operations else ():
            pending.wait()
        for slot in exchange.incoming:
            name = slot.copy.parameter
            cut(self._target[name], slot.copy.target_slice).copy_(_view(received[slot.peer], slot, dtypes[name]))
        self._count(sent, received)

    def _extremes(self, lows: list[int], highs: list[int]) -> tuple[list[int], list[int]]:
        """The least of each of ``lows`` and the most of each of ``highs``, over all ranks."""
        told = torch.tensor([*highs, *(-low for low in lows)], dtype=torch.int64, device=self.device)
        dist.all_reduce(told, dist.ReduceOp.MAX, group=self._group)
        most = told.tolist()
        return [-number for number in most[len(highs) :]], most[: len(highs)]

    def _buffers(self, sizes: tuple[tuple[int, int], ...]) -> dict[int, torch.Tensor]:
        return {peer: torch.empty(size, dtype=torch.uint8, device=self.device) for peer, size in sizes}

    def _operation(self, what: Callable[..., object], buffer: torch.Tensor, peer: int) -> dist.P2POp:
        return dist.P2POp(what, buffer, group=self._group, group_peer=peer)

    def _count(self, sent: Mapping[int, torch.Tensor], received: Mapping[int, torch.Tensor]) -> None:
        out, into = (sum(buffer.nbytes for buffer in buffers.values()) for buffers in (sent, received))
        self.sent, self.received, self.peak = self.sent + out, self.received + into, max(self.peak, out + into)


def _code(kind: torch.dtype | None, otherwise: int) -> int:
    """A number for a precision."""
    return otherwise if kind is None else DTYPES.index(kind)


def _view(buffer: torch.Tensor, slot: Slot, dtype: torch.dtype) -> torch.Tensor:
    """The place of a copy in its message."""
    return buffer[slot.start : slot.start + slot.copy.bytes].view(dtype).view(lengths(slot.copy.part))


def _checked(copy: Copy, value: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    """``value``, if it is what ``copy`` asks for: its shape, its bytes, the target's precision. Raises SyncError."""
    asked = f"reshard {copy.parameter}, {copy.part}, from rank {copy.source_rank} to rank {copy.target_rank}"
    if value is None:
        raise SyncError(asked, "the trainer gives nothing to send", "only what stays on its rank can share storage")
    if value.dtype != dtype or value.nbytes != copy.bytes:
        found = f"wrong dtype: the trainer gives {value.dtype} ({value.nbytes} bytes), the engine has {dtype} ({copy.bytes} bytes)"
        raise SyncError(asked, found, "give the engine the trainer's precision, or read the weights in the engine's")
    if value.shape != lengths(copy.source_slice):
        raise SyncError(asked, f"the trainer gives a slice of shape {tuple(value.shape)}", f"read {copy.source_slice} of its tensor")
    return value
