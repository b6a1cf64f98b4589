"""Weights read with an adapter in them: by hand, against one matrix sum, and what rounding loses."""

from collections.abc import Iterable

import pytest
import torch

from workbench.errors import ConfigError
from workbench.reshard import apply
from workbench.reshard.lying import Ddp, Engine
from workbench.reshard.merge import ELEMENTS, SLICES, Delta, Measured, Merging, merging, plain, products
from workbench.reshard.parameters import Block, Cut, Parameter
from workbench.reshard.schedule import Copy, schedule
from workbench.reshard.slices import Box, whole


def rounding(read: Merging, copies: Iterable[Copy]) -> float:
    """What is lost where ``copies`` are read."""
    measured = Measured.of(read)
    for copy in copies:
        assert torch.equal(measured(copy), read(copy))
    return measured.rounding


def taking(part: Box, local: Box | None = None, name: str = "w") -> Copy:
    """A copy of ``part``, which lies at ``local`` of the rank's tensor."""
    return Copy(name, 0, 0, part, local or part, part, 0)


# 3 rows, 2 columns; B·A = [[1, 2], [0, 0], [3, 6]]
WEIGHT = torch.tensor([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]])
DELTA = Delta(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [0.0], [3.0]]), 0.5)


def test_a_merged_weight_by_hand() -> None:
    read = merging({"w": WEIGHT}, {"w": DELTA})
    assert read(taking(((0, 3), (0, 2)))).tolist() == [[10.5, 21.0], [30.0, 40.0], [51.5, 63.0]]
    assert WEIGHT[0].tolist() == [10.0, 20.0]


def test_a_slice_takes_its_part_of_the_adapter() -> None:
    # this rank holds the last two rows, as rows 0 and 1 of its tensor, and is asked for the second column
    read = merging({"w": WEIGHT[1:]}, {"w": DELTA})
    assert read(taking(((1, 3), (1, 2)), ((0, 2), (1, 2)))).tolist() == [[40.0], [63.0]]


def test_weights_without_an_adapter_are_views() -> None:
    weights = {"w": WEIGHT, "norm": torch.nn.Parameter(torch.arange(4.0))}
    for read in (plain(weights), merging(weights, {"w": DELTA})):
        value = read(taking(((1, 3),), name="norm"))
        assert value.tolist() == [1.0, 2.0]
        assert value.data_ptr() == weights["norm"].data_ptr() + 4
        assert not value.requires_grad


def large(dtype: torch.dtype, kind: torch.dtype = torch.float32) -> tuple[torch.Tensor, Delta]:
    generator = torch.Generator().manual_seed(0)
    weight, a, b = (torch.randn(shape, generator=generator) for shape in ((64, 48), (4, 48), (64, 4)))
    return weight.to(dtype), Delta((a * 0.1).to(kind), (b * 0.1).to(kind), 2.0)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_sum_is_rounded_once(dtype: torch.dtype, kind: torch.dtype) -> None:
    weight, delta = large(dtype, kind)
    exact = weight.float() + 2.0 * (delta.b.float() @ delta.a.float())
    value = merging({"w": weight}, {"w": delta})(taking(whole(weight.shape)))
    assert value.dtype == dtype
    assert torch.equal(value, exact.to(dtype))


def test_large_products_are_made_in_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, delta = large(torch.bfloat16)
    at_once = merging({"w": weight}, {"w": delta})(taking(whole(weight.shape)))
    monkeypatch.setitem(apply.TEMPORARY_BYTES, "cpu", 4 * 48 * 10)  # ten rows
    pieces = list(products(delta, taking(whole(weight.shape))))
    assert [len(product) for _, product in pieces] == [10] * 6 + [4]
    in_rows = merging({"w": weight}, {"w": delta})(taking(whole(weight.shape)))
    torch.testing.assert_close(in_rows, at_once)


