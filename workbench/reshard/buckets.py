"""Copies in buckets: runs of them whose bytes into any rank, and out of any, stay under a limit: what a reshard holds besides."""

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from workbench.errors import ConfigError, check_kind
from workbench.reshard.schedule import Copy, Schedule
from workbench.reshard.slices import Box, elements

Bucket = tuple[Copy, ...]


def buckets(schedule: Schedule, limit_bytes: int) -> tuple[Bucket, ...]:
    """The schedule's copies in their order, each bucket with at most ``limit_bytes`` into any rank, and out of any; a larger
    copy is cut.

    Raises ConfigError where not one element fits.
    """
    check_kind("limit_bytes", limit_bytes, int, "a number of bytes such as 2**28")
    found: list[Bucket] = []
    bucket: list[Copy] = []
    into: dict[int, int] = {}
    out: dict[int, int] = {}
    for copy in (part for whole in schedule.copies for part in cut(whole, limit_bytes)):
        if max(into.get(copy.target_rank, 0), out.get(copy.source_rank, 0)) + copy.bytes > limit_bytes:
            found.append(tuple(bucket))
            bucket, into, out = [], {}, {}
        bucket.append(copy)
        into[copy.target_rank] = into.get(copy.target_rank, 0) + copy.bytes
        out[copy.source_rank] = out.get(copy.source_rank, 0) + copy.bytes
    return (*found, tuple(bucket)) if bucket else tuple(found)


def cut(copy: Copy, limit_bytes: int) -> Iterator[Copy]:
    """``copy`` in parts of at most ``limit_bytes``, along its first dimension as long as one row fits, else along the next too."""
    size = copy.bytes // elements(copy.part)
    if size > limit_bytes:
        raise ConfigError(f"buckets of {limit_bytes} bytes", f"one element of {copy.parameter} has {size}", "give a larger limit")
    if copy.bytes <= limit_bytes:
        yield copy
        return
    lengths = [stop - start for start, stop in copy.part]
    # the first dimension along which single rows are no longer too large
    dim = next(at for at in range(len(lengths)) if prod(lengths[at + 1 :]) * size <= limit_bytes)
    rows = limit_bytes // (prod(lengths[dim + 1 :]) * size)
    yield from _rows(copy, 0, dim, rows)


def _rows(copy: Copy, at: int, dim: int, rows: int) -> Iterator[Copy]:
    """``copy`` row by row along the dimensions before ``dim``, ``rows`` at a time along it."""
    start, stop = copy.part[at]
    step = rows if at == dim else 1
    for first in range(0, stop - start, step):
        part = _narrow(copy, at, first, min(step, stop - start - first))
        if at == dim:
            yield part
        else:
            yield from _rows(part, at + 1, dim, rows)


def _narrow(copy: Copy, dim: int, first: int, length: int) -> Copy:
    """``length`` rows from ``first`` on along ``dim``, in all three numberings."""

    def narrow(box: Box) -> Box:
        start = box[dim][0] + first
        return (*box[:dim], (start, start + length), *box[dim + 1 :])

    part = narrow(copy.part)
    share = copy.bytes // elements(copy.part) * elements(part)
    return replace(copy, part=part, source_slice=narrow(copy.source_slice), target_slice=narrow(copy.target_slice), bytes=share)
