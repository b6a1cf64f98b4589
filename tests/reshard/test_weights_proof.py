"""Each fault is injected into what the engine holds, and has to be caught and named, on all ranks alike."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.distributed as dist

from tests.models.crew import Crew
from tests.reshard.whole_weights import Tensors, by_parameter, engine, parameters, shares, together, trained
from workbench.errors import SyncError
from workbench.reshard.apply import Target, apply
from workbench.reshard.lying import Ddp, Engine, Fsdp, Lying
from workbench.reshard.merge import Delta, merging, plain
from workbench.reshard.schedule import Schedule, schedule
from workbench.reshard.weights_proof import Proven, prove_weights

BFLOAT16 = torch.bfloat16
SCALING = 1.5
Fault = Callable[[Target, Target, int], None]  # what is in the engine, what was there before, the rank


def deltas(seed: int, scaling: float = SCALING) -> dict[str, Delta]:
    """An adapter of rank 2 on queries and the way down."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {one.name: one.shape for one in parameters(BFLOAT16, tied=True) if one.name[2:] in ("q", "down")}
    pairs = {
        name: (torch.randn(2, ins, generator=generator), torch.randn(out, 2, generator=generator)) for name, (out, ins) in shapes.items()
    }
    return {name: Delta(a, b, scaling) for name, (a, b) in pairs.items()}


def synced(
    source: Lying, layout: Engine, dtype: torch.dtype, fault: Fault | None, rank: int, group: dist.ProcessGroup | None
) -> tuple[str, str]:
    """Two versions written and proved, the second with a fault; the checksum of the first, and what was said of the second."""
    plan, weights = schedule(parameters(dtype, tied=True), source, layout), shares(trained(dtype, tied=True), source, rank)
    tensors = {name: torch.zeros_like(tensor) for name, tensor in engine(trained(dtype, tied=True), layout, rank).items()}
    target = by_parameter(tensors, dtype, tied=True)
    proofs: list[Proven] = []
    for version in (1, 2):
        read = merging(weights, deltas(version))
        kept = {name: tensor.clone() for name, tensor in tensors.items()}
        apply(plan, read, target, rank=rank, group=group)
        if version == 2 and fault is not None:
            fault(target, by_parameter(kept, dtype, tied=True), rank)
        try:
            before = proofs[-1] if proofs else None
            proven = prove_weights(
                plan, parameters(dtype, tied=True), read, target, rank=rank, group=group, version=version, previous=before
            )
            proofs.append(proven)
        except SyncError as error:
            return proofs[0].checksum, str(error)
    return proofs[0].checksum, proofs[1].checksum


def badly_scaled(times: float, rank: int, group: dist.ProcessGroup | None) -> str:
    """What is said where the engine got its weights with another scaling, from fsdp 2 to tp 2."""
    plan, every = schedule(parameters(BFLOAT16, tied=True), Fsdp(2), Engine(2)), parameters(BFLOAT16, tied=True)
    weights = shares(trained(BFLOAT16, tied=True), Fsdp(2), rank)
    target = by_parameter(engine(trained(BFLOAT16, tied=True), Engine(2), rank), BFLOAT16, tied=True)
    apply(plan, merging(weights, deltas(1, times * SCALING)), target, rank=rank, group=group)
    with pytest.raises(SyncError) as caught:
        prove_weights(plan, every, merging(weights, deltas(1)), target, rank=rank, group=group, version=1)
    return str(caught.value)


def whole(dtype: torch.dtype) -> Schedule:
    """Of one rank, which has everything."""
    return schedule(parameters(dtype, tied=True), Ddp(1), Engine(1))


def say(fault: Fault | None, dtype: torch.dtype = BFLOAT16) -> str:
    return synced(Ddp(1), Engine(1), dtype, fault, 0, None)[1]


def test_a_sound_sync_gives_a_checksum_that_follows_the_weights() -> None:
    first, second = synced(Ddp(1), Engine(1), BFLOAT16, None, 0, None)
    assert len(first) == len(second) == 16
    assert first != second
    assert synced(Ddp(1), Engine(1), BFLOAT16, None, 0, None) == (first, second)


