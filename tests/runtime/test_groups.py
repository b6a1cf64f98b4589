"""Which ranks hold an engine together: by the bytes that move, where no pair of devices is nearer than another."""

from dataclasses import replace

import pytest

from workbench.reshard.lying import Engine, Fsdp
from workbench.reshard.parameters import Block, Cut, Parameter
from workbench.reshard.schedule import groupings
from workbench.roles import Role
from workbench.runtime.groups import grouped
from workbench.runtime.pools import Pool

POOL = Pool((Role.ACTOR, Role.ROLLOUT), ("cpu:0", "cpu:1", "cpu:2", "cpu:3"), "fsdp", engine_tp=2, on_cpu=True)


@pytest.mark.parametrize(
    ("layout", "tp", "mode", "near", "strided"),
    [
        ("fsdp", 2, "merged", True, True),
        ("fsdp", 2, "full", True, True),
        ("tp=4", 2, "merged", True, True),  # HybridFlow's groups
        ("fsdp", 2, "merged", False, False),  # decoding over the slow links would cost more
        ("fsdp", 2, "adapter", True, False),  # no weights move
        ("fsdp", 4, "merged", True, False),  # one engine
        ("fsdp", 1, "merged", True, False),
        ("tp=2", 2, "merged", True, False),  # each rank has what it needs
        ("ddp", 2, "merged", True, False),
    ],
)
def test_groups_follow_the_bytes(layout: str, tp: int, mode: str, near: bool, strided: bool) -> None:
    pool = replace(POOL, layout=layout, engine_tp=tp)
    assert grouped(pool, mode, near=near) == replace(pool, strided=strided)


def test_what_strided_groups_save_by_hand() -> None:
    """Four ranks hold a quarter of the rows each, and need a half. In consecutive groups ranks 1 and 2 hold nothing of theirs."""
    rows = Parameter("q_proj", (64, 32), 1, Cut(0, (Block(64),)))
    columns = Parameter("o_proj", (64, 32), 1, Cut(1, (Block(32),)))
    better, worse = groupings([rows], Fsdp(4), 2, 2)
    assert (better.engine, worse.engine) == (Engine(2, 2, strided=True), Engine(2, 2))
    quarter = 64 * 32 // 4
    assert [load.received for load in worse.schedule.loads] == [quarter, 2 * quarter, 2 * quarter, quarter]
    assert [load.received for load in better.schedule.loads] == [quarter] * 4
    # of a matrix cut by columns each rank holds an eighth of what it needs, whichever half that is
    assert [found.schedule.bytes for found in groupings([columns], Fsdp(4), 2, 2)] == [4 * (1024 - 256)] * 2


def test_work_is_given_to_the_engines_as_they_are() -> None:
    fan = replace(POOL, strided=True).fan(Role.ROLLOUT)
    assert fan.leaders == (0, 1)
    assert [fan.copy_of(rank) for rank in range(4)] == [0, 1, 0, 1]
    assert not replace(POOL, strided=True).fan(Role.ACTOR).strided
