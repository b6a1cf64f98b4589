"""Fingerprints: by hand, and that each weight counts."""

import hashlib
import math
import sys

import pytest
import torch

from tests.rewards import serving
from workbench.rewards.fingerprint import of_source, of_weights


def test_weights_by_hand():
    """8 bytes a word: 1 + 2 and -1 + 3; three bytes are no word and stand as they are."""
    weights = {"b": torch.tensor([1, 2, 3], dtype=torch.uint8), "a": torch.tensor([[1, 2], [-1, 3]])}
    text = b"about\na torch.int64 (2, 2) 5 \nb torch.uint8 (3,) 0 010203"
    assert of_weights(weights, "about") == hashlib.blake2b(text, digest_size=4).hexdigest()


@pytest.mark.parametrize("place", [0, 4, 12, 14])
def test_the_last_bit_of_any_weight_counts(place):
    weight = torch.arange(15, dtype=torch.bfloat16)
    before = of_weights({"w": weight}, "")
    weight[place] = torch.nextafter(weight[place], torch.tensor(math.inf, dtype=torch.bfloat16))
    assert of_weights({"w": weight}, "") != before


def test_what_else_counts():
    weight = torch.arange(12, dtype=torch.float32)
    given = [
        ({"w": weight}, "a"),
        ({"w": weight}, "b"),
        ({"v": weight}, "a"),
        ({"w": weight.view(3, 4)}, "a"),
        ({"w": weight.half()}, "a"),
        ({}, "a"),
    ]
    assert len({of_weights(*each) for each in given}) == len(given)


@pytest.mark.parametrize(
    "tensor", [torch.tensor(3.0), torch.empty(0, 4), torch.tensor([True, False]), torch.eye(3, dtype=torch.bfloat16).T]
)
def test_any_shape_and_kind(tensor):
    assert len(of_weights({"w": tensor}, "")) == 8


def test_where_weights_lie_does_not_count():
    whole = torch.arange(11, dtype=torch.bfloat16)
    assert of_weights({"w": whole[1:]}, "") == of_weights({"w": whole[1:].clone()}, ""), "a part of a larger tensor, not on a word's border"
    assert of_weights({"w": whole}, "") == of_weights({"w": whole.repeat_interleave(2)[::2]}, ""), "with gaps"


def test_a_modules_file():
    assert of_source(serving) == hashlib.blake2b((serving.HERE / "serving.py").read_bytes(), digest_size=4).hexdigest()
    assert len(of_source(sys)) == 8, "built in"
