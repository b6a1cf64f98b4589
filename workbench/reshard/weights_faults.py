"""What is wrong with whole weights that arrived differently from how they were sent. Two kinds of evidence, the surest first.

Sums: what lies in the engine is what belonged to the version before, to another parameter, or nothing at all. Suspects: the weights
are read once more as one fault would have made them, and exactly that lies in the engine.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from workbench.reshard.apply import Read
from workbench.reshard.drawing import ranks
from workbench.reshard.faults import Verdict, some
from workbench.reshard.merge import Merging, Plain, products
from workbench.reshard.schedule import Copy

Table = tuple[tuple[int, ...], ...]
"""A fingerprint for each parameter, of what each rank has of it."""
HALVES = (torch.bfloat16, torch.float16)


@dataclass(frozen=True)
class Evidence:
    """The sums of what was sent, of what is resident, and of what was resident before (None: not known), parameter by parameter."""

    names: tuple[str, ...]
    sent: Table
    resident: Table
    before: Table | None = None

    @property
    def wrong(self) -> tuple[tuple[int, int], ...]:
        """(parameter, rank) of each difference."""
        rows = enumerate(zip(self.sent, self.resident, strict=True))
        return tuple((at, rank) for at, (row, seen) in rows for rank in range(len(row)) if row[rank] != seen[rank])

    @property
    def where(self) -> str:
        """The wrong parameters and their ranks, in words."""
        return self.place(self.wrong)

    def place(self, entries: Sequence[tuple[int, int]]) -> str:
        """How many parameters of how many, on which ranks, and the first names."""
        names = [self.names[at] for at in sorted({at for at, _ in entries})]
        found = sorted({rank for _, rank in entries})
        on = f" on rank{'s' if len(found) > 1 else ''} {ranks(found)}"
        return f"{len(names)} of {len(self.names)} parameters{on}: {some(names)}"


@dataclass(frozen=True)
class Suspect:
    """A fault, as the sentence that names it, what to do, and how weights are read that have it."""

    found: str
    fix: str
    read: Read


def by_sums(evidence: Evidence) -> Verdict | None:
    """The fault that the sums alone show, if they do."""
    for test in (_stale, _half, _swapped):
        verdict = test(evidence)
        if verdict is not None:
            return verdict
    return None


def suspects(read: Read) -> Iterator[Suspect]:
    """What else may have gone wrong with weights that are read by ``read``; of merged ones, their adapters too."""
    if isinstance(read, Merging):
        yield from _badly_merged(read)
    for half in HALVES:
        yield Suspect(
            f"wrong dtype: weights went through {half} on the way", "write the trainer's weights as they are", _rounded(read, half)
        )


def unknown(evidence: Evidence) -> Verdict:
    """The words for a difference that no test explains."""
    return f"weights differ in {evidence.where}", "half-written tensors: were they written again, or read while they were written?"


def _stale(evidence: Evidence) -> Verdict | None:
    """On each wrong rank, all that changed since the version before is still as it was."""
    before, wrong = evidence.before, set(evidence.wrong)
    if before is None:
        return None
    on = {rank for _, rank in wrong}
    changed = {(at, rank) for at, row in enumerate(evidence.sent) for rank in on if row[rank] != before[at][rank]}
    if wrong != changed or any(evidence.resident[at][rank] != before[at][rank] for at, rank in wrong):
        return None
    found = f"stale weights: the engine still holds the version before, in {evidence.where}"
    return found, "the write did not reach the engine's tensors: nothing was written since the last sync"


def _half(evidence: Evidence) -> Verdict | None:
    """All that is wrong is as it was before, or zero."""
    wrong, before = evidence.wrong, evidence.before
    empty = [(at, rank) for at, rank in wrong if evidence.resident[at][rank] == 0]
    old = [(at, rank) for at, rank in wrong if before is not None and evidence.resident[at][rank] == before[at][rank] != 0]
    if len(empty) + len(old) < len(wrong):
        return None
    states = [(empty, "zero in the engine"), (old, "still those of the version before")]
    found = " and ".join(f"{state}: {evidence.place(entries)}" for entries, state in states if entries)
    return f"half the weights are {found}", "the write broke off: sync again"


def _swapped(evidence: Evidence) -> Verdict | None:
    """A parameter holds what was sent for another."""
    meant = {(rank, total): at for at, row in enumerate(evidence.sent) for rank, total in enumerate(row) if total}
    for at, rank in evidence.wrong:
        other = meant.get((rank, evidence.resident[at][rank]))
        if other is not None:
            both = evidence.resident[other][rank] == evidence.sent[at][rank]
            found = f"{evidence.names[at]} holds what was sent for {evidence.names[other]}{', and the reverse' * both}, on rank {rank}"
            return f"{'swapped layers' if both else 'wrong layer'}: {found}", "names are mapped wrongly"
    return None


def _badly_merged(read: Merging) -> Iterator[Suspect]:
    twice, often = "alpha / rank was applied twice, or not at all", "write W + s·B·A of the frozen W each time"
    changes: tuple[tuple[str, str, Callable[[float], float]], ...] = (
        ("adapter not merged: the engine holds the frozen base", "read the weights with their deltas", lambda scaling: 0.0),
        ("scaling: the adapter was multiplied by its scaling twice", twice, lambda scaling: scaling**2),
        ("scaling: the adapter was not multiplied by its scaling", twice, lambda scaling: 1.0),
        ("scaling: what was added is 2 times the adapter", often, lambda scaling: 2 * scaling),
    )
    for found, fix, change in changes:
        deltas = {name: replace(delta, scaling=change(delta.scaling)) for name, delta in read.deltas.items()}
        yield Suspect(found, fix, replace(read, deltas=deltas))
    yield Suspect("scaling: the adapter was added twice, on top of weights that were merged already", often, _merged_again(read))
    yield Suspect("wrong dtype: the adapter was rounded before it was added", "add in float32, and round once", _added_rounded(read))


def _rounded(read: Read, half: torch.dtype) -> Read:
    def through(copy: Copy) -> torch.Tensor | None:
        value = read(copy)
        return None if value is None else value.to(half).to(value.dtype)

    return through


def _merged_again(read: Merging) -> Read:
    def again(copy: Copy) -> torch.Tensor:
        merged, delta = read(copy), read.deltas.get(copy.parameter)
        if delta is not None:
            for rows, product in products(delta, copy):
                torch.add(merged[rows], product, alpha=delta.scaling, out=merged[rows])
        return merged

    return again


def _added_rounded(read: Merging) -> Read:
    def rounded(copy: Copy) -> torch.Tensor:
        weight, delta = Plain(read.weights)(copy), read.deltas.get(copy.parameter)
        if delta is None:
            return weight
        return torch.cat([weight[rows] + (product * delta.scaling).to(weight.dtype) for rows, product in products(delta, copy)])

    return rounded
