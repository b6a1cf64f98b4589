"""What one rank does of a schedule: what it keeps, and bucket by bucket what flat messages it sends and receives. Plain data, no torch."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby

from workbench.reshard.buckets import Bucket, buckets, cut
from workbench.reshard.schedule import Copy, Schedule
from workbench.reshard.slices import Box, elements

Reading = tuple[Copy, ...]
"""Copies of one and the same slice of a rank's tensor to several ranks: it is read once."""


@dataclass(frozen=True)
class Slot:
    """Where a copy lies in the message to, or from, ``peer``: its first byte."""

    copy: Copy
    peer: int
    start: int


@dataclass(frozen=True)
class Exchange:
    """One bucket as a rank sees it. ``sent``, ``received``: (peer, bytes) of each message; ``outgoing``: by what is read for them."""

    sent: tuple[tuple[int, int], ...]
    received: tuple[tuple[int, int], ...]
    outgoing: tuple[tuple[Slot, ...], ...]
    incoming: tuple[Slot, ...]

    @property
    def bytes(self) -> int:
        """Of all messages, which is what their buffers take."""
        return sum(size for _, size in (*self.sent, *self.received))


@dataclass(frozen=True)
class Work:
    """A rank's part of a schedule. ``moving``: the parameters of which something goes between any ranks. ``signature``: a number that is
    the same on all ranks that have this schedule and cut it alike.
    """

    stays: tuple[Copy, ...]
    exchanges: tuple[Exchange, ...]
    moving: tuple[str, ...]
    signature: int


@lru_cache(maxsize=4)
def work(plan: Schedule, rank: int, bucket_bytes: int) -> Work:
    """What ``rank`` does of ``plan``, at most ``bucket_bytes`` of messages at a time. Kept, since a run does the same each step."""
    limit = bucket_bytes // 2  # one half for what goes out, one for what comes in
    runs = buckets(plan, limit)
    moves = tuple(tuple((copy.source_rank, copy.target_rank, copy.bytes) for copy in bucket) for bucket in runs)
    stays = tuple(part for copy in plan.stays if copy.target_rank == rank for part in cut(copy, limit))
    moving = tuple(dict.fromkeys(copy.parameter for copy in plan.copies))
    return Work(stays, tuple(_exchange(bucket, rank) for bucket in runs), moving, hash(moves) % 2**62)


@lru_cache(maxsize=4)
def readings(plan: Schedule, rank: int, bucket_bytes: int) -> tuple[Reading, ...]:
    """All that ``rank`` gives and keeps, in the pieces in which :func:`work` has it read: arithmetic on equal shapes gives equal bits."""
    copies = [copy for copy in (*plan.stays, *plan.copies) if copy.source_rank == rank]
    parts = sorted((part for copy in copies for part in cut(copy, bucket_bytes // 2)), key=_place)
    return tuple(tuple(same) for _, same in groupby(parts, key=_place))


@lru_cache(maxsize=4)
def resident(plan: Schedule, rank: int) -> tuple[Copy, ...]:
    """All that ``rank`` has afterwards, in as few slices of its tensors as there can be: copies that touch there are one."""
    copies = [copy for copy in (*plan.stays, *plan.copies) if copy.target_rank == rank]
    found: list[Copy] = []
    for copy in sorted(copies, key=lambda copy: (copy.parameter, copy.target_slice)):
        both = _joined(found[-1], copy) if found else None
        if both is not None:
            found[-1] = both
        else:
            found.append(copy)
    return tuple(found)


def _place(copy: Copy) -> tuple[str, Box]:
    """What is read for it."""
    return copy.parameter, copy.source_slice


def _exchange(bucket: Bucket, rank: int) -> Exchange:
    sent = sorted(_slots([copy for copy in bucket if copy.source_rank == rank], sending=True), key=lambda slot: _place(slot.copy))
    received = tuple(_slots([copy for copy in bucket if copy.target_rank == rank], sending=False))
    outgoing = tuple(tuple(same) for _, same in groupby(sent, key=lambda slot: _place(slot.copy)))
    return Exchange(_sizes(sent), _sizes(received), outgoing, received)


def _slots(copies: list[Copy], *, sending: bool) -> Iterator[Slot]:
    """Copies end to end for each peer: the widest elements first, so that each begins at a multiple of its element."""
    ends: dict[int, int] = {}
    for copy in sorted(copies, key=lambda copy: -(copy.bytes // elements(copy.part))):
        peer = copy.target_rank if sending else copy.source_rank
        start = ends.get(peer, 0)
        ends[peer] = start + copy.bytes
        yield Slot(copy, peer, start)


def _sizes(slots: Iterable[Slot]) -> tuple[tuple[int, int], ...]:
    sizes: dict[int, int] = {}
    for slot in slots:
        sizes[slot.peer] = sizes.get(slot.peer, 0) + slot.copy.bytes
    return tuple(sorted(sizes.items()))


def _joined(one: Copy, other: Copy) -> Copy | None:
    """Both as one copy, where ``other`` follows on ``one`` along one dimension, in the parameter and in the tensor; else None."""
    if one.parameter != other.parameter:
        return None
    part, target_slice = _longer(one.part, other.part), _longer(one.target_slice, other.target_slice)
    if part is None or target_slice is None:
        return None
    return replace(one, part=part, target_slice=target_slice, source_slice=part, bytes=one.bytes + other.bytes)


def _longer(box: Box, after: Box) -> Box | None:
    """One box of both, if ``after`` begins where ``box`` ends along one dimension and is the same along the others."""
    apart = [dim for dim, (one, other) in enumerate(zip(box, after, strict=True)) if one != other]
    if len(apart) != 1 or box[apart[0]][1] != after[apart[0]][0]:
        return None
    dim = apart[0]
    return (*box[:dim], (box[dim][0], after[dim][1]), *box[dim + 1 :])
