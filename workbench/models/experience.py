"""What actor and critic learn from, and how its rows are shared out among ranks. Plain data, no ranks needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import torch

from workbench.algos import Algorithm
from workbench.models.packing import Row

T = TypeVar("T")


@dataclass(frozen=True)
class Experience:
    """N rows, and one value per response token of each."""

    rows: Sequence[Row]
    engine_logp: Sequence[Sequence[float]]
    advantages: Sequence[torch.Tensor]  # (length,) each: one value per response token
    ref_logp: Sequence[torch.Tensor] | None
    temperature: float
    max_tokens: int


@dataclass(frozen=True)
class Worth:
    """What the critic learns from: N rows, and one value per response token of each."""

    rows: Sequence[Row]
    values: Sequence[torch.Tensor]  # (length,) each: the critic's, before it learns
    targets: Sequence[torch.Tensor]  # (length,) each: what they should have been
    max_tokens: int


@dataclass(frozen=True)
class Cut:
    """One rank's rows, with all that it needs to know of the others' rows: the optimizer steps, and the weights of its own."""

    numbers: Sequence[int]  # of these rows in the whole batch
    parts: Sequence[Sequence[int]]  # which of these rows each optimizer step learns from; one step may have none
    weights: Sequence[float]  # of each token of each row, from the lengths of all rows of its optimizer step


@dataclass(frozen=True)
class Share(Experience, Cut):
    """One rank's rows for the actor."""


@dataclass(frozen=True)
class WorthShare(Worth, Cut):
    """One rank's rows for the critic."""


def shares(whole: Experience, algo: Algorithm, ranks: int) -> list[Share]:
    """The batch split over data-parallel ranks, one share each; the losses of all shares add up to the batch's.

    A row that the algorithm skips for having no advantage costs none.
    """
    costs = [len(row) if learns(whole, algo, n) else 0 for n, row in enumerate(whole.rows)]
    return [_share(whole, cut) for cut in cuts(whole.rows, costs, algo, whole.max_tokens, ranks)]


def worth_shares(whole: Worth, algo: Algorithm, ranks: int) -> list[WorthShare]:
    """The same for the critic: it learns from every row."""
    return [_worth_share(whole, cut) for cut in cuts(whole.rows, [len(row) for row in whole.rows], algo, whole.max_tokens, ranks)]


def cuts(rows: Sequence[Row], costs: Sequence[int], algo: Algorithm, max_tokens: int, ranks: int) -> list[Cut]:
    """``rows`` over ranks. Every optimizer step is split by itself; the algorithm's epochs go over the same steps again.

    The longest row goes to the rank with the fewest tokens so far, the first of them where several have as few. Rows stay in order.
    """
    parts = split(len(rows), algo.minibatches)
    weights = [weight for part in parts for weight in _weights(rows, algo, part, max_tokens)]
    taken = [_balanced(part, [costs[row] for row in part], ranks) for part in parts]
    return [_cut(weights, [of_ranks[rank] for of_ranks in taken], algo.epochs) for rank in range(ranks)]


def split(count: int, parts: int) -> list[range]:
    """0..count-1 in ``parts`` runs of nearly equal length; runs of nothing are left out."""
    cuts = [count * i // parts for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(cuts) if b > a]


def learns(data: Experience, algo: Algorithm, row: int) -> bool:
    """Whether ``row`` adds anything to the gradient."""
    return not algo.skips_zero_advantage or bool(data.advantages[row].any())


def _weights(rows: Sequence[Row], algo: Algorithm, part: range, max_tokens: int) -> list[float]:
    lengths = torch.tensor([len(rows[row].response) for row in part])
    weights: list[float] = algo.weights(lengths, max_tokens).tolist()
    return weights


def _balanced(rows: Sequence[int], costs: Sequence[int], ranks: int) -> list[list[int]]:
    """The rows of each rank, in order."""
    taken: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for cost, row in sorted(zip(costs, rows, strict=True), key=lambda each: (-each[0], each[1])):
        rank = loads.index(min(loads))
        taken[rank].append(row)
        loads[rank] += cost
    return [sorted(each) for each in taken]


def _cut(weights: Sequence[float], parts: Sequence[Sequence[int]], epochs: int) -> Cut:
    numbers = [row for part in parts for row in part]
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    return Cut(numbers, [range(a, b) for a, b in pairwise(ends)] * epochs, [weights[n] for n in numbers])


def _share(whole: Experience, cut: Cut) -> Share:
    return Share(
        **vars(cut),
        rows=_of(cut, whole.rows),
        engine_logp=_of(cut, whole.engine_logp),
        advantages=_of(cut, whole.advantages),
        ref_logp=None if whole.ref_logp is None else _of(cut, whole.ref_logp),
        temperature=whole.temperature,
        max_tokens=whole.max_tokens,
    )


def _worth_share(whole: Worth, cut: Cut) -> WorthShare:
    return WorthShare(
        **vars(cut),
        rows=_of(cut, whole.rows),
        values=_of(cut, whole.values),
        targets=_of(cut, whole.targets),
        max_tokens=whole.max_tokens,
    )


def _of(cut: Cut, values: Sequence[T]) -> list[T]:
    return [values[n] for n in cut.numbers]
