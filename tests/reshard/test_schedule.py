"""Schedules by hand, carried out on arrays, and against the published formulas for every grid."""

import pytest

from tests.reshard.executed import carry_out, lie, same
from tests.reshard.test_grids import grids
from workbench.errors import ConfigError
from workbench.reshard.grids import Generation, Training
from workbench.reshard.lying import Ddp, Engine, Fsdp, Lying
from workbench.reshard.parameters import Block, Cut, Parameter, Shard, fuse
from workbench.reshard.schedule import Copy, Load, groupings, schedule
from workbench.reshard.volumes import full_gather, hybrid, vanilla

HIDDEN = 8
WIDE = Parameter("up", (12, HIDDEN), 2, Cut(0, (Block(12),)))
DEEP = Parameter("down", (HIDDEN, 12), 2, Cut(1, (Block(12),)))
NORM = Parameter("norm", (HIDDEN,), 4)
WORDS = Parameter("embedding", (10, HIDDEN), 2, Cut(0, (Block(10, padded=16),)))
BIASES = Parameter("qkv.bias", (24,), 2, Cut(0, (Block(12, 4), Block(6, 2, True), Block(6, 2, True))))
QKV = Parameter("qkv", (24, HIDDEN), 2, Cut(0, (Block(12, 4), Block(6, 2, True), Block(6, 2, True))))
GATE_UP = Parameter("gate_up", (16, HIDDEN), 2, Cut(0, (Block(8), Block(8))))
SMALL = (WIDE, DEEP, NORM, WORDS, BIASES, QKV, GATE_UP)


def unit(grid: Generation, size: int = 1) -> list[Parameter]:
    """One vector a stage that every shard gets ``size`` elements of."""
    t = grid.training.t
    return [Parameter(f"stage {stage}", (t * size,), 2, Cut(0, (Block(t * size),)), stage) for stage in range(grid.training.p)]


def check_sound(parameters, source: Lying, target: Lying) -> None:
    """Carried out, it makes the target layout; nothing moves that is there; no more moves than in a full gather."""
    plan, model = schedule(parameters, source, target), sum(parameter.bytes for parameter in parameters)
    after, before = lie(parameters, target), lie(parameters, source)
    found = {key: tensor * 0 for key, tensor in after.items()}
    carry_out((*plan.stays, *plan.copies), before, found)
    assert same(found, after)
    assert all(copy.source_rank != copy.target_rank for copy in plan.copies)
    assert all(copy.source_rank == copy.target_rank for copy in plan.stays)
    for load in plan.loads:
        into = [copy.bytes for copy in plan.copies if copy.target_rank == load.rank]
        assert load.received == sum(into) <= model - load.held
        assert load.sent == sum(copy.bytes for copy in plan.copies if copy.source_rank == load.rank)
    assert plan == schedule(parameters, source, target)


# ---------------------------------------------------------------- by hand


def test_the_published_example_slice_by_slice():
    # 8 rows over 4 shards, 2 each; a generation shard has 4
    grid = Generation(Training(1, 4, 2), 1, 2)
    plan = schedule([Parameter("w", (8,), 1, Cut(0, (Block(8),)))], grid.training, grid)
    assert plan.copies[:3] == (
        Copy("w", 1, 0, ((2, 4),), ((0, 2),), ((2, 4),), 2),
        Copy("w", 0, 1, ((0, 2),), ((0, 2),), ((0, 2),), 2),
        Copy("w", 3, 2, ((6, 8),), ((0, 2),), ((2, 4),), 2),
    )
    assert plan.sources == ((1,), (0,), (3,), (2,), (5,), (4,), (7,), (6,))
    assert plan.loads[0] == Load(rank=0, held=2, stays=2, received=2, sent=2)
    assert (plan.loads[0].peak(), plan.loads[0].peak(100), plan.bytes) == (4, 104, 16)


def test_ddp_to_whole_engines_moves_nothing():
    plan = schedule(SMALL, Ddp(2), Engine(1, 2))
    assert plan.copies == ()
    # what the engine adds is the vocabulary's padding: 6 rows of 8 in bfloat16
    assert [load.padding for load in plan.loads] == [96, 96]
    assert [load.redundant for load in plan.loads] == [0, 0]


def test_ddp_to_shards_moves_nothing_and_leaves_half_redundant():
    plan = schedule([WIDE], Ddp(2), Engine(2))
    assert plan.copies == ()
    assert [(load.stays, load.redundant) for load in plan.loads] == [(96, 96), (96, 96)]


