"""The exact layer of the proof for whole weights: what is *resident* in the engine's tensors is what the trainer has, bit for bit.

After the weights were written, every rank reads its own once more, in an independent pass, for all ranks that should hold them, and takes
the fingerprints of what is in its engine. Fingerprints of slices add up, so both are compared without any weight going anywhere: one sum
for each parameter and rank. All ranks see all sums, and so all of them raise, or none does. weights_faults.py names the fault.
"""

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.distributed as dist

from workbench.errors import SyncError
from workbench.reshard.apply import BUCKET_BYTES, DTYPES, Read, Target, check, cut, device_of
from workbench.reshard.faults import Verdict
from workbench.reshard.fingerprints import Sums, words
from workbench.reshard.messages import Reading, readings, resident
from workbench.reshard.parameters import Parameter
from workbench.reshard.schedule import Schedule
from workbench.reshard.weights_faults import Evidence, Table, by_sums, suspects, unknown


@dataclass(frozen=True)
class Proven:
    """What the engine's ranks hold, sound. ``checksum``: 16 hex digits over names, shapes and every bit, the same on all ranks; ``sums``:
    a fingerprint for each parameter and rank, by which the next proof knows what is stale.
    """

    version: int
    checksum: str
    sums: Table
    seconds: float


def prove_weights(
    schedule: Schedule,
    parameters: Sequence[Parameter],
    read: Read,
    target: Target,
    *,
    version: int,
    rank: int = 0,
    group: dist.ProcessGroup | None = None,
    previous: Proven | None = None,
    bucket_bytes: int = BUCKET_BYTES,
) -> Proven:
    """Compare, bit for bit, what ``apply`` wrote with what ``read`` reads now. Every rank of ``group`` calls it, as it called ``apply``.

    ``parameters``: the schedule's. ``bucket_bytes``: as in ``apply``, so that merged weights are computed on equal shapes, with equal bits.
    ``previous``: the proof of the version before, so that stale weights are told from damaged ones. Storage that is shared (``read``
    gives None) is what it is. Without a group a rank looks at its own engine only. Raises SyncError, on all ranks alike, that names the
    fault, the parameters and the ranks; what ``read`` raises on one rank leaves the others waiting, as in ``apply``.
    """
    began = time.perf_counter()
    check(schedule, target, rank, group)
    inquiry = _Inquiry(schedule, parameters, _Place(target, rank, group, bucket_bytes))
    sent, found = inquiry.shared(inquiry.sent(read), inquiry.resident())
    checksum = _checksum(parameters, sent)
    if sent != found:
        asked = f"sync of weights version {version} ({len(parameters)} parameters, checksum {checksum})"
        before = previous.sums if previous and _shape(previous.sums) == _shape(sent) else None
        evidence = Evidence(tuple(one.name for one in parameters), sent, found, before)
        raise SyncError(asked, *inquiry.diagnose(evidence, read))
    return Proven(version, checksum, sent, time.perf_counter() - began)


@lru_cache(maxsize=4)
def _words(plan: Schedule, parameters: tuple[Parameter, ...]) -> dict[str, int]:
    return words(parameters, (*plan.stays, *plan.copies))


def _checksum(parameters: Sequence[Parameter], sums: Table) -> str:
    told = [(one.name, one.shape, one.element_bytes) for one in parameters]
    return hashlib.blake2b(repr((told, sums)).encode(), digest_size=8).hexdigest()


def _shape(sums: Table) -> list[int]:
    return [len(row) for row in sums]


@dataclass(frozen=True)
class _Place:
    """One rank, and what it has in its engine."""

    target: Target
    rank: int
    group: dist.ProcessGroup | None
    bucket_bytes: int


class _Inquiry:
    """Fingerprints of one rank, and the sums of all. A slot is a parameter on a target rank."""

    def __init__(self, schedule: Schedule, parameters: Sequence[Parameter], place: _Place) -> None:
        self._schedule, self._parameters, self._place = schedule, parameters, place
        self._ranks = len(schedule.loads)
        self._row = {one.name: row * self._ranks for row, one in enumerate(parameters)}
        self._device = device_of(place.target, place.group)
        self._word = _words(schedule, tuple(parameters))
        self._kinds = [[-1] * len(parameters) * self._ranks for _ in range(2)]  # precisions sent, and resident: numbers in DTYPES

    def sent(self, read: Read) -> torch.Tensor:
        """(slots,) of what this rank reads for each target rank."""
        sums = Sums(self._parameters, self._device)
        for same in readings(self._schedule, self._place.rank, self._place.bucket_bytes):
            slots = [self._row[copy.parameter] + copy.target_rank for copy in same]
            value = self._read(read, same)
            sums.add(slots, value, same[0].part, self._word[same[0].parameter])
            for slot in slots:
                self._kinds[0][slot] = DTYPES.index(value.dtype)
        return sums.table(len(self._kinds[0]))

    def resident(self) -> torch.Tensor:
        """(slots,) of what this rank has in its engine."""
        sums = Sums(self._parameters, self._device)
        for copy in resident(self._schedule, self._place.rank):
            slot, tensor = self._row[copy.parameter] + self._place.rank, self._place.target[copy.parameter]
            sums.add([slot], cut(tensor, copy.target_slice), copy.part, self._word[copy.parameter])
            self._kinds[1][slot] = DTYPES.index(tensor.dtype)
        return sums.table(len(self._kinds[1]))

    def shared(self, *tables: torch.Tensor) -> tuple[Table, ...]:
        """Each of ``tables`` added up over all ranks: one message, and one copy from the device."""
        return self._reduced(torch.stack(tables), dist.ReduceOp.SUM)

    def diagnose(self, evidence: Evidence, read: Read) -> Verdict:
        """The fault's name, where it is, and what to do: on all ranks the same, since all of them know the same."""
        verdict = self._other_dtype(evidence) or by_sums(evidence)
        if verdict is not None:
            return verdict
        for suspect in suspects(read):
            (guessed,) = self.shared(self.sent(suspect.read))
            if all(guessed[row][rank] == evidence.resident[row][rank] for row, rank in evidence.wrong):
                return f"{suspect.found}, in {evidence.where}", suspect.fix
        return unknown(evidence)

    def _read(self, read: Read, same: Reading) -> torch.Tensor:
        """What is sent; of shared storage what is resident."""
        value, copy = read(same[0]), same[0]
        return cut(self._place.target[copy.parameter], copy.target_slice) if value is None else value

    def _other_dtype(self, evidence: Evidence) -> Verdict | None:
        sent, found = self._reduced(torch.tensor(self._kinds, device=self._device), dist.ReduceOp.MAX)
        other = [(row, rank) for row, rank in evidence.wrong if sent[row][rank] != found[row][rank]]
        if not other:
            return None
        row, rank = other[0]
        have, want = DTYPES[found[row][rank]], DTYPES[sent[row][rank]]
        return f"wrong dtype: {have} where {want} was sent, in {evidence.place(other)}", "start the engine in the trainer's precision"

    def _reduced(self, tables: torch.Tensor, how: dist.ReduceOp.RedOpType) -> tuple[Table, ...]:
        if self._place.group is not None:
            dist.all_reduce(tables, how, group=self._place.group)
        rows = tables.reshape(len(tables), len(self._parameters), self._ranks).tolist()
        return tuple(tuple(tuple(row) for row in table) for table in rows)
