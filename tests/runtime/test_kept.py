"""The adapters that a trainer keeps: numbers small enough to see."""

import pytest
import torch

from workbench.errors import StateError
from workbench.runtime.kept import Kept


def parameters(*values: float) -> list[torch.nn.Parameter]:
    return [torch.nn.Parameter(torch.tensor([value, -value])) for value in values]


def values(tensors: list[torch.nn.Parameter]) -> list[list[float]]:
    return [tensor.tolist() for tensor in tensors]


def trained(kept: Kept, tensors: list[torch.nn.Parameter], version: int) -> None:
    """``tensors`` become ``version``, each of them by its number larger, and are kept."""
    with torch.no_grad():
        for tensor in tensors:
            tensor.fill_(float(version))
    kept.keep(version, tensors)


def test_within_the_parameters_are_those_of_then_and_after_it_those_of_now() -> None:
    kept, tensors = Kept(2), parameters(1.0, 2.0)
    kept.keep(1, tensors)
    with torch.no_grad():
        tensors[0] += 10
    kept.keep(2, tensors)
    with torch.no_grad():
        tensors[1] += 100  # an update that nobody was sent
    with kept.again(1, tensors):
        assert values(tensors) == [[1, -1], [2, -2]]
    assert values(tensors) == [[11, 9], [102, 98]]
    with kept.again(2, tensors):
        assert values(tensors) == [[11, 9], [2, -2]]
    assert kept.version == 2


def test_an_error_within_brings_them_back_too() -> None:
    kept, tensors = Kept(2), parameters(1.0)
    trained(kept, tensors, 1)
    trained(kept, tensors, 2)
    with pytest.raises(LookupError), kept.again(1, tensors):
        raise LookupError
    assert values(tensors) == [[2, 2]]


def test_parameters_stay_the_same_objects_and_take_gradients_afterwards() -> None:
    kept, tensors = Kept(1), parameters(3.0)
    kept.keep(1, tensors)
    place = tensors[0].data_ptr()
    with kept.again(1, tensors):
        assert tensors[0].data_ptr() == place
    tensors[0].sum().backward()
    assert tensors[0].grad.tolist() == [1, 1]


def test_the_oldest_are_forgotten() -> None:
    kept, tensors = Kept(2), parameters(0.0)
    for version in (1, 2, 3):
        trained(kept, tensors, version)
    with kept.again(2, tensors):
        assert values(tensors) == [[2, 2]]
    match = r"train on a batch of adapter version 1: the trainer keeps 2, 3\n  fix: start the run again"
    with pytest.raises(StateError, match=match), kept.again(1, tensors):
        pass


def test_who_keeps_none_only_knows_the_newest_number() -> None:
    kept, tensors = Kept(0), parameters(0.0)
    trained(kept, tensors, 7)
    assert kept.version == 7
    with pytest.raises(StateError, match="adapter version 7: the trainer keeps none"), kept.again(7, tensors):
        pass