def test_fsdp_to_tensor_parallel_by_hand():
    plan = schedule([WIDE, DEEP, NORM], Fsdp(2), Engine(2))
    # up: both cut rows in halves, so it stays. down: rank 0 has rows 0-4 and needs columns 0-6; the norm is half there
    assert plan.copies == (
        Copy("down", 1, 0, ((4, 8), (0, 6)), ((0, 4), (0, 6)), ((4, 8), (0, 6)), 48),
        Copy("down", 0, 1, ((0, 4), (6, 12)), ((0, 4), (6, 12)), ((0, 4), (0, 6)), 48),
        Copy("norm", 1, 0, ((4, 8),), ((0, 4),), ((4, 8),), 16),
        Copy("norm", 0, 1, ((0, 4),), ((0, 4),), ((0, 4),), 16),
    )
    # held: 96 of up, 96 of down, 16 of the norm; of down the half outside its columns is redundant
    assert plan.loads[0] == Load(rank=0, held=208, stays=160, received=64, sent=64)
    assert plan.loads[0].redundant == 48


def test_fused_queries_keys_and_values_by_hand():
    # fsdp cuts 24 rows in halves: rank 0 has q (0-12), rank 1 k (12-18) and v (18-24); shard 0 needs q 0-6, k 12-15, v 18-21
    plan = schedule([BIASES], Fsdp(2), Engine(2))
    assert plan.copies == (
        Copy("qkv.bias", 1, 0, ((12, 15),), ((0, 3),), ((6, 9),), 6),
        Copy("qkv.bias", 1, 0, ((18, 21),), ((6, 9),), ((9, 12),), 6),
        Copy("qkv.bias", 0, 1, ((6, 12),), ((6, 12),), ((0, 6),), 12),
    )
    assert [(copy.part, copy.target_slice) for copy in plan.stays] == [
        (((0, 6),), ((0, 6),)),
        (((15, 18),), ((6, 9),)),
        (((21, 24),), ((9, 12),)),
    ]


def test_repeated_key_value_heads_are_taken_from_who_has_sent_least():
    # training over 4 shards holds each key head twice (ranks 0 and 1, 2 and 3); ranks 4 and 5 have nothing
    keys = Parameter("k", (6,), 1, Cut(0, (Block(6, 2, True),)))
    plan = schedule([keys], Training(1, 4, 1), Engine(1, 6))
    into = {rank: [(copy.source_rank, copy.part[0]) for copy in plan.copies if copy.target_rank == rank] for rank in range(6)}
    # rank 0 has the first head and lacks the second, which 2 and 3 hold: the nearer; rank 1 then takes it from the other
    assert into == {
        0: [(2, (3, 6))],
        1: [(3, (3, 6))],
        2: [(1, (0, 3))],
        3: [(0, (0, 3))],
        4: [(1, (0, 3)), (3, (3, 6))],
        5: [(0, (0, 3)), (2, (3, 6))],
    }


def test_what_every_shard_of_a_stage_holds_comes_from_the_own_micro_group():
    # the second stage's norm lies whole on ranks 4-7; groups are 0, 1, 4, 5 and 2, 3, 6, 7
    grid = Generation(Training(2, 4, 1), 1, 2)
    plan = schedule([Parameter("norm", (3,), 2, stage=1)], grid.training, grid)
    assert [(copy.source_rank, copy.target_rank) for copy in plan.copies] == [(4, 0), (5, 1), (6, 2), (7, 3)]


def test_parts_that_the_engine_fuses_go_where_they_lie_in_its_tensor():
    parts = [Parameter(name, (size,), 2, Cut(0, (Block(size, heads),))) for name, size, heads in (("q", 12, 4), ("k", 6, 2), ("v", 6, 2))]
    plan = schedule(fuse("qkv", parts), Fsdp(2), Engine(2))
    assert plan.copies == ()  # whole heads in halves, by themselves
    assert [(copy.parameter, copy.target_slice[0]) for copy in plan.stays if copy.target_rank == 1] == [
        ("q", (0, 6)),
        ("k", (6, 9)),
        ("v", (9, 12)),
    ]


def test_uneven_chunks_and_padding_by_hand():
    # 10 rows in chunks of 3, 3, 3, 1; padded to 16 in shares of 4: the last rank needs nothing, and gives its row away
    plan = schedule([WORDS], Fsdp(4), Engine(4))
    assert [(copy.source_rank, copy.target_rank, copy.part[0], copy.target_slice[0]) for copy in plan.copies] == [
        (1, 0, (3, 4), (3, 4)),
        (2, 1, (6, 8), (2, 4)),
        (3, 2, (9, 10), (1, 2)),
    ]
    assert [(load.needs, load.redundant, load.padding) for load in plan.loads] == [(64, 0, 0), (64, 16, 0), (32, 32, 32), (0, 16, 64)]


