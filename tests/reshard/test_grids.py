"""The groups of ranks, against the published example and for every grid of up to 64 ranks."""

from itertools import pairwise

import pytest

from workbench.errors import ConfigError
from workbench.reshard.grids import Generation, Training
from workbench.reshard.lying import Ddp, Engine, Fsdp


def grids(most: int = 64):
    """Every valid (p, t, d, p_g, t_g)."""
    for p in range(1, most + 1):
        for t in range(1, most // p + 1):
            for d in range(1, most // (p * t) + 1):
                for p_g in (size for size in range(1, p + 1) if p % size == 0):
                    for t_g in (size for size in range(1, t + 1) if t % size == 0):
                        yield Generation(Training(p, t, d), p_g, t_g)


def test_the_published_example():
    # HybridFlow, figure 8, there with ranks from 1
    grid = Generation(Training(1, 4, 2), 1, 2)
    assert str(grid) == "1-2-2-2"
    assert grid.tensor_groups == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert grid.micro_data_groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    vanilla = Generation(Training(1, 4, 2), 1, 2, consecutive=True)
    assert vanilla.tensor_groups == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert vanilla.micro_data_groups == ((0, 2), (1, 3), (4, 6), (5, 7))


def test_stages_by_hand():
    # two stages of four shards become one of two: ranks 0-3 are the first stage, 4-7 the second
    grid = Generation(Training(2, 4, 1), 1, 2)
    assert grid.d_g == 4
    assert grid.micro_data_groups == ((0, 1, 4, 5), (2, 3, 6, 7))
    assert grid.tensor_groups == ((0, 2), (1, 3), (4, 6), (5, 7))
    assert Generation(Training(4, 2, 1), 2, 2).pipeline_groups == ((0, 4), (1, 5), (2, 6), (3, 7))


def test_every_grid_is_grouped_as_published():
    count = 0
    for grid in grids():
        training, ranks, count = grid.training, list(range(grid.ranks)), count + 1
        for groups, size in ((grid.tensor_groups, grid.t_g), (grid.pipeline_groups, grid.p_g), (grid.micro_data_groups, grid.d_g)):
            assert {len(group) for group in groups} == {size}
            assert sorted(rank for group in groups for rank in group) == ranks
        stride, stages = training.t // grid.t_g, training.p // grid.p_g * training.t
        assert all(b - a == stride for group in grid.tensor_groups for a, b in pairwise(group))
        assert all(b - a == stages for group in grid.pipeline_groups for a, b in pairwise(group))
        if grid.p_g == training.p or grid.t_g == 1:  # else a group is a run of ranks in each of several stages
            assert all(group == tuple(range(group[0], group[0] + grid.d_g)) for group in grid.micro_data_groups)
    assert count == 3652


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Generation(Training(1, 8, 2), 1, 3), "training tensor size 8 is no multiple of 3\n  fix: give one of 1, 2, 4, 8"),
        (lambda: Generation(Training(4, 8, 2), 8, 1), "training pipeline size 4 is no multiple of 8\n  fix: give one of 1, 2, 4"),
        (lambda: Generation(Training(4, 8, 2), 0, 1), "p_g is 0"),
        (lambda: Training(1, 0, 1), "training grid 1-0-1: t is 0"),
        (lambda: Training(1, 2, True), "that is a bool"),
        (lambda: Training(1, 2, 2**16), "at most 65,536 ranks"),
        (lambda: Engine(0), "engine: tp is 0"),
        (lambda: Fsdp(-1), "fsdp: ranks is -1"),
        (lambda: Ddp(0), "ddp: ranks is 0"),
    ],
)
def test_impossible_grids(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_groups_of_an_engine():
    assert Engine(2, 3).tensor_groups == ((0, 1), (2, 3), (4, 5))
    assert Engine(2, 3, strided=True).tensor_groups == ((0, 3), (1, 4), (2, 5))
    assert str(Engine(2, 3)) == "tp 2 x dp 3, groups of consecutive ranks"
