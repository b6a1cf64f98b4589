"""Sums of slices are the sum of the whole, and change with every element and its place."""

import pytest
import torch

from workbench.reshard import apply, fingerprints
from workbench.reshard.fingerprints import Sums, words
from workbench.reshard.parameters import Parameter
from workbench.reshard.schedule import Copy
from workbench.reshard.slices import Box, whole

CPU = torch.device("cpu")
SHAPES = ((9,), (6, 6), (4, 3, 5))
DTYPES = (torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn)


def fingerprint(values: torch.Tensor, *parts: Box) -> int:
    """Of ``parts`` of ``values`` (all of it by default), modulo 2^64."""
    sums = Sums([Parameter(str(shape), shape, 4) for shape in SHAPES], CPU)
    for part in parts or (whole(values.shape),):
        sums.add([1], values[tuple(slice(*span) for span in part)], part)
    table = sums.table(3).tolist()
    assert table[0] == table[2] == 0
    return table[1]


def values(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "parts"),
    [
        ((9,), [((0, 4),), ((4, 9),)]),
        ((6, 6), [((0, 2), (0, 6)), ((2, 6), (0, 1)), ((2, 6), (1, 6))]),
        ((4, 3, 5), [((0, 4), (0, 2), (0, 5)), ((0, 4), (2, 3), (0, 3)), ((0, 4), (2, 3), (3, 5))]),
    ],
)
def test_slices_add_up_to_the_whole(shape: tuple[int, ...], parts: list[Box], dtype: torch.dtype) -> None:
    tensor = values(shape, dtype)
    assert fingerprint(tensor, *parts) == fingerprint(tensor) != 0
    assert fingerprint(tensor, *parts[1:]) != fingerprint(tensor)


def test_by_hand() -> None:
    rows, columns = (fingerprints._numbers(2, dim, CPU).tolist() for dim in (0, 1))
    bits = [[1, -2], [3, 4]]
    sums = Sums([Parameter("w", (2, 2), 2)], CPU)
    sums.add([0], torch.tensor(bits, dtype=torch.int16), whole((2, 2)))
    wanted = sum(bits[i][j] * rows[i] * columns[j] for i in range(2) for j in range(2))
    assert (int(sums.table(1)) - wanted) % 2**64 == 0
    assert all(number % 2 for number in (*rows, *columns))


@pytest.mark.parametrize("shape", SHAPES)
def test_every_bit_and_every_place_counts(shape: tuple[int, ...]) -> None:
    tensor, seen = values(shape), {fingerprint(values(shape))}
    bits = tensor.view(torch.int32).reshape(-1)
    for place in range(len(bits)):
        changed = tensor.clone()
        changed.view(torch.int32).reshape(-1)[place] ^= 1 << place % 31
        seen.add(fingerprint(changed))
        moved = tensor.clone().reshape(-1)
        moved[place], moved[place - 1] = tensor.reshape(-1)[place - 1], tensor.reshape(-1)[place]
        seen.add(fingerprint(moved.reshape(shape)))
    assert len(seen) == 1 + 2 * len(bits)


def test_a_transposed_matrix_and_exchanged_rows_are_others() -> None:
    matrix = values((6, 6))
    found = [matrix, matrix.T, matrix.flip(0), matrix.flip(1), matrix.flip(0, 1)]
    assert len({fingerprint(one) for one in found}) == len(found)


def test_a_large_slice_is_summed_some_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = fingerprint(values((6, 6)))
    for columns in (1, 13, 24):  # less than a row, two rows, four
        monkeypatch.setitem(apply.TEMPORARY_BYTES, "cpu", 8 * columns)
        assert fingerprint(values((6, 6))) == at_once


def test_one_slice_counts_for_several_slots_and_none_is_zero() -> None:
    sums = Sums([Parameter("w", (9,), 4)], CPU)
    assert sums.table(2).tolist() == [0, 0]
    sums.add([0, 2], values((9,)), whole((9,)))
    first, second, third = sums.table(3).tolist()
    assert (first, second) == (third, 0)
    assert first == fingerprint(values((9,)))


def test_words_are_as_long_as_all_slices_allow() -> None:
    def copy(name: str, span: tuple[int, int], at: int) -> Copy:
        return Copy(name, 0, 0, ((0, 2), span), ((0, 2), span), ((0, 2), (at, at + span[1] - span[0])), 0)

    parameters = [
        Parameter("even", (2, 16), 2),
        Parameter("pairs", (2, 16), 2),
        Parameter("odd", (2, 16), 2),
        Parameter("wide", (2, 16), 8),
    ]
    copies = [
        copy("even", (0, 8), 0),
        copy("even", (8, 16), 8),
        copy("pairs", (0, 16), 2),
        copy("odd", (0, 5), 0),
        copy("wide", (0, 16), 0),
    ]
    assert words(parameters, copies) == {"even": 4, "pairs": 2, "odd": 1, "wide": 1}


def test_words_add_up_too_and_every_element_of_one_counts() -> None:
    def total(tensor: torch.Tensor, *cuts: int) -> int:
        sums = Sums([Parameter("w", (3, 16), 2)], CPU)
        for first, last in zip((0, *cuts), (*cuts, 16), strict=True):
            sums.add([0], tensor[:, first:last], ((0, 3), (first, last)), 4)
        return int(sums.table(1)[0])

    tensor = values((3, 16), torch.bfloat16)
    assert total(tensor) == total(tensor, 4) == total(tensor, 8, 12)
    for place in range(3 * 16):
        other = tensor.clone()
        other.view(-1)[place] = 7.0
        assert total(other) != total(tensor)
