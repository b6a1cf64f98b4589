"""Schedules carried out by one, two and four gloo processes, against the whole weights sliced."""

from functools import partial

import pytest
import torch
import torch.distributed as dist

from tests.models.crew import Crew
from tests.reshard.whole_weights import by_parameter, engine, parameters, shares, together, trained
from workbench.errors import ConfigError, SyncError
from workbench.reshard.apply import Moved, Target, apply
from workbench.reshard.lying import Ddp, Engine, Fsdp, Lying
from workbench.reshard.merge import Delta, merging, plain
from workbench.reshard.parameters import Block, Cut, Parameter, fuse
from workbench.reshard.schedule import Copy, schedule


def reshard(
    source: Lying, target: Engine, dtype: torch.dtype, tied: bool, bucket_bytes: int, rank: int, group: dist.ProcessGroup | None
) -> tuple[Moved, list[str]]:
    """What moved, and the engine's tensors that are not what they should be."""
    weights, plan = trained(dtype, tied=tied), schedule(parameters(dtype, tied=tied), source, target)
    wanted = engine(weights, target, rank) if rank < target.ranks else {}
    found = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    read = plain(shares(weights, source, rank)) if rank < source.ranks else plain({})
    into = by_parameter(found, dtype, tied=tied) if found else {}
    moved = apply(plan, read, into, rank=rank, group=group, bucket_bytes=bucket_bytes)
    return moved, [name for name, tensor in wanted.items() if not torch.equal(found[name], tensor)]


def check_moved(crew: Crew, source: Lying, target: Engine, dtype: torch.dtype, *, tied: bool, bucket_bytes: int) -> None:
    """Every engine's tensor is right, and every rank moved what the schedule says within one bucket."""
    ranks = max(source.ranks, target.ranks)
    answers = crew.run(together, ranks, partial(reshard, source, target, dtype, tied, bucket_bytes))[4 - ranks :]
    assert [wrong for _, wrong in answers] == [[]] * ranks
    plan = schedule(parameters(dtype, tied=tied), source, target)
    moved = [one for one, _ in answers]
    assert [(one.received, one.sent, one.stayed) for one in moved] == [(load.received, load.sent, load.stays) for load in plan.loads]
    assert max(one.peak_bytes for one in moved) <= bucket_bytes


@pytest.mark.parametrize("target", [Engine(1, 4), Engine(2, 2), Engine(2, 2, strided=True), Engine(4)], ids=str)
@pytest.mark.parametrize("source", [Ddp(4), Fsdp(4)], ids=str)
@pytest.mark.parametrize(("dtype", "tied"), [(torch.bfloat16, True), (torch.float32, False)])
def test_four_ranks(crew: Crew, source: Lying, target: Engine, dtype: torch.dtype, tied: bool) -> None:
    check_moved(crew, source, target, dtype, tied=tied, bucket_bytes=2**20)


@pytest.mark.parametrize(
    ("source", "target"), [(Ddp(1), Engine(1)), (Ddp(2), Engine(1, 2)), (Fsdp(2), Engine(2)), (Fsdp(2), Engine(1, 2))], ids=str
)
def test_fewer_ranks(crew: Crew, source: Lying, target: Engine) -> None:
    check_moved(crew, source, target, torch.bfloat16, tied=False, bucket_bytes=2**20)


def test_ranks_that_the_engine_does_not_have_only_give(crew: Crew) -> None:
    check_moved(crew, Fsdp(3), Engine(2), torch.bfloat16, tied=True, bucket_bytes=2**20)


@pytest.mark.parametrize("bucket_bytes", [8, 50, 200])
def test_small_buckets_bound_what_is_held(crew: Crew, bucket_bytes: int) -> None:
    check_moved(crew, Fsdp(4), Engine(2, 2), torch.bfloat16, tied=True, bucket_bytes=bucket_bytes)


def merged(rank: int, group: dist.ProcessGroup | None) -> tuple[bool, bool]:
    """From fsdp 4 to tp 2: whether an engine's rank holds W + s·B·A, rounded once, and the trainer's W is as it was."""
    weights, every = trained(torch.bfloat16, tied=True), parameters(torch.bfloat16, tied=True)
    generator = torch.Generator().manual_seed(3)
    # eighths of small numbers: every sum of products is exact, in whatever order
    small = {
        one.name: [torch.randint(-8, 9, size, generator=generator) / 8 for size in ((2, one.shape[1]), (one.shape[0], 2))]
        for one in every
        if len(one.shape) == 2
    }
    deltas = {name: Delta(a, b, 0.5) for name, (a, b) in small.items()}
    mine, wanted = (
        shares(weights, Fsdp(4), rank),
        {
            name: (weight.float() + 0.5 * (deltas[name].b @ deltas[name].a)).to(weight.dtype) if name in deltas else weight
            for name, weight in weights.items()
        },
    )
    kept = {name: tensor.clone() for name, tensor in mine.items()}
    found = {name: torch.zeros_like(tensor) for name, tensor in engine(wanted, Engine(2, 2), rank).items()}
    into = by_parameter(found, torch.bfloat16, tied=True)
    apply(schedule(every, Fsdp(4), Engine(2, 2)), merging(mine, deltas), into, rank=rank, group=group, bucket_bytes=300)
    same = all(torch.equal(found[name], tensor) for name, tensor in engine(wanted, Engine(2, 2), rank).items())
    return same, all(torch.equal(kept[name], tensor) for name, tensor in mine.items())