def test_the_better_of_two_groupings():
    # fsdp 4 to tp 2 x dp 2: strided, rank r's quarter lies in its half; consecutive, ranks 1 and 2 hold nothing they need
    better, worse = groupings([WIDE], Fsdp(4), tp=2, dp=2)
    assert (better.engine, worse.engine) == (Engine(2, 2, strided=True), Engine(2, 2))
    assert [load.received for load in better.schedule.loads] == [48, 48, 48, 48]
    assert [load.received for load in worse.schedule.loads] == [48, 96, 96, 48]
    assert groupings([WIDE], Ddp(4), tp=2, dp=2)[0].engine == Engine(2, 2)  # nothing moves either way
    assert [one.engine for one in groupings([WIDE], Fsdp(2), tp=2)] == [Engine(2)]


# ---------------------------------------------------------------- properties


@pytest.mark.parametrize(
    "source", [Ddp(4), Fsdp(4), Fsdp(3), Fsdp(7), Training(1, 2, 2), Training(1, 4, 1), Engine(2, 2, strided=True)], ids=str
)
@pytest.mark.parametrize("target", [Engine(1, 4), Engine(2, 2), Engine(2, 2, strided=True), Engine(4), Engine(1, 3), Engine(2, 4)], ids=str)
def test_carried_out_it_makes_the_target_layout(source, target):
    check_sound(SMALL, source, target)


@pytest.mark.parametrize(
    ("p", "t", "d", "p_g", "t_g"), [(1, 4, 2, 1, 2), (2, 2, 2, 1, 1), (4, 2, 1, 2, 1), (2, 4, 1, 2, 2), (2, 4, 1, 1, 4)]
)
@pytest.mark.parametrize("consecutive", [False, True])
def test_grids_are_carried_out_too(p, t, d, p_g, t_g, consecutive):
    stages = [
        Parameter(f"{one.name} {stage}", one.shape, one.element_bytes, one.cut, stage) for stage in range(p) for one in (*SMALL[:4], QKV)
    ]
    check_sound(stages, Training(p, t, d), Generation(Training(p, t, d), p_g, t_g, consecutive))


def check_published(grid: Generation) -> None:
    """Bytes, peak and redundancy of each rank are the formulas', and all that moves moves inside micro data-parallel groups."""
    parameters = unit(grid)
    plan, weights = schedule(parameters, grid.training, grid), 2 * grid.training.replica
    wanted = hybrid(grid, weights)
    assert {(load.received, load.peak(), load.redundant) for load in plan.loads} == {(wanted.moved, wanted.peak, wanted.redundant)}
    assert {load.sent for load in plan.loads} == {wanted.moved}  # an all-gather: everyone gives as much
    group = {rank: at for at, ranks in enumerate(grid.micro_data_groups) for rank in ranks}
    assert all(group[copy.source_rank] == group[copy.target_rank] for copy in plan.copies)
    assert wanted.moved <= vanilla(grid, weights).moved <= full_gather(grid, weights).moved


def test_every_grid_of_up_to_64_ranks_has_the_published_volumes():
    for grid in grids():
        check_published(grid)


def test_the_vanilla_grouping_never_takes_more_than_its_formula():
    for grid in grids(16):
        weights = 2 * grid.training.replica
        bound = vanilla(grid, weights)
        other = Generation(grid.training, grid.p_g, grid.t_g, consecutive=True)
        for load in schedule(unit(grid), grid.training, other).loads:
            assert load.received <= bound.moved
            assert load.redundant <= bound.redundant
            assert load.peak() <= bound.peak


# ---------------------------------------------------------------- errors and printing


class Half(Ddp):
    """A layout that has lost the second half of everything."""

    def shard(self, parameter: Parameter, rank: int) -> Shard:
        return parameter.chunk(0, 2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: schedule([NORM, NORM], Ddp(1), Engine(1)), "two of them have one name"),
        (lambda: schedule([NORM], Half(2), Engine(1)), r"norm, \(\(4, 8\),\), for rank 0: no rank of the source layout holds it"),
        (lambda: schedule([BIASES], Ddp(3), Engine(3)), "qkv.bias in 3 tensor-parallel shards: it has 4 heads"),
        (
            lambda: schedule([Parameter("w", (4,), 2, stage=2)], Training(2, 1, 1), Engine(1)),
            "w in stage 2: the grid 2-1-1 has 2\n  fix: give stages 0 to 1",
        ),
    ],
)
def test_what_has_no_schedule(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_printed_it_is_a_table():
    lines = str(schedule([WIDE, DEEP, NORM], Fsdp(2), Engine(2))).splitlines()
    assert lines == [
        "rank  before  stays  received  sent   peak  redundant  from ranks",
        "0      208 B  160 B      64 B  64 B  272 B       48 B           1",
        "1      208 B  160 B      64 B  64 B  272 B       48 B           0",
        "128 B between ranks, in 4 copies",
    ]
