"""Rows of different lengths as one flat row: no padding, so no work on padding.

T: tokens of a packed micro-batch, prompts and responses of several rows one after the other.
R: its response tokens, the only ones whose log-probabilities are wanted.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Row:
    """One prompt and one completion, as token ids."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prompt) + len(self.response)


@dataclass(frozen=True)
class Packed:
    """A micro-batch. The model reads ``ids``; position ``source[r]`` predicts the response token ``target[r]``."""

    rows: tuple[int, ...]  # which rows of the batch, in this order
    ids: torch.Tensor  # (1, T)
    positions: torch.Tensor  # (1, T), from 0 in every row
    starts: torch.Tensor  # (rows + 1,) int32, cumulative lengths
    longest: int
    source: torch.Tensor  # (R,) into T
    target: torch.Tensor  # (R,) token ids
    lengths: tuple[int, ...]  # response tokens of each row


def micro_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Row numbers split into micro-batches of at most ``budget`` tokens each (a longer row stands alone).

    Longest first, so that a micro-batch holds rows of like length: the attention of a packed row is done per row.
    """
    batches: list[list[int]] = []
    room = 0
    for row in sorted(range(len(lengths)), key=lambda r: -lengths[r]):
        if not batches or lengths[row] > room:
            batches.append([])
            room = budget
        batches[-1].append(row)
        room -= lengths[row]
    return batches


def pack(rows: Sequence[Row], chosen: Sequence[int], device: torch.device) -> Packed:
    """Lay the ``chosen`` rows one after the other. A row needs a prompt of at least one token: something must predict its first."""
    ids: list[int] = []
    positions: list[int] = []
    starts = [0]
    source: list[int] = []
    for r in chosen:
        first = len(ids) + len(rows[r].prompt) - 1
        ids += (*rows[r].prompt, *rows[r].response)
        positions += range(len(rows[r]))
        starts.append(len(ids))
        source += range(first, first + len(rows[r].response))

    def tensor(values: Sequence[int], dtype: torch.dtype = torch.long) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

    return Packed(
        rows=tuple(chosen),
        ids=tensor(ids)[None],
        positions=tensor(positions)[None],
        starts=tensor(starts, torch.int32),
        longest=max(len(rows[r]) for r in chosen),
        source=tensor(source),
        target=tensor([t for r in chosen for t in rows[r].response]),
        lengths=tuple(len(rows[r].response) for r in chosen),
    )
