"""A map on a machine: in a cell, in a terminal, in files."""

from base64 import b64decode
from dataclasses import FrozenInstanceError
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.topology.test_drawing import collisions, outside, texts
from workbench.errors import ConfigError
from workbench.findings import finding
from workbench.mapping import DeviceMap
from workbench.mapping.checks import Question
from workbench.mapping.on_machine import OnMachine
from workbench.topology import Topology
from workbench.topology.drawing.scene import Rect

FINDINGS = (
    finding("WB101", "reward", "devices 9", "no local:9", "name devices that are there"),
    finding("WB302", "rollout", "tp 2 on local:1, local:2", "local:1 reaches local:2 across sockets", "use local:0 and local:1"),
)


def on(name: str = "l40s-4", findings: tuple = FINDINGS, **roles: str) -> OnMachine:
    devices = DeviceMap(**(roles or {"actor": "0", "rollout": "1-2 tp2", "reward": "http://reward:80"}))
    topology = Topology.cpu(4) if name == "cpu" else Topology.preset(name)
    return OnMachine(devices, topology, devices.resolve(topology), findings)


def test_words_are_roles_and_findings() -> None:
    assert str(on()) == (
        "on l40s-4: 1 error, 1 warning\n"
        "\n"
        "role       devices           how\n"
        "actor      local:0\n"
        "rollout    local:1-2         tp2, adapter\n"
        "reference  local:0           shares the actor's model\n"
        "reward     http://reward:80\n"
        "\n"
        f"{FINDINGS[0]}\n"
        "\n"
        f"{FINDINGS[1]}"
    )
    assert on(findings=()).verdict == "no findings"
    assert repr(on()) == str(on())


def test_ok_is_without_errors() -> None:
    assert on().ok is False
    assert on(findings=FINDINGS[1:]).ok is True


def test_of_asks_and_resolves() -> None:
    devices = DeviceMap(actor="0-1", rollout="0-1")
    found = OnMachine.of(Question(devices, Topology.preset("l40s-4"), lora=False))
    assert found == devices.on(Topology.preset("l40s-4"), lora=False) == devices.on("l40s-4", lora=False)
    assert devices.on().topology == Topology.detect()
    assert found.resolved["rollout"].mode == "full"  # type: ignore[index]
    assert "WB104" in [one.code for one in found.findings]  # two GPUs idle
    with pytest.raises(FrozenInstanceError):
        found.findings = ()  # type: ignore[misc]


def test_a_cell_shows_the_drawing() -> None:
    shown = on()._repr_mimebundle_()
    assert shown["text/plain"] == str(on())
    assert b64decode(shown["image/png"]).startswith(b"\x89PNG")
    for words in ("rollout tp2", "mapped to nothing", "WB302 · tensor-parallel group across sockets", "service reward:80"):
        assert words in shown["text/html"]


def test_themes() -> None:
    for theme in ("light", "dark", "auto"):
        ElementTree.fromstring(on().svg(theme))  # type: ignore[arg-type]
    assert on().png("dark") != on().png("light")


def test_save(tmp_path: Path) -> None:
    assert on().save(tmp_path / "map.svg").read_text().startswith("<svg")
    assert on().save(tmp_path / "map.png", "dark").read_bytes() == on().png("dark")
    with pytest.raises(ConfigError, match=r"end the name with \.svg or \.png"):
        on().save(tmp_path / "map.pdf")


MAPS = {
    "rtx3090-2-bridge": {"actor": "0", "rollout": "1"},
    "cpu": {"actor": "cpu:0-1 fsdp", "rollout": "cpu:2-3 tp2"},
    "dgx1-v100": {"actor": "0-3 fsdp", "critic": "share:actor", "rollout": "0-3 tp2", "reward": "http://a.very.long.name.example:8080/v1"},
    "mi300x-8": {"actor": "0-3 fsdp", "critic": "4-5", "rollout": "0-3 tp4", "reference": "4-5", "reward": "6-9"},
    "2xdgx-a100": {"actor": "node1:0-7", "critic": "share:actor", "rollout": "node2:0-7 tp4"},
    "8xhgx-h100": {"actor": ",".join(f"node{n}:0-7" for n in (1, 2, 3)), "rollout": ",".join(f"node{n}:0-7" for n in (4, 5, 6)) + " tp2"},
}


@pytest.mark.parametrize("name", MAPS)
def test_nothing_collides_with_the_findings_of_the_checks(name: str) -> None:
    topology = Topology.cpu(4) if name == "cpu" else Topology.preset(name)
    scene = DeviceMap(**MAPS[name]).on(topology, algo="ppo").scene
    assert collisions(scene) == []
    assert outside(scene) == []
    assert "actor" in texts(scene)


def test_what_was_not_checked_is_said_where_nothing_was_found() -> None:
    devices = DeviceMap(actor="0-3", rollout="0-3")
    assert devices.on("l40s-4").verdict == "no findings; sizes and memory were not checked: no model given"
    assert devices.on("l40s-4", model="shape:qwen2.5-7b").verdict == "no findings"
    slots = DeviceMap(actor="cpu:0-1", rollout="cpu:0-1").on(Topology.cpu(2), model="shape:qwen2.5-7b")
    assert slots.verdict == "no findings; memory was not checked: CPU slots stand for GPUs"
    assert "No findings: nothing is wrong with this map" not in texts(devices.on("l40s-4").scene)
    assert "No findings: nothing is wrong with this map" in texts(devices.on("l40s-4", model="shape:qwen2.5-7b").scene)


def test_what_each_gpu_holds_is_drawn() -> None:
    full = DeviceMap(actor="0-7", rollout="0-7 tp2").on("hgx-h100", model="shape:llama-70b")
    assert {device: round(sum(parts.values())) for device, parts in full.held.items()} == {f"local:{n}": 196 for n in range(8)}
    bars = [item for item in full.scene.items if isinstance(item, Rect) and item.hint.startswith("at least actor weights 128.5 GiB")]
    assert [bar.fill for bar in bars] == ["band", "error"] * 8
    assert texts(full.scene).count("195.8 of 80") == 8
    assert any(text.startswith("local:0-7: 195.8 of 79.7 GiB (actor weights 128.5") for text in texts(full.scene))
    fits = DeviceMap(actor="0-7 fsdp", rollout="0-7 tp4").on("hgx-h100", model="shape:llama-70b")
    assert not any(isinstance(item, Rect) and item.fill == "error" for item in fits.scene.items)
    assert DeviceMap(actor="0").on("hgx-h100").held == {}


def test_control_characters_of_a_name_stay_inside() -> None:
    topology = Topology.cpu(1)
    object.__setattr__(topology, "name", "m\x1b[31m")  # whatever a constructor lets through
    assert "\x1b" not in str(DeviceMap(actor="cpu:0").on(topology))