def test_weights_are_merged_on_their_way(crew: Crew) -> None:
    assert crew.run(together, 4, merged) == [(True, True)] * 4


# ---------------------------------------------------------------- by hand, and what does not fit


ONE = Parameter("w", (4, 3), 4, Cut(0, (Block(4),)))
BOTH = schedule([ONE, Parameter("norm", (2,), 4)], Ddp(1), Engine(1))
SPLIT = schedule([ONE], Fsdp(2), Ddp(2))


def test_only_the_slices_of_the_schedule_are_written() -> None:
    into = torch.zeros(6, 3)
    (q, k) = fuse("qk", [Parameter(name, (rows, 3), 4, Cut(0, (Block(rows),))) for name, rows in (("q", 4), ("k", 1))])
    weights = {"q": torch.ones(4, 3), "k": torch.full((1, 3), 2.0)}
    moved = apply(schedule([q, k], Ddp(1), Engine(1)), plain(weights), {"q": into, "k": into})
    assert into[:, 0].tolist() == [1, 1, 1, 1, 2, 0]
    assert (moved.stayed, moved.received, moved.sent, moved.peak_bytes) == (60, 0, 0, 0)


def test_shared_storage_is_left_alone() -> None:
    weights = {"w": torch.ones(4, 3), "norm": torch.ones(2)}

    def read(copy: Copy) -> torch.Tensor | None:
        return None if copy.parameter == "w" else plain(weights)(copy)

    target = {"w": torch.zeros(4, 3), "norm": torch.zeros(2)}
    assert apply(BOTH, read, target).stayed == 8
    assert not target["w"].any()


def test_parameters_that_want_a_gradient_are_written_in_place() -> None:
    target = {"w": torch.nn.Parameter(torch.zeros(4, 3)), "norm": torch.nn.Parameter(torch.zeros(2))}
    places = [tensor.data_ptr() for tensor in target.values()]
    apply(BOTH, plain({"w": torch.nn.Parameter(torch.ones(4, 3)), "norm": torch.ones(2)}), target)
    assert bool(target["w"].all())
    assert [tensor.data_ptr() for tensor in target.values()] == places


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"w": torch.zeros(4, 3)}, r"write norm, \(\(0, 2\),\), on rank 0: no tensor is given for it\n  fix: give one of w"),
        ({}, "no tensor is given for it\n  fix: give the engine's"),
        (
            {"w": torch.zeros(3, 3), "norm": torch.zeros(2)},
            r"the engine's tensor has shape \(3, 3\)\n  fix: cut the parameter as the engine",
        ),
        ({"w": torch.zeros(4), "norm": torch.zeros(2)}, r"the engine's tensor has shape \(4,\)"),
        ({"w": torch.zeros(4, 3, dtype=torch.complex64), "norm": torch.zeros(2)}, "the engine's tensor has torch.complex64"),
    ],
)
def test_tensors_that_do_not_fit_are_refused_before_anything_is_written(target: Target, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        apply(BOTH, plain({"w": torch.ones(4, 3), "norm": torch.ones(2)}), target)
    assert not any(bool(tensor.any()) for tensor in target.values())


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (torch.ones(4, 3).half(), r"wrong dtype: the trainer gives torch.float16 \(24 bytes\), the engine has torch.float32 \(48 bytes\)"),
        (torch.ones(4, 3, dtype=torch.int32), "the trainer gives torch.int32"),
        (torch.ones(3, 4), "wrong dtype: the trainer gives torch.float32 .36 bytes"),
    ],
)
def test_a_trainer_that_gives_something_else_is_named(weight: torch.Tensor, words: str) -> None:
    target = {"w": torch.zeros(4, 3), "norm": torch.zeros(2)}
    with pytest.raises(SyncError, match=words):
        apply(BOTH, plain({"w": weight, "norm": torch.ones(2)}), target)


def test_moving_takes_a_group() -> None:
    with pytest.raises(
        ConfigError, match=r"reshard over 2 ranks, as rank 1: this is rank 0 of a group of 1\n  fix: give the process group"
    ):
        apply(SPLIT, plain({}), {"w": torch.zeros(4, 3)}, rank=1)


def disagreeing(what: str, rank: int, group: dist.ProcessGroup | None) -> str:
    """What is said where rank 1 has another precision or smaller buckets."""
    odd = rank == 1
    target = {"w": torch.zeros(4, 3, dtype=torch.bfloat16 if odd and what == "dtype" else torch.float32)}
    with pytest.raises((SyncError, ConfigError)) as caught:
        apply(
            SPLIT, plain({"w": torch.ones(2, 3)}), target, rank=rank, group=group, bucket_bytes=24 if odd and what == "buckets" else 2**10
        )
    return str(caught.value)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("dtype", "reshard 1 parameters between ranks: wrong dtype: torch.float32 on one rank, torch.bfloat16 on another, in w"),
        ("buckets", "reshard 1 parameters between ranks: the ranks have different schedules, or buckets"),
    ],
)
def test_ranks_that_disagree_all_say_so(crew: Crew, what: str, words: str) -> None:
    answers = crew.run(together, 2, partial(disagreeing, what))[2:]
    assert answers[0] == answers[1]
    assert words in answers[0]