def test_what_rounding_loses_by_hand() -> None:
    # bfloat16 has steps of 1/128 from 1 to 2. 1 + 1/128 is there; 1 + 1/512 becomes 1, and all of the 1/512 is lost
    delta = Delta(torch.tensor([[1 / 128, 1 / 512]]), torch.ones(1, 1), 1.0)
    read = merging({"w": torch.ones(1, 2, dtype=torch.bfloat16)}, {"w": delta})
    assert rounding(read, [taking(((0, 1), (0, 1)))]) == 0.0
    assert rounding(read, [taking(((0, 1), (1, 2)))]) == 1.0
    assert rounding(read, [taking(((0, 1), (0, 2)))]) == pytest.approx(1 / 17**0.5)  # 1 / sqrt(4² + 1²)


def test_rounding_of_nothing_is_nothing() -> None:
    weights = {"w": WEIGHT.bfloat16(), "norm": torch.ones(2)}
    still = merging(weights, {"w": Delta(DELTA.a, torch.zeros(3, 1), 0.5)})
    plan = schedule([Parameter("w", (3, 2), 2, Cut(0, (Block(3),))), Parameter("norm", (2,), 4)], Ddp(1), Engine(1))
    assert rounding(still, plan.stays) == 0.0
    assert rounding(merging(weights, {}), plan.stays) == 0.0
    assert rounding(merging(weights, {"w": Delta(DELTA.a, DELTA.b, 0.01)}), plan.stays) > 0


def test_in_float32_little_is_lost_and_that_is_seen() -> None:
    weight, delta = large(torch.float32)
    assert 0 < rounding(merging({"w": weight}, {"w": delta}), [taking(whole(weight.shape))]) < 1e-5


def test_of_a_large_slice_the_first_rows_tell_what_is_lost() -> None:
    generator = torch.Generator().manual_seed(0)
    weight, a, b = (torch.randn(shape, generator=generator) for shape in ((4000, 512), (4, 512), (4000, 4)))
    read, part = merging({"w": weight.bfloat16()}, {"w": Delta(a, 0.01 * b, 2.0)}), whole((4000, 512))
    d = 2.0 * 0.01 * b.double() @ a.double()
    exact = weight.bfloat16().double() + d
    lost = (read(taking(part)).double() - exact).norm() / d.norm()
    assert weight.numel() > ELEMENTS
    assert rounding(read, [taking(part)]) == pytest.approx(float(lost), rel=5e-3)


def test_writing_is_reading() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        weight, delta = large(dtype, dtype)
        read, into = merging({"w": weight, "norm": weight[0]}, {"w": delta}), torch.zeros_like(weight)
        read.write(taking(((8, 40), (0, 48))), weight[8:40], into[8:40])
        assert torch.equal(into[8:40], read(taking(((8, 40), (0, 48)))))
        assert not into[:8].any()
        assert not into[40:].any()


@pytest.mark.parametrize(
    ("read", "copy", "words"),
    [
        (plain({"w": WEIGHT}), taking(((0, 3),), name="norm"), r"read norm, \(\(0, 3\),\), on rank 0: the trainer has no such weight"),
        (Merging({"w": WEIGHT}, {"w": DELTA}), taking(((0, 4), (0, 2)), whole((3, 2))), "its adapter is for a weight of 3 x 2"),
    ],
)
def test_what_can_not_be_read(read: Merging, copy: Copy, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(copy)


def test_an_adapter_whose_halves_do_not_fit() -> None:
    with pytest.raises(ConfigError, match=r"merge an adapter into w: A has shape \(1, 2\) and B \(1, 3\)\n  fix: give A \(r, in\) and B"):
        merging({"w": WEIGHT}, {"w": Delta(DELTA.a, DELTA.b.T, 1.0)})


def test_of_many_weights_some_are_measured_and_syncs_take_turns() -> None:
    weight, delta = large(torch.bfloat16)
    names = [f"layer.{number:03}" for number in range(3 * SLICES)]
    read = merging(dict.fromkeys(names, weight), dict.fromkeys(names, delta))
    measured = [Measured.of(read, turn) for turn in range(4)]
    for one in measured:
        for name in names:
            one(taking(whole(weight.shape), name=name))
    assert [len(one.lost) for one in measured] == [SLICES] * 4
    assert len({one.rounding for one in measured}) == 1
    assert set().union(*(one._chosen for one in measured[:3])) == set(names)
    assert measured[0]._chosen == measured[3]._chosen
