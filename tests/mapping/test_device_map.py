"""What a map holds, what it shows, which maps one process can obey, and the reasons why others are refused."""

from pathlib import Path
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.roles import Role

MAPS = Path(__file__).parent.parent.parent / "recipes" / "maps"


def test_everything_on_the_cpu_by_default() -> None:
    devices = DeviceMap()
    assert devices.device == "cpu"
    assert devices.placement == {"actor": ["cpu:0"], "rollout": ["cpu:0"], "reference": ["cpu:0"], "reward": ["cpu:0"]}


def test_one_gpu_holds_every_model_and_the_reward_stays_on_the_cpu() -> None:
    devices = DeviceMap(actor="0")
    assert devices.device == "cuda"
    assert devices.placement["rollout"] == ["local:0"]
    assert devices.placement["reward"] == ["cpu:0"]


@pytest.mark.parametrize(("name", "device"), [("cpu", "cpu"), ("one_gpu", "cuda")])
def test_the_maps_of_the_recipes_are_read(name: str, device: str) -> None:
    assert DeviceMap.load(MAPS / f"{name}.yaml").device == device


@pytest.mark.parametrize(
    "written", [{"actor": "cpu"}, {"actor": {"devices": ["cpu"]}, "ref_model": "share:actor"}, {"actor": {"devices": "cpu"}}]
)
def test_the_same_map_in_other_words(written: dict[str, Any]) -> None:
    assert DeviceMap.load(written) == DeviceMap()


def test_a_map_is_itself_and_nothing_is_found_out() -> None:
    devices = DeviceMap()
    assert DeviceMap.load(devices) is devices
    assert DeviceMap.load(None) in (DeviceMap(), DeviceMap(actor="0"))


LARGE = DeviceMap(actor="0-3 fsdp", critic="share:actor", rollout="0-3 tp2", reference="share:actor", reward="cpu")


def test_a_map_for_several_gpus() -> None:
    four = ["local:0", "local:1", "local:2", "local:3"]
    assert LARGE.placement == {"actor": four, "critic": four, "rollout": four, "reference": four, "reward": ["cpu:0"]}
    assert LARGE.devices_of(Role.CRITIC) == ("0", "1", "2", "3")
    assert LARGE.places[Role.ROLLOUT].layout == "tp2"
    assert LARGE.device == "cuda"


def test_strings_are_normalised() -> None:
    written = DeviceMap(actor="3,0-2  fsdp", rollout=" 0,1,2,3 tp=2", critic="share:actor")
    assert written == LARGE
    assert (written.actor, written.rollout) == ("0-3 fsdp", "0-3 tp2")
    assert DeviceMap(actor="0-3 fsdp").rollout == "0-3"  # left out: on the actor's devices, laid out as an engine's


def test_it_prints_as_a_table() -> None:
    assert str(LARGE).splitlines() == [
        "role       devices  how",
        "actor      0-3      fsdp",
        "critic     0-3      shares the actor's model",
        "rollout    0-3      2 x tp2, takes turns with the actor",
        "reference  0-3      shares the actor's model",
        "reward     cpu",
    ]
    assert "rollout    2-3      ddp\n" in str(DeviceMap(actor="0-1", rollout="2-3"))


def test_the_table_is_what_a_cell_shows() -> None:
    from IPython.lib.pretty import pretty

    assert pretty(LARGE) == str(LARGE)


@pytest.mark.parametrize("devices", [LARGE, DeviceMap(), DeviceMap(actor="0,2", rollout="1 ", reference="5")])
def test_a_file_gives_the_same_map_again(devices: DeviceMap, tmp_path: Path) -> None:
    (tmp_path / "map.yaml").write_text(devices.to_yaml())
    assert DeviceMap.load(tmp_path / "map.yaml") == devices


def test_the_file_as_a_person_would_write_it() -> None:
    assert LARGE.to_yaml().splitlines() == [
        "actor: {devices: [0, 1, 2, 3], layout: fsdp}",
        "critic: {share: actor}",
        "rollout: {devices: [0, 1, 2, 3], tp: 2}",
        "reference: {share: actor}",
        "reward: {devices: cpu}",
    ]


def test_devices_alone_are_a_map() -> None:
    assert DeviceMap.load("0") == DeviceMap(actor="0")
    assert DeviceMap.load("0-1") == DeviceMap(actor="0-1", rollout="0-1")


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ({"actor": "cuda:0"}, "that is no device"),
        ({"aktor": "cpu"}, r"role 'aktor'.*\n.*write 'actor'"),
        ({"actor": {"devices": "cpu", "layout": "fsdp"}}, "fsdp shards a model over several devices"),
        ({"actor": None}, "not understood"),
        ({"actor": "share:critic"}, r"the actor has a model of its own\n  fix: name its devices"),
        ({"rollout": "share:actor"}, "the rollout has a model of its own"),
        ({"critic": "share:rollout"}, r"only the actor's model can be shared\n  fix: write critic='share:actor'"),
        ({"actor": "0-1", "rollout": "0-1 fsdp"}, r"tensor parallelism\n  fix: write '0-1', or tp2"),
        ({"actor": "0-3", "rollout": "2-5"}, r"rollout: '2-5' beside actor: '0-3': both have device 2, 3.*\n  fix: .*'0-3', or ones apart"),
        ({"actor": "0-1", "critic": "1"}, "critic: '1' beside actor: '0-1': both have device 1"),
    ],
)
def test_what_no_version_can_obey(written: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        DeviceMap.load(written)


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ({"actor": {"devices": [0, 1]}}, "actor: '0-1': every model shares one device in this version"),
        ({"actor": "0", "rollout": "1"}, r"rollout: '1' beside actor: '0': .*one device.*\n  fix: write rollout='0'"),
        ({"actor": "1"}, r"first visible GPU\n.*CUDA_VISIBLE_DEVICES=1"),
        ({"actor": "cpu", "critic": "share:actor"}, "no algorithm of this version has one"),
        ({"actor": "cpu", "reference": "cpu"}, "adapter off"),
        ({"actor": "cpu", "reward": "0"}, "rewards are functions"),
    ],
)
def test_what_one_process_cannot_obey_is_held_and_refused_for_a_run(written: dict[str, Any], match: str) -> None:
    devices = DeviceMap.load(written)
    with pytest.raises(ConfigError, match=match):
        devices.check_runnable()
    with pytest.raises(ConfigError, match=match):
        devices.check_present()


@pytest.mark.parametrize(
    ("text", "match"), [("actor: [", "no YAML"), ("- actor", "holds list, not roles"), ("", "holds NoneType"), ("\udc80", "no YAML")]
)
def test_a_file_that_holds_no_map(tmp_path: Path, text: str, match: str) -> None:
    path = tmp_path / "map.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(ConfigError, match=match):
        DeviceMap.load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        DeviceMap.load(tmp_path / "none.yaml")
