"""An adapter packed for its way between processes is the same at its end; a damaged one is refused."""

import pickle
from dataclasses import replace

import pytest
import torch

from tests.reshard.test_proof import MODULES, SCALING, tensors
from workbench.errors import SyncError
from workbench.reshard.parcel import Parcel
from workbench.reshard.proof import check_arrived, checksum, expected

CPU = torch.device("cpu")
CONFIG = {"r": 4, "lora_alpha": 8}


def sent(dtype: torch.dtype) -> Parcel:
    """As a trainer sends it: the checksum is of what has to be resident, scaled."""
    adapter = tensors(1, dtype)
    return Parcel.of(adapter, CONFIG, checksum(expected(adapter, SCALING, dtype)))


def travelled(parcel: Parcel) -> Parcel:
    """As it comes out of another process."""
    return pickle.loads(pickle.dumps(parcel, protocol=5))


@pytest.mark.parametrize(("dtype", "size"), [(torch.float32, 4), (torch.bfloat16, 2)])
def test_what_arrives_is_what_was_sent_bit_for_bit(dtype: torch.dtype, size: int) -> None:
    parcel = travelled(sent(dtype))
    arrived, wanted = parcel.tensors(CPU), tensors(1, dtype)
    assert list(arrived) == list(wanted)
    assert all(arrived[name].dtype == dtype and torch.equal(arrived[name], wanted[name]) for name in wanted)
    assert parcel.bytes == len(MODULES) * 2 * 4 * 8 * size  # an A and a B of 4 x 8 each
    assert parcel.config == CONFIG
    check_arrived(expected(arrived, SCALING, dtype), parcel.checksum, 3)


def test_it_is_a_copy_and_takes_no_gradient_along() -> None:
    adapter = {name: torch.nn.Parameter(tensor) for name, tensor in tensors(1).items()}
    parcel = Parcel.of(adapter, CONFIG, "")
    with torch.no_grad():
        for tensor in adapter.values():
            tensor.zero_()
    assert not parcel.flat.requires_grad
    assert all(torch.equal(tensor, tensors(1)[name]) for name, tensor in parcel.tensors(CPU).items())


def test_a_tensor_that_lies_across_is_packed_in_the_order_of_its_rows() -> None:
    across = torch.arange(6.0).view(2, 3).T
    parcel = Parcel.of({"x": across, "y": torch.tensor([7.0])}, {}, "")
    assert parcel.flat.tolist() == [0, 3, 1, 4, 2, 5, 7]
    assert torch.equal(parcel.tensors(CPU)["x"], across)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("place", [0, 100, -1])
def test_one_damaged_number_is_refused(dtype: torch.dtype, place: int) -> None:
    parcel = sent(dtype)
    flat = parcel.flat.clone()
    flat[place] *= 1.01
    arrived = expected(replace(parcel, flat=flat).tensors(CPU), SCALING, dtype)
    match = rf"version 3 \(6 modules, checksum {parcel.checksum}\): what arrived has checksum {checksum(arrived)}: it was damaged"
    with pytest.raises(SyncError, match=match):
        check_arrived(arrived, parcel.checksum, 3)


def test_two_swapped_modules_are_refused() -> None:
    parcel = sent(torch.float32)
    names = list(parcel.shapes)
    names[0], names[4] = names[4], names[0]
    swapped = replace(parcel, shapes={name: parcel.shapes[name] for name in names})
    with pytest.raises(SyncError, match="damaged on the way"):
        check_arrived(expected(swapped.tensors(CPU), SCALING, torch.float32), parcel.checksum, 1)


def test_two_precisions_are_no_parcel() -> None:
    with pytest.raises(SyncError, match=r"send an adapter of 2 tensors: they have 2 precisions\n  fix: train it in one"):
        Parcel.of({"a": torch.zeros(2), "b": torch.zeros(2, dtype=torch.bfloat16)}, {}, "")
