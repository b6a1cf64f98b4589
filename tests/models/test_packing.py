import torch

from workbench.models.packing import Row, micro_batches, pack

ROWS = [Row((5, 6), (7, 8, 9)), Row((1,), (2,)), Row((3, 4, 5), (6, 7))]


def test_rows_lie_one_after_the_other_and_each_response_token_is_predicted_by_the_one_before_it() -> None:
    packed = pack(ROWS, [2, 0], torch.device("cpu"))
    assert packed.ids.tolist() == [[3, 4, 5, 6, 7, 5, 6, 7, 8, 9]]
    assert packed.positions.tolist() == [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]]
    assert packed.starts.tolist() == [0, 5, 10]
    assert packed.longest == 5
    # row 2: "5" at 2 predicts 6, "6" at 3 predicts 7; row 0 begins at 5: "6" at 6 predicts 7, and so on
    assert packed.source.tolist() == [2, 3, 6, 7, 8]
    assert packed.target.tolist() == [6, 7, 7, 8, 9]
    assert packed.lengths == (2, 3)
    assert packed.rows == (2, 0)


def test_a_one_token_prompt_predicts_its_response() -> None:
    packed = pack(ROWS, [1], torch.device("cpu"))
    assert packed.source.tolist() == [0]
    assert packed.target.tolist() == [2]


def test_micro_batches_hold_every_row_once_within_the_budget_longest_first() -> None:
    lengths = [3, 9, 4, 8, 5, 1]
    batches = micro_batches(lengths, 12)
    assert sorted(row for batch in batches for row in batch) == list(range(6))
    assert all(sum(lengths[r] for r in batch) <= 12 for batch in batches)
    assert batches[0][0] == 1


def test_a_row_longer_than_the_budget_stands_alone() -> None:
    assert micro_batches([20, 3, 2], 10) == [[0], [1, 2]]
    assert micro_batches([], 10) == []
