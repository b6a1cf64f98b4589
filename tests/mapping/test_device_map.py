"""The maps that one process can obey, and the reasons why others are refused."""

from pathlib import Path
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap

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


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ({"actor": {"devices": [0, 1]}}, r"devices: \[0, 1\].*one device"),
        ({"actor": "0-3"}, "one device"),
        ({"actor": "0", "rollout": "1"}, "rollout: '1' beside actor: '0'"),
        ({"actor": "1"}, r"first visible GPU\n.*CUDA_VISIBLE_DEVICES=1"),
        ({"actor": "cuda:0"}, "that is no device"),
        ({"actor": "cpu", "critic": "share:actor"}, "no algorithm of this version has one"),
        ({"aktor": "cpu"}, r"role 'aktor'.*\n.*write 'actor'"),
        ({"actor": "cpu", "reference": "cpu"}, "adapter off"),
        ({"actor": "cpu", "reward": "0"}, "rewards are functions"),
        ({"actor": {"devices": "cpu", "layout": "fsdp"}}, "not understood"),
        ({"actor": None}, "not understood"),
    ],
)
def test_what_cannot_be_obeyed_is_refused_with_the_reason(written: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        DeviceMap.load(written)


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
