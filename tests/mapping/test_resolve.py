"""What a map comes to on a machine: names, residency, modes. One device has one name."""

import pytest

from workbench.mapping import DeviceMap
from workbench.mapping.resolve import choose_mode, name_device, named, needs_resharding, same_devices
from workbench.roles import Role
from workbench.topology import GPU, Topology

ONE = Topology.preset("dgx-a100")
TWO = Topology.preset("2xdgx-a100")
OWN = Topology("own", tuple(GPU(index, node="box") for index in range(4)))


@pytest.mark.parametrize(
    ("device", "topology", "name"),
    [
        ("cpu", None, "cpu:0"),
        ("cpu", ONE, "cpu:0"),
        ("3", None, "local:3"),
        ("3", ONE, "local:3"),
        ("local:3", ONE, "local:3"),
        ("3", OWN, "box:3"),
        ("9", OWN, "box:9"),
        ("3", Topology.cpu(4), "cpu:3"),
        ("node1:3", TWO, "node1:3"),
        ("3", TWO, "3"),  # of which node nobody said
        ("cpu", TWO, "cpu:0"),
    ],
)
def test_names(device: str, topology: Topology | None, name: str) -> None:
    assert name_device(device, topology) == name


def test_a_bare_number_on_two_nodes_names_no_device_that_is_not_there() -> None:
    resolved = DeviceMap(actor="0-1").resolve(TWO)
    assert resolved[Role.ACTOR].devices == ("0", "1")
    assert resolved[Role.REWARD].devices == ("cpu:0",)


@pytest.mark.parametrize(
    ("actor", "rollout", "topology", "same"),
    [
        ("0-3", "local:0-3", None, True),
        ("0-3", "local:0-3", ONE, True),
        ("cpu", "cpu:0", Topology.cpu(2), True),
        ("0", "cpu", Topology.cpu(2), True),
        ("0-3", "box:0-3", OWN, True),
        ("0-3", "box:0-3", None, False),
        ("0-3", "0-2", ONE, False),
    ],
)
def test_the_same_devices_by_other_names(actor: str, rollout: str, topology: Topology | None, same: bool) -> None:
    devices = DeviceMap(actor=actor, rollout=rollout)
    assert same_devices(devices, Role.ACTOR, Role.ROLLOUT, topology) is same
    resolved = devices.resolve(topology)
    assert resolved[Role.ROLLOUT].residency == resolved[Role.ACTOR].residency == ("hybrid" if same else "static")
    assert (choose_mode(devices, topology, True, None)[1].startswith("the engine is on other devices")) is not same


def test_no_devices_are_the_same_as_none() -> None:
    devices = DeviceMap(actor="http://h:1", reward="http://h:1")
    assert named(devices, Role.REWARD) == ()
    assert not same_devices(devices, Role.ACTOR, Role.REWARD)


def test_resharding_by_other_names() -> None:
    assert needs_resharding(DeviceMap(actor="0-3 fsdp", rollout="local:0-3 tp2"))
    assert needs_resharding(DeviceMap(actor="0-3 fsdp", rollout="box:0-3 tp2"), OWN)
    assert not needs_resharding(DeviceMap(actor="0-3", rollout="local:0-3"))


def test_the_check_of_resharding_knows_the_names_of_the_machine() -> None:
    devices = DeviceMap(actor={"devices": "0-3", "layout": "fsdp", "placement_policy": "static"}, rollout="box:0-3 tp2")
    assert "WB207" in {finding.code for finding in devices.check(OWN)}
    assert "WB207" not in {finding.code for finding in devices.check()}  # where no machine says that they are the same
