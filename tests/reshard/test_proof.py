"""Each fault is injected into what the engine holds, and has to be caught and named."""

from collections.abc import Callable

import pytest
import torch

from workbench.errors import SyncError
from workbench.reshard.canary import Canary
from workbench.reshard.proof import checksum, expected, prove

RANK, SCALING = 4, 2.0
MODULES = [f"model.layers.{layer}.{part}" for layer in range(3) for part in ("self_attn.q_proj", "mlp.down_proj")]
Pairs = dict[str, tuple[torch.Tensor, torch.Tensor]]


def tensors(seed: int, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    """An adapter as peft saves it."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for module in MODULES:
        out[f"base_model.model.{module}.lora_A.weight"] = torch.randn(RANK, 8, generator=generator).to(dtype)
        out[f"base_model.model.{module}.lora_B.weight"] = torch.randn(8, RANK, generator=generator).to(dtype)
    return out


def slot(pairs: Pairs, rank: int = 8) -> Pairs:
    """The pairs in slots of a larger rank, as the engine pads them."""
    padded = {}
    for name, (a, b) in pairs.items():
        wide_a, wide_b = a.new_zeros(rank, a.shape[1]), b.new_zeros(b.shape[0], rank)
        wide_a[:RANK], wide_b[:, :RANK] = a, b
        padded[name] = (wide_a, wide_b)
    return padded


@pytest.fixture
def sent() -> Pairs:
    return expected(tensors(1), SCALING, torch.float32)


def test_a_sound_sync_gives_the_checksum_of_both(sent: Pairs) -> None:
    assert prove(sent, slot(sent), version=2) == checksum(sent)


def test_the_scaling_is_folded_in_after_rounding_as_the_engine_does() -> None:
    source = tensors(1)
    pairs = expected(source, 1.5, torch.bfloat16)
    a, b = pairs[MODULES[0]]
    assert a.dtype == b.dtype == torch.bfloat16
    assert torch.equal(b, source[f"base_model.model.{MODULES[0]}.lora_B.weight"].bfloat16() * 1.5)


def test_one_changed_bit_or_two_swapped_values_change_the_checksum(sent: Pairs) -> None:
    first = checksum(sent)
    a, b = sent[MODULES[2]]
    flipped = a.clone()
    flipped.view(torch.int32)[1, 3] ^= 1
    assert checksum({**sent, MODULES[2]: (flipped, b)}) != first
    swapped = a.clone()
    swapped[0, 0], swapped[0, 1] = a[0, 1], a[0, 0]
    assert checksum({**sent, MODULES[2]: (swapped, b)}) != first
    assert checksum({name: (x.clone(), y.clone()) for name, (x, y) in sent.items()}) == first


def stale(pairs: Pairs) -> Pairs:
    return expected(tensors(0), SCALING, torch.float32)


def doubled(pairs: Pairs) -> Pairs:
    return {name: (a, b * SCALING) for name, (a, b) in pairs.items()}


def unscaled(pairs: Pairs) -> Pairs:
    return {name: (a, b / SCALING) for name, (a, b) in pairs.items()}


def half(pairs: Pairs) -> Pairs:
    return {name: (a, b) if "layers.0" in name else (torch.zeros_like(a), torch.zeros_like(b)) for name, (a, b) in pairs.items()}


def gone(pairs: Pairs) -> Pairs:
    return {name: pair for name, pair in pairs.items() if "layers.2" not in name}


def swapped(pairs: Pairs) -> Pairs:
    one, other = MODULES[0], MODULES[2]
    return {**pairs, one: pairs[other], other: pairs[one]}


def rounded(pairs: Pairs) -> Pairs:
    return {name: (a.bfloat16().float(), b.bfloat16().float()) for name, (a, b) in pairs.items()}


def other_type(pairs: Pairs) -> Pairs:
    return {name: (a.bfloat16(), b.bfloat16()) for name, (a, b) in pairs.items()}


def torn(pairs: Pairs) -> Pairs:
    a, b = pairs[MODULES[1]]
    written = b.clone()
    written[4:] = torch.randn(4, RANK)
    return {**pairs, MODULES[1]: (a, written)}


def leftover(pairs: Pairs) -> Pairs:
    return {**pairs, "model.layers.0.self_attn.o_proj": (torch.ones(RANK, 8), torch.ones(8, RANK))}


def not_a_number(pairs: Pairs) -> Pairs:
    a, b = pairs[MODULES[0]]
    return {**pairs, MODULES[0]: (a, torch.full_like(b, torch.nan))}


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (stale, "stale adapter"),
        (doubled, "scaling: B is 2 times"),
        (unscaled, "scaling: B is 0.5 times"),
        (half, "half an adapter: 4 of 6 modules are zero"),
        (gone, "half an adapter: 2 of 6 modules have no slot"),
        (swapped, r"swapped layers: model\.layers\.0\.self_attn\.q_proj holds what was sent for model\.layers\.1\.self_attn\.q_proj"),
        (rounded, "wrong dtype: 6 modules went through torch.bfloat16"),
        (other_type, "wrong dtype: torch.bfloat16 where torch.float32 was sent"),
        (torn, r"1 of 6 modules differ: model\.layers\.0\.mlp\.down_proj"),
        (leftover, r"never sent are not zero: model\.layers\.0\.self_attn\.o_proj"),
        (not_a_number, "1 of 6 modules differ"),
    ],
)
def test_each_fault_is_named(sent: Pairs, fault: Callable[[Pairs], Pairs], named: str) -> None:
    previous = checksum(expected(tensors(0), SCALING, torch.float32))
    with pytest.raises(SyncError, match=named):
        prove(sent, slot(fault(sent)), version=2, previous=previous)


def test_an_unchanged_adapter_sent_again_is_not_called_stale(sent: Pairs) -> None:
    assert prove(sent, slot(sent), version=3, previous=checksum(sent)) == checksum(sent)


def test_beyond_the_sent_rank_the_slot_has_to_be_empty(sent: Pairs) -> None:
    """What an adapter of larger rank left there would be added to every output."""
    resident = slot(sent)
    resident[MODULES[0]][0][RANK:] = 1.0
    resident[MODULES[0]][1][:, RANK:] = 1.0
    with pytest.raises(SyncError, match="beyond the sent rank"):
        prove(sent, resident, version=2)


def test_the_canary_lives_within_its_bounds_and_dies_of_nan() -> None:
    canary = Canary.for_dtype("float32")
    assert canary.holds(1e-5, 1e-6)
    assert not canary.holds(0.01, 1e-6)
    assert not canary.holds(1e-5, 0.001)
    assert not canary.holds(float("nan"), 0.0)
    error = canary.failed(0.5, 0.1, "a stale prefix cache")
    with pytest.raises(SyncError, match=r"differ by 0\.5 at most and 0\.1 on average .*cause: a stale prefix cache"):
        raise error
