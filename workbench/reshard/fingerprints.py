"""Fingerprints of slices that add up to that of the whole: each element's bits times a number for its place in the parameter, modulo 2^64.

The number is the product of one odd number for the place along each dimension, so that a slice costs two kernels (its rows are summed, then
weighted) and no number per element is ever kept. Several elements side by side may be one word, of at most 64 bits. A slice has the same
sum wherever it lies. A single changed element always shows; two that changed places, or many at once, stay unseen with a chance of
2^-32 at worst.
"""

from collections.abc import Iterable, Sequence
from math import gcd

import torch

from workbench.reshard.apply import rows_at_once
from workbench.reshard.parameters import Parameter
from workbench.reshard.schedule import Copy
from workbench.reshard.slices import Box

BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
MIXERS = ((-0x61C8864680B583EB, 30), (-0x40A7B892E31B1A47, 27), (-0x6B2FB644ECCEEE15, 31))  # splitmix64's, as signed numbers


class Sums:
    """Fingerprints under numbered slots. A device is not waited for while slices come, only at the end, by :meth:`table`."""

    def __init__(self, parameters: Sequence[Parameter], device: torch.device) -> None:
        """``parameters``: all whose slices may come; ``device``: where they are."""
        most = max(len(one.shape) for one in parameters)
        sizes = [max(one.shape[dim] for one in parameters if dim < len(one.shape)) for dim in range(most)]
        self._places = [_numbers(size, dim, device) for dim, size in enumerate(sizes)]
        self._device = device
        self._rows: list[torch.Tensor] = []  # of each slice, the sums of its rows
        self._weights: list[torch.Tensor] = []  # and their rows' numbers
        self._slots: list[tuple[int, ...]] = []

    def add(self, slots: Sequence[int], values: torch.Tensor, part: Box, word: int = 1) -> None:
        """Add the fingerprint of ``values``, which lie at ``part`` of their parameter, to each of ``slots``.

        ``word``: so many elements of a row are taken as one, as of :func:`words`; the same for all slices of a parameter.
        """
        bits = values.detach().view(BITS[values.element_size() * word])
        if len(part) == 1:  # each element of a vector is a row
            self._rows.append(bits.long())
        else:
            self._rows.append(_row_sums(bits.reshape(bits.shape[0], -1), self._columns(part, word)))
        self._weights.append(self._place(0, part[0], word if len(part) == 1 else 1))
        self._slots.append(tuple(slots))

    def table(self, slots: int) -> torch.Tensor:
        """(slots,) int64: the sum of what came under each."""
        total = torch.zeros(slots, dtype=torch.int64, device=self._device)
        if not self._slots:
            return total
        sizes = torch.tensor([len(rows) for rows in self._weights], device=self._device)
        pieces = torch.repeat_interleave(torch.arange(len(sizes), device=self._device), sizes, output_size=sum(map(len, self._weights)))
        sums = total.new_zeros(len(sizes)).index_add_(0, pieces, torch.cat(self._rows) * torch.cat(self._weights))
        where = [(slot, piece) for piece, slots in enumerate(self._slots) for slot in slots]
        slot, piece = torch.tensor(where, device=self._device).T
        return total.index_add_(0, slot, sums[piece])

    def _place(self, dim: int, span: tuple[int, int], word: int = 1) -> torch.Tensor:
        return self._places[dim][span[0] // word : span[1] // word]

    def _columns(self, part: Box, word: int) -> torch.Tensor:
        """The numbers of a row's words: all dimensions after the first as one."""
        *outer, last = range(1, len(part))
        columns = self._place(last, part[last], word)
        for dim in reversed(outer):
            columns = (self._place(dim, part[dim]).unsqueeze(1) * columns).reshape(-1)
        return columns


def words(parameters: Sequence[Parameter], copies: Iterable[Copy]) -> dict[str, int]:
    """How many elements of a row of each parameter are one word, of 8 bytes where all ``copies`` begin and end at whole ones.

    So that a fingerprint takes a quarter of the arithmetic. The same for all ranks that know the same copies.
    """
    found = {one.name: max(1, 8 // one.element_bytes) for one in parameters}
    for copy in copies:
        for bounds in (copy.part[-1], copy.source_slice[-1], copy.target_slice[-1]):
            found[copy.parameter] = gcd(found[copy.parameter], *bounds)
    return found


def _row_sums(bits: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """(rows,) of ``bits`` (rows, columns), weighted: some rows at a time, in one buffer."""
    step = rows_at_once(bits.device, 8 * len(columns))
    if len(bits) <= step:
        return torch.sum(bits * columns, 1)
    sums, buffer = columns.new_empty(len(bits)), columns.new_empty(step, len(columns))
    for some, into in zip(bits.split(step), sums.split(step), strict=True):
        torch.sum(torch.mul(some, columns, out=buffer[: len(some)]), 1, out=into)
    return sums


def _numbers(size: int, dim: int, device: torch.device) -> torch.Tensor:
    """(size,) odd 64-bit numbers without a pattern, others for each dimension: a square matrix is not its transpose."""
    mixed = torch.arange(1, size + 1, device=device) + (dim << 40)
    for factor, shift in MIXERS:
        mixed = mixed * factor
        mixed = mixed ^ (mixed >> shift)
    return mixed | 1