def view(target: Target, name: str) -> torch.Tensor:
    """Where a parameter lies in a whole engine's tensor."""
    (copy,) = [copy for copy in whole(BFLOAT16).stays if copy.parameter == name]
    return target[name][tuple(slice(*span) for span in copy.target_slice)]


def merged(scaling: float, seed: int = 2, dtype: torch.dtype = BFLOAT16) -> Tensors:
    """What a trainer with another scaling would have written, computed here."""
    weights = trained(dtype, tied=True)
    return {name: (weights[name].float() + scaling * (delta.b @ delta.a)).to(dtype) for name, delta in deltas(seed).items()}


def written(tensors: Tensors) -> Fault:
    def fault(target: Target, before: Target, rank: int) -> None:
        for name, tensor in tensors.items():
            view(target, name).copy_(tensor)

    return fault


def stale(target: Target, before: Target, rank: int) -> None:
    for name, tensor in target.items():
        tensor.copy_(before[name])


def stale_on_rank_1(target: Target, before: Target, rank: int) -> None:
    if rank == 1:
        stale(target, before, rank)


def half_stale(target: Target, before: Target, rank: int) -> None:
    target["1.down"].copy_(before["1.down"])


def half_zero(target: Target, before: Target, rank: int) -> None:
    target["0.gate"].zero_()


def swapped(target: Target, before: Target, rank: int) -> None:
    one = target["0.down"].clone()
    target["0.down"].copy_(target["1.down"])
    target["1.down"].copy_(one)


def wrong_layer(target: Target, before: Target, rank: int) -> None:
    target["0.down"].copy_(target["1.down"])


def rounded(target: Target, before: Target, rank: int) -> None:
    for tensor in target.values():
        tensor.copy_(tensor.bfloat16())


def float16(target: Target, before: Target, rank: int) -> None:
    for tensor in target.values():
        tensor.copy_(tensor.half())


def one_row(target: Target, before: Target, rank: int) -> None:
    if rank == 2:
        target["1.gate"][:, 1] += 1


def one_bit(target: Target, before: Target, rank: int) -> None:
    if rank == 0:
        view(target, "0.v").view(torch.int16)[2, 3] ^= 1


def two_places(target: Target, before: Target, rank: int) -> None:
    values = view(target, "0.norm")
    values[1], values[2] = values[2].clone(), values[1].clone()


def transposed(target: Target, before: Target, rank: int) -> None:
    target["1.o"].copy_(target["1.o"].T.clone())


def merged_again(target: Target, before: Target, rank: int) -> None:
    for name, delta in deltas(2).items():
        view(target, name).add_((SCALING * (delta.b @ delta.a)).to(torch.float32))


def added_in_bfloat16(target: Target, before: Target, rank: int) -> None:
    for name, delta in deltas(2).items():
        view(target, name).copy_(trained(BFLOAT16, tied=True)[name] + (SCALING * (delta.b @ delta.a)).bfloat16())


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (stale, "stale weights: the engine still holds the version before, in 4 of 23 parameters on rank 0: 0.q, 0.down, 1.q and 1 more"),
        (half_stale, "half the weights are still those of the version before: 1 of 23 parameters on rank 0: 1.down"),
        (half_zero, "half the weights are zero in the engine: 2 of 23 parameters on rank 0: 0.gate, 0.up"),
        (swapped, "swapped layers: 0.down holds what was sent for 1.down, and the reverse, on rank 0"),
        (wrong_layer, "wrong layer: 0.down holds what was sent for 1.down, on rank 0"),
        (written(merged(0.0)), "adapter not merged: the engine holds the frozen base, in 4 of 23 parameters"),
        (written(merged(1.0)), "scaling: the adapter was not multiplied by its scaling"),
        (written(merged(2.25)), "scaling: the adapter was multiplied by its scaling twice"),
        (written(merged(3.0)), "scaling: what was added is 2 times the adapter"),
        (merged_again, "scaling: the adapter was added twice, on top of weights that were merged already"),
        (added_in_bfloat16, "wrong dtype: the adapter was rounded before it was added"),
        (one_bit, "weights differ in 1 of 23 parameters on rank 0: 0.v"),
        (two_places, "weights differ in 1 of 23 parameters on rank 0: 0.norm"),
        (transposed, "weights differ in 1 of 23 parameters on rank 0: 1.o"),
    ],
)
def test_each_fault_is_named(fault: Fault, named: str) -> None:
    assert named in say(fault)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (rounded, "wrong dtype: weights went through torch.bfloat16 on the way, in 23 of 23 parameters"),
        (float16, "wrong dtype: weights went through torch.float16 on the way, in 23 of 23 parameters"),
    ],
)
def test_float32_weights_that_were_rounded_are_named(fault: Fault, named: str) -> None:
    assert named in say(fault, torch.float32)


