"""What the actor learns from, and how its rows are shared out among ranks. Plain data, no ranks needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch

from workbench.algos import Algorithm
from workbench.models.packing import Row


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
class Share(Experience):
    """One rank's rows, with all that it needs to know of the others' rows: the optimizer steps, and the weights of its own."""

    numbers: Sequence[int]  # of these rows in the whole batch
    parts: Sequence[Sequence[int]]  # which of these rows each optimizer step learns from; one step may have none
    weights: Sequence[float]  # of each token of each row, from the lengths of all rows of its optimizer step


def shares(whole: Experience, algo: Algorithm, ranks: int) -> list[Share]:
    """The batch split over data-parallel ranks, one share each; the losses of all shares add up to the batch's.

    Every optimizer step is split by itself. The longest row goes to the rank with the fewest tokens so far, the first of
    them where several have as few; a row that the algorithm skips for having no advantage costs none. Rows stay in order.
    """
    parts = split(len(whole.rows), algo.minibatches)
    weights = [weight for part in parts for weight in _weights(whole, algo, part)]
    taken = [_balanced(part, [_cost(whole, algo, row) for row in part], ranks) for part in parts]
    return [_share(whole, weights, [of_ranks[rank] for of_ranks in taken]) for rank in range(ranks)]


def split(count: int, parts: int) -> list[range]:
    """0..count-1 in ``parts`` runs of nearly equal length; runs of nothing are left out."""
    cuts = [count * i // parts for i in range(parts + 1)]
    return [range(a, b) for a, b in pairwise(cuts) if b > a]


def learns(data: Experience, algo: Algorithm, row: int) -> bool:
    """Whether ``row`` adds anything to the gradient."""
    return not algo.skips_zero_advantage or bool(data.advantages[row].any())


def _weights(whole: Experience, algo: Algorithm, part: range) -> list[float]:
    lengths = torch.tensor([len(whole.rows[row].response) for row in part])
    weights: list[float] = algo.weights(lengths, whole.max_tokens).tolist()
    return weights


def _cost(whole: Experience, algo: Algorithm, row: int) -> int:
    return len(whole.rows[row]) if learns(whole, algo, row) else 0


def _balanced(rows: Sequence[int], costs: Sequence[int], ranks: int) -> list[list[int]]:
    """The rows of each rank, in order."""
    taken: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for cost, row in sorted(zip(costs, rows, strict=True), key=lambda each: (-each[0], each[1])):
        rank = loads.index(min(loads))
        taken[rank].append(row)
        loads[rank] += cost
    return [sorted(each) for each in taken]


def _share(whole: Experience, weights: Sequence[float], parts: Sequence[Sequence[int]]) -> Share:
    numbers = [row for part in parts for row in part]
    cuts = [0]
    for part in parts:
        cuts.append(cuts[-1] + len(part))
    return Share(
        rows=[whole.rows[n] for n in numbers],
        engine_logp=[whole.engine_logp[n] for n in numbers],
        advantages=[whole.advantages[n] for n in numbers],
        ref_logp=None if whole.ref_logp is None else [whole.ref_logp[n] for n in numbers],
        temperature=whole.temperature,
        max_tokens=whole.max_tokens,
        numbers=numbers,
        parts=[range(a, b) for a, b in pairwise(cuts)],
        weights=[weights[n] for n in numbers],
    )
