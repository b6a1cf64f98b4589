"""How a batch is shared out among ranks."""

import torch

from workbench.algos import GRPO, PPO, DrGRPO
from workbench.models.experience import Experience, Worth, shares, worth_shares
from workbench.models.packing import Row


def batch(lengths: list[int], advantages: list[float] | None = None) -> Experience:
    """Rows of a prompt of one token and ``lengths`` more; what belongs to row n is made of n."""
    rows = [Row((n,), (n,) * length) for n, length in enumerate(lengths)]
    values = [torch.full((length,), value) for length, value in zip(lengths, advantages or [1.0] * len(lengths), strict=True)]
    return Experience(rows, [[float(n)] * length for n, length in enumerate(lengths)], values, None, 1.0, 100)


def test_the_longest_goes_to_the_least_loaded() -> None:
    # costs 6 4 4 2 2: 6 to the first, 4 to the second, 4 to the second (4 < 6), 2 to the first (6 < 8), 2 to the first (8, a tie)
    first, second = shares(batch([3, 1, 5, 3, 1]), GRPO(), 2)
    assert list(first.numbers) == [1, 2, 4]
    assert list(second.numbers) == [0, 3]
    assert [row.prompt for row in second.rows] == [(0,), (3,)]
    assert second.engine_logp == [[0.0] * 3, [3.0] * 3]


def test_one_rank_has_the_whole_batch_in_order() -> None:
    whole = batch([3, 1, 5, 3, 1])
    (only,) = shares(whole, GRPO(minibatches=2), 1)
    assert list(only.numbers) == [0, 1, 2, 3, 4]
    assert only.rows == whole.rows
    assert [list(part) for part in only.parts] == [[0, 1], [2, 3, 4]]


def test_weights_are_those_of_all_rows_of_the_optimizer_step() -> None:
    whole, algo = batch([3, 1, 5, 3]), GRPO(reduction="token", minibatches=2)
    for share in shares(whole, algo, 2):
        for number, weight in zip(share.numbers, share.weights, strict=True):
            assert weight == torch.tensor(1 / (4 if number < 2 else 8)).item()
    assert shares(whole, DrGRPO(), 2)[0].weights[0] == torch.tensor(1 / (4 * 100)).item()


def test_a_row_that_teaches_nothing_costs_nothing() -> None:
    shared = shares(batch([9, 9, 3, 3], [0.0, 0.0, 1.0, -1.0]), GRPO(), 2)
    learnt = [[n for n in share.numbers if n >= 2] for share in shared]
    assert learnt == [[2], [3]]


def test_a_rank_may_have_no_rows_in_a_step() -> None:
    first, second = shares(batch([2, 5, 4]), GRPO(minibatches=3), 2)
    assert [len(part) for part in first.parts] == [1, 1, 1]
    assert [len(part) for part in second.parts] == [0, 0, 0]
    assert second.rows == []


def test_epochs_go_over_the_same_steps_again() -> None:
    (only,) = shares(batch([3, 1, 5]), PPO(minibatches=2, epochs=3), 1)
    assert [list(part) for part in only.parts] == [[0], [1, 2]] * 3
    assert list(only.numbers) == [0, 1, 2]


def test_the_critic_learns_from_rows_without_an_advantage() -> None:
    rows = batch([9, 9, 3, 3]).rows
    values = [torch.full((len(row.response),), float(n)) for n, row in enumerate(rows)]
    whole = Worth(rows, values, [value + 1 for value in values], 100)
    first, second = worth_shares(whole, PPO(minibatches=1), 2)
    assert [list(share.numbers) for share in (first, second)] == [[0, 2], [1, 3]]
    assert [float(value[0]) for value in second.values] == [1.0, 3.0]
    assert [float(target[0]) for target in second.targets] == [2.0, 4.0]
    assert second.weights == [torch.tensor(1 / 24).item()] * 2
