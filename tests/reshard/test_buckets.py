import pytest

from tests.reshard.executed import carry_out, lie, same
from tests.reshard.test_schedule import SMALL, WIDE
from workbench.errors import ConfigError
from workbench.reshard.buckets import buckets, cut
from workbench.reshard.lying import Ddp, Engine, Fsdp
from workbench.reshard.parameters import Parameter
from workbench.reshard.schedule import Copy, schedule

# 3 x 4 x 5 elements of 2 bytes
COPY = Copy("w", 1, 0, ((3, 6), (0, 4), (0, 5)), ((0, 3), (0, 4), (0, 5)), ((0, 3), (8, 12), (0, 5)), 120)


def test_runs_by_hand():
    # every rank of two lacks the other's half: 4 copies of 4 bytes, two into each
    vectors = [Parameter(name, (4,), 2) for name in "ab"]
    plan = schedule(vectors, Fsdp(2), Ddp(2))
    assert [(copy.parameter, copy.target_rank, copy.bytes) for copy in plan.copies] == [("a", 0, 4), ("a", 1, 4), ("b", 0, 4), ("b", 1, 4)]
    assert [len(bucket) for bucket in buckets(plan, 7)] == [2, 2]
    assert [len(bucket) for bucket in buckets(plan, 8)] == [4]
    assert buckets(schedule([WIDE], Ddp(2), Engine(2)), 8) == ()


def test_a_large_copy_is_cut_by_rows():
    parts = list(cut(COPY, 80))  # a row has 40 bytes
    assert [(part.part[0], part.target_slice[0], part.bytes) for part in parts] == [((3, 5), (0, 2), 80), ((5, 6), (2, 3), 40)]
    assert list(cut(COPY, 120)) == [COPY]


def test_where_a_row_is_too_large_the_next_dimension_is_cut_too():
    parts = list(cut(COPY, 25))  # two rows of 10 bytes each
    assert [part.bytes for part in parts] == [20] * 6
    assert [(part.part[:2], part.source_slice[:2], part.target_slice[:2]) for part in parts[:3]] == [
        (((3, 4), (0, 2)), ((0, 1), (0, 2)), ((0, 1), (8, 10))),
        (((3, 4), (2, 4)), ((0, 1), (2, 4)), ((0, 1), (10, 12))),
        (((4, 5), (0, 2)), ((1, 2), (0, 2)), ((1, 2), (8, 10))),
    ]
    assert len(list(cut(COPY, 3))) == 60


@pytest.mark.parametrize("limit", [4, 7, 16, 50, 64, 1000])
def test_in_buckets_the_same_is_done_and_no_rank_gets_more_than_the_limit(limit):
    source, target = Fsdp(3), Engine(2, 2)
    plan = schedule(SMALL, source, target)
    runs, before, after = buckets(plan, limit), lie(SMALL, source), lie(SMALL, target)
    found = {key: tensor * 0 for key, tensor in after.items()}
    carry_out(plan.stays, before, found)
    for bucket in runs:
        carry_out(bucket, before, found)
        assert all(sum(copy.bytes for copy in bucket if copy.target_rank == rank) <= limit for rank in range(4))
    assert same(found, after)
    assert sum(copy.bytes for bucket in runs for copy in bucket) == plan.bytes


def test_a_bucket_holds_an_element_at_least():
    with pytest.raises(ConfigError, match="buckets of 1 bytes: one element of w has 2"):
        list(cut(COPY, 1))
    with pytest.raises(ConfigError, match="that is a float"):
        buckets(schedule([WIDE], Fsdp(2), Ddp(2)), 2.5)
