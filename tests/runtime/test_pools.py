"""Maps as pools of processes: each expectation is written by hand."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.roles import Role
from workbench.runtime.pools import Fan, Pool, homes, in_driver, machine_of, split
from workbench.topology import Topology

ACTOR, CRITIC, ROLLOUT, REFERENCE, REWARD = Role.ACTOR, Role.CRITIC, Role.ROLLOUT, Role.REFERENCE, Role.REWARD
CPU = ("cpu:0",)


def gpus(*numbers: int) -> tuple[str, ...]:
    return tuple(f"local:{number}" for number in numbers)


def slots(*numbers: int) -> tuple[str, ...]:
    return tuple(f"cpu:{number}" for number in numbers)


@pytest.mark.parametrize(
    ("written", "pools"),
    [
        ({}, [Pool((ACTOR, ROLLOUT, REFERENCE), CPU, on_cpu=True)]),
        ({"actor": "0"}, [Pool((ACTOR, ROLLOUT, REFERENCE), gpus(0))]),
        ({"actor": "cpu", "reward": "cpu:0"}, [Pool((ACTOR, ROLLOUT, REFERENCE, REWARD), CPU, on_cpu=True)]),
        ({"actor": "0-3 fsdp", "rollout": "0-3 tp2"}, [Pool((ACTOR, ROLLOUT, REFERENCE), gpus(0, 1, 2, 3), "fsdp", engine_tp=2)]),
        ({"actor": "0-1", "rollout": "2-3"}, [Pool((ACTOR, REFERENCE), gpus(0, 1)), Pool((ROLLOUT,), gpus(2, 3))]),
        ({"actor": "0-1 tp2", "rollout": "2"}, [Pool((ACTOR, REFERENCE), gpus(0, 1), "tp=2"), Pool((ROLLOUT,), gpus(2))]),
        # two roles have one set of devices in whatever order and by whatever name
        ({"actor": "1,0", "rollout": "local:0-1"}, [Pool((ACTOR, ROLLOUT, REFERENCE), gpus(0, 1))]),
        # what overlaps in part is a pool of its own
        (
            {"actor": "0-1", "rollout": "2-3", "reference": "1-2"},
            [Pool((ACTOR,), gpus(0, 1)), Pool((ROLLOUT,), gpus(2, 3)), Pool((REFERENCE,), gpus(1, 2))],
        ),
        (
            {"actor": "0-3", "rollout": "4-7 tp2", "reference": "0-1 fsdp"},
            [
                Pool((ACTOR,), gpus(0, 1, 2, 3)),
                Pool((ROLLOUT,), gpus(4, 5, 6, 7), engine_tp=2),
                Pool((REFERENCE,), gpus(0, 1), "fsdp"),
            ],
        ),
        # a reference beside the actor is its base, laid out as that is
        (
            {"actor": "0-1 fsdp", "rollout": "2", "reference": "0-1"},
            [Pool((ACTOR, REFERENCE), gpus(0, 1), "fsdp"), Pool((ROLLOUT,), gpus(2))],
        ),
        (
            {"actor": "cpu:0-1", "rollout": "cpu:2", "reference": "cpu:3", "reward": "cpu:3"},
            [
                Pool((ACTOR,), slots(0, 1), on_cpu=True),
                Pool((ROLLOUT,), slots(2), on_cpu=True),
                Pool((REFERENCE, REWARD), slots(3), on_cpu=True),
            ],
        ),
        (
            {"actor": "node1:0-1", "rollout": "node2:0-1 tp2"},
            [Pool((ACTOR, REFERENCE), ("node1:0", "node1:1")), Pool((ROLLOUT,), ("node2:0", "node2:1"), engine_tp=2)],
        ),
        (
            {"actor": {"devices": "0-1", "layout": "fsdp", "sharding_strategy": "SHARD_GRAD_OP", "nccl_backend": "ring"}, "rollout": "2"},
            [Pool((ACTOR, REFERENCE), gpus(0, 1), "fsdp", "SHARD_GRAD_OP", nccl="ring"), Pool((ROLLOUT,), gpus(2))],
        ),
        # "none" is to have no gradient groups, no setting of NCCL
        ({"actor": {"devices": "0", "nccl_backend": "none"}}, [Pool((ACTOR, ROLLOUT, REFERENCE), gpus(0))]),
        (
            {"actor": "0", "rollout": "1", "reward": "2"},
            [Pool((ACTOR, REFERENCE), gpus(0)), Pool((ROLLOUT,), gpus(1)), Pool((REWARD,), gpus(2))],
        ),
        ({"actor": "0", "rollout": "1", "reward": "http://h:1"}, [Pool((ACTOR, REFERENCE), gpus(0)), Pool((ROLLOUT,), gpus(1))]),
        (
            {"actor": "0-1 fsdp", "critic": "0-1 fsdp", "rollout": "2"},
            [Pool((ACTOR, CRITIC, REFERENCE), gpus(0, 1), "fsdp"), Pool((ROLLOUT,), gpus(2))],
        ),
    ],
)
def test_the_pools_of_a_map(written: dict[str, Any], pools: list[Pool]) -> None:
    devices = DeviceMap(**written)
    assert sorted(split(devices, machine_of(devices, None)), key=str) == sorted(pools, key=str)


def test_the_actors_pool_comes_first() -> None:
    assert split(DeviceMap(rollout="2", reference="1", actor="0"))[0].roles == (ACTOR,)


def test_slots_of_the_cpu_stand_for_gpus() -> None:
    assert split(DeviceMap(actor="0-1", rollout="2"), Topology.cpu(4)) == (
        Pool((ACTOR, REFERENCE), slots(0, 1), on_cpu=True),
        Pool((ROLLOUT,), slots(2), on_cpu=True),
    )


@pytest.mark.parametrize(
    ("written", "match"),
    [
        (
            {"actor": "0-1", "critic": "0-1 fsdp"},
            r"^actor: '0-1', critic: '0-1 fsdp': .*in one way\n  fix: give both one layout, or devices",
        ),
        (
            {"actor": "0-1 fsdp", "critic": {"devices": "0-1", "layout": "fsdp", "sharding_strategy": "SHARD_GRAD_OP"}},
            "a process lays its models out in one way",
        ),
    ],
)
def test_two_layouts_in_one_pool_are_refused(written: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        split(DeviceMap(**written, rollout="2"))


def test_a_machine_is_the_one_given_or_has_the_slots_that_are_named() -> None:
    assert machine_of(DeviceMap(actor="cpu:0-1", rollout="cpu:4"), None) == Topology.cpu(5)
    assert machine_of(DeviceMap(actor="cpu:0"), Topology.cpu(8)) == Topology.cpu(8)
    assert machine_of(DeviceMap(actor="0", rollout="1"), None) is None
    assert machine_of(DeviceMap(), None) is None  # "cpu" is the whole CPU


def test_rewards_on_the_cpu_are_functions_in_the_drivers_process() -> None:
    assert in_driver(DeviceMap(), REWARD)
    assert not in_driver(DeviceMap(reward="cpu:0"), REWARD)
    assert not in_driver(DeviceMap(), ACTOR)


@pytest.mark.parametrize(
    ("pool", "world"),
    [
        (Pool((ACTOR, ROLLOUT), gpus(0)), False),
        (Pool((ACTOR,), gpus(0, 1)), True),
        (Pool((REFERENCE,), gpus(0, 1)), True),
        (Pool((ROLLOUT,), gpus(0, 1)), False),
        (Pool((ROLLOUT,), gpus(0, 1), engine_tp=2), True),
        (Pool((REWARD,), gpus(0, 1)), False),
        (Pool((ROLLOUT, REWARD), gpus(0, 1)), False),
    ],
)
def test_processes_are_a_world_where_they_talk_to_one_another(pool: Pool, world: bool) -> None:
    assert pool.is_world is world


def test_layouts_and_names_as_the_placement_says_them() -> None:
    pool = Pool((ACTOR, ROLLOUT, REFERENCE, REWARD), gpus(0, 1, 2, 3), "fsdp", engine_tp=2)
    assert pool.name == "actor+rollout+reference+reward"
    assert [pool.layout_of(role) for role in pool.roles] == ["fsdp", "tp=2", "fsdp", "ddp"]
    assert Pool((ROLLOUT,), gpus(0)).layout_of(ROLLOUT) == "ddp"


def test_work_is_spread_over_copies_and_the_ranks_of_a_copy_do_the_same() -> None:
    pool = Pool((ACTOR, ROLLOUT, REFERENCE, REWARD), gpus(0, 1, 2, 3), "tp=4", engine_tp=2)
    assert [pool.fan(role) for role in pool.roles] == [Fan(1, 4), Fan(2, 2), Fan(1, 4), Fan(4)]
    assert Pool((ACTOR,), gpus(0, 1, 2, 3), "fsdp").fan(ACTOR) == Fan(4)
    engines = Fan(2, 2)
    assert engines.leaders == (0, 2)
    assert [engines.copy_of(rank) for rank in range(4)] == [0, 0, 1, 1]


def test_slices_by_hand() -> None:
    assert Fan(3).slices(8) == (range(2), range(2, 5), range(5, 8))
    assert Fan(4, 2).slices(2) == (range(0), range(1), range(1, 1), range(1, 2))  # more copies than work


@settings(deadline=None)
@given(st.integers(1, 64), st.integers(1, 8), st.integers(0, 5000))
def test_slices_cover_everything_in_order_and_are_nearly_equal(copies: int, width: int, count: int) -> None:
    parts = Fan(copies, width).slices(count)
    assert len(parts) == copies
    assert [row for part in parts for row in part] == list(range(count))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(st.integers(1, 16), st.integers(1, 8))
def test_every_copy_is_led_by_its_own_first_rank(copies: int, width: int) -> None:
    fan = Fan(copies, width)
    assert [fan.copy_of(rank) for rank in fan.leaders] == list(range(copies))
    assert {fan.copy_of(rank) for rank in range(copies * width)} == set(range(copies))


def test_homes_are_named_as_their_machine_names_them_and_the_driver_is_no_slot() -> None:
    places = DeviceMap(actor="0-1", rollout="2")
    two = ["local:0", "local:1"]
    assert homes(places) == {"actor": two, "rollout": ["local:2"], "reference": two, "reward": ["cpu:0"]}
    on_slots = homes(places, Topology.cpu(slots=3))
    assert on_slots == {"actor": ["cpu:0", "cpu:1"], "rollout": ["cpu:2"], "reference": ["cpu:0", "cpu:1"], "reward": ["driver:0"]}
    assert homes(DeviceMap(actor="0", reward="1"), Topology.cpu(slots=2))["reward"] == ["cpu:1"]
    assert homes(DeviceMap())["reward"] == ["cpu:0"]
