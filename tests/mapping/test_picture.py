"""Labels, groups and numbers of a map on a machine."""

import pytest

from workbench.findings import finding
from workbench.mapping import DeviceMap
from workbench.mapping.picture import Verdict, casting, meanings, memory_of, named, role_chips, words
from workbench.roles import Role
from workbench.topology import Topology
from workbench.topology.drawing.casting import Aside, Casting

DGX = Topology.preset("dgx-a100")


def cast(devices: DeviceMap, topology: Topology = DGX) -> Casting:
    return casting(devices, topology, devices.resolve(topology), Verdict())


def labels(devices: DeviceMap, role: Role) -> list[tuple[str, str, str]]:
    """Device, longest label, group of each chip."""
    return [(device, chip.texts[0], chip.group) for device, chip in role_chips(role, devices.resolve(DGX)[role])]


def test_a_tensor_parallel_group_is_one_bar_with_its_number() -> None:
    assert labels(DeviceMap(actor="0-3", rollout="0-3 tp2"), Role.ROLLOUT) == [
        ("local:0", "rollout tp2 #0", "rollout 0"),
        ("local:1", "rollout tp2 #0", "rollout 0"),
        ("local:2", "rollout tp2 #1", "rollout 1"),
        ("local:3", "rollout tp2 #1", "rollout 1"),
    ]


def test_a_single_group_needs_no_number() -> None:
    assert [text for _, text, _ in labels(DeviceMap(actor="0-1", rollout="2-3 tp2"), Role.ROLLOUT)] == ["rollout tp2"] * 2


def test_shards_are_one_bar_and_copies_are_not() -> None:
    assert {group for _, _, group in labels(DeviceMap(actor="0-3 fsdp"), Role.ACTOR)} == {"actor 0"}
    assert len({group for _, _, group in labels(DeviceMap(actor="0-3"), Role.ACTOR)}) == 4


def test_what_is_in_no_whole_group_is_said_to_be_left_over() -> None:
    assert labels(DeviceMap(actor="0-2", rollout="0-2 tp2"), Role.ROLLOUT)[-1][1] == "rollout, left over"


def test_a_role_that_shares_is_hollow_and_as_the_actor_lies() -> None:
    devices = DeviceMap(actor="0-3 fsdp", critic="share:actor")
    chips = {chip.lane: chip for chip in cast(devices).chips["local:0"]}
    assert (chips["critic"].hollow, chips["actor"].hollow) == (True, False)
    assert chips["critic"].texts[0] == "critic fsdp"


@pytest.mark.parametrize(
    ("roles", "role", "said"),
    [
        ({"actor": "0-3 fsdp"}, Role.ACTOR, "0-3 · fsdp, hybrid"),
        ({"actor": "0"}, Role.REFERENCE, "0 · shares the actor's model"),
        ({"actor": "0"}, Role.REWARD, "CPU of the driver"),
        ({"actor": "0", "reward": "http://h:1"}, Role.REWARD, "http://h:1"),
        ({"actor": "0-1", "rollout": "2-5 tp2"}, Role.ROLLOUT, "2-5 · 2 x tp2, adapter"),
        ({"actor": "0-3", "rollout": "0-3 tp4"}, Role.ROLLOUT, "0-3 · tp4, merged, hybrid"),
        ({"actor": "a:0-1,b:0-1,c:0-1"}, Role.ACTOR, "6 GPUs on 3 nodes · 6 copies, hybrid"),
    ],
)
def test_words_of_the_key(roles: dict[str, str], role: Role, said: str) -> None:
    devices = DeviceMap(**roles)
    assert words(devices, role, devices.resolve(DGX)[role]) == said


def test_what_is_on_no_gpu_stands_beside() -> None:
    devices = DeviceMap(actor="0", rollout="7-9", reference="http://ref:8000")
    assert cast(devices).asides == (
        Aside("CPU of the driver", (("reward", "reward"),)),
        Aside("not on this machine: local:8-9", (("rollout", "rollout"),)),
        Aside("service ref:8000", (("reference", "reference"),)),
    )


def test_the_driver_is_no_cpu_slot() -> None:
    slots = Topology.cpu(2)
    found = cast(DeviceMap(actor="cpu:0"), slots)
    assert [chip.lane for chip in found.chips["cpu:0"]] == ["actor", "rollout", "reference"]
    assert found.asides == (Aside("CPU of the driver", (("reward", "reward"),)),)


def test_findings_are_numbered_at_the_devices_that_they_name_else_at_their_role() -> None:
    devices = DeviceMap(actor="0-1", rollout="2-3 tp2")
    findings = (
        finding("WB302", "rollout", "rollout: tp 2", "local:2 reaches local:3 slowly; local:0 would not", "use others"),
        finding("WB403", "reference", "reference: 1", "it could share", "share"),
    )
    found = casting(devices, DGX, devices.resolve(DGX), Verdict(findings))
    assert found.notes is not None
    assert [(note.number, note.severity, note.devices) for note in found.notes] == [(1, "warning", ("local:2", "local:3")), (2, "info", ())]
    assert found.notes[0].title == "WB302 · tensor-parallel group across sockets"
    assert found.numbers("local:3") == (1,)
    assert {entry.title: entry.numbers for entry in found.entries if entry.numbers} == {"reference": (2,)}


def test_spans_of_devices_are_read() -> None:
    two = Topology.preset("2xdgx-a100")
    assert named(finding("WB104", "", "12 of 16", "node2:4-7 are mapped to nothing", "-"), two) == tuple(f"node2:{n}" for n in range(4, 8))
    assert named(finding("WB104", "", "12 of 16", "node2:1,3-4,7,node1:0,2x are mapped to nothing", "-"), two) == (
        *("node1:0", "node2:1", "node2:3", "node2:4", "node2:7"),
    )
    assert named(finding("WB603", "", "http://node1:8080", "http://node9:3 is silent", "-"), two) == ()


@pytest.mark.parametrize(
    ("roles", "role", "explained"),
    [
        ({"actor": "0-3"}, Role.ACTOR, ["copies", "hybrid"]),
        ({"actor": "0-3 fsdp", "rollout": "4-7 tp2"}, Role.ACTOR, ["fsdp"]),
        ({"actor": "0-3", "rollout": "4-7 tp2"}, Role.ROLLOUT, ["tp", "adapter"]),
        ({"actor": "0", "rollout": "0"}, Role.ROLLOUT, ["merged", "hybrid"]),
        ({"actor": "0"}, Role.REFERENCE, []),
        ({"actor": "0"}, Role.REWARD, []),
    ],
)
def test_words_that_occur_are_explained(roles: dict[str, str], role: Role, explained: list[str]) -> None:
    assert list(meanings(DeviceMap(**roles).resolve(DGX)[role])) == explained


def test_a_gpu_is_too_full_where_the_checks_say_so() -> None:
    assert memory_of({"actor weights": 60.0, "rollout weights": 15.9}, DGX, "local:0").over is False  # of 80 GiB 76 are usable
    full = memory_of({"actor weights": 60.0, "rollout weights": 16.1}, DGX, "local:0")
    assert (full.gib, full.of, full.over) == (pytest.approx(76.1), 80.0, True)
    assert full.text == "at least actor weights 60.0 GiB, rollout weights 16.1 GiB"