def test_an_engine_of_another_precision_is_named() -> None:
    weights = trained(BFLOAT16, tied=True)
    target = by_parameter({name: tensor.half() for name, tensor in engine(weights, Engine(1), 0).items()}, BFLOAT16, tied=True)
    with pytest.raises(SyncError, match=r"wrong dtype: torch\.float16 where torch\.bfloat16 was sent, in 23 of 23 parameters on rank 0"):
        prove_weights(whole(BFLOAT16), parameters(BFLOAT16, tied=True), plain(weights), target, version=1)


def test_shared_storage_is_what_it_is() -> None:
    weights = trained(BFLOAT16, tied=True)
    target = by_parameter(engine(weights, Engine(1), 0), BFLOAT16, tied=True)
    seen = prove_weights(whole(BFLOAT16), parameters(BFLOAT16, tied=True), plain(weights), target, version=1)
    shared = prove_weights(whole(BFLOAT16), parameters(BFLOAT16, tied=True), lambda copy: None, target, version=1)
    assert shared.checksum == seen.checksum


# ---------------------------------------------------------------- between ranks


@pytest.mark.parametrize(
    ("source", "layout"),
    [(Ddp(2), Engine(1, 2)), (Fsdp(2), Engine(2)), (Fsdp(4), Engine(2, 2, strided=True)), (Ddp(4), Engine(4))],
    ids=str,
)
def test_every_rank_has_the_same_proof(crew: Crew, source: Lying, layout: Engine) -> None:
    answers = crew.run(together, source.ranks, partial(synced, source, layout, BFLOAT16, None))[4 - source.ranks :]
    assert len(set(answers)) == 1
    assert answers[0][0] != answers[0][1]


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (stale, "stale weights: the engine still holds the version before, in 4 of 23 parameters on ranks 0-3: 0.q"),
        (stale_on_rank_1, "stale weights: the engine still holds the version before, in 4 of 23 parameters on rank 1: 0.q"),
        (half_stale, "half the weights are still those of the version before: 1 of 23 parameters on ranks 0-3: 1.down"),
        (swapped, "swapped layers: 0.down holds what was sent for 1.down, and the reverse, on rank 0"),
        (one_row, "weights differ in 2 of 23 parameters on rank 2: 1.gate, 1.up"),
    ],
)
def test_all_ranks_name_a_fault_alike(crew: Crew, fault: Fault, named: str) -> None:
    answers = crew.run(together, 4, partial(synced, Fsdp(4), Engine(2, 2), BFLOAT16, fault))
    assert len(set(answers)) == 1
    assert named in answers[0][1]


@pytest.mark.parametrize("times", [0.0, 2.0])
def test_a_wrong_scaling_is_named_on_all_ranks(crew: Crew, times: float) -> None:
    answers = crew.run(together, 2, partial(badly_scaled, times))[2:]
    assert answers[0] == answers[1]
    named = {0.0: "adapter not merged", 2.0: "scaling: what was added is 2 times the adapter"}[times]
    assert f"{named}" in answers[0]
    assert "in 4 of 23 parameters on ranks 0-1: 0.q, 0.down, 1.q and 1 more" in answers[0]
