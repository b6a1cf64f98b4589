"""The machine with room for what changes."""

import pytest

import workbench as wb
from workbench.topology.drawing.scene import Rect, Text
from workbench.views.heads import memory_words, with_heads
from workbench.views.loads import Use
from workbench.views.machine import HEAD, bare, machine

from . import made

PRESETS = ("dgx-a100", "dgx1-v100", "hgx-h200", "gb200-nvl4", "l40s-4", "mi300x-8", "rtx3090-2-bridge", "rtx4090-8", "2xhgx-h100")


@pytest.mark.parametrize("name", PRESETS)
def test_every_device_has_a_tile_with_an_empty_head(name: str) -> None:
    topology = wb.Topology.preset(name)
    placement = {"actor": list(topology.ids), "rollout": list(topology.ids), "reward": ["cpu:0"]}
    found = machine(topology, placement)
    assert [tile.device for tile in found.tiles] == list(topology.ids)
    assert len(found.places) == 2 * len(topology.ids)
    for tile in found.tiles:
        inside = [item for item in found.scene.items if isinstance(item, Text) and tile.x <= item.x <= tile.x + tile.width]
        assert not [item for item in inside if tile.y <= item.y < tile.y + HEAD]
        assert [place.y for place in found.places if place.x == tile.x + 4 and tile.y < place.y < tile.y + 120] == [
            tile.y + 52,
            tile.y + 73,
        ]


def test_a_role_beside_the_machine_has_its_place_there() -> None:
    found = machine(wb.Topology.preset("l40s-4"), made.SMALL)
    words = {item.text for item in found.scene.items if isinstance(item, Text)}
    assert {"CPU of the driver", "reward", "actor", "rollout"} <= words
    assert {place.role for place in found.places} == {"actor", "rollout", "reference"}


def test_slots_of_a_cpu_are_tiles() -> None:
    found = machine(wb.Topology.cpu(2), {"actor": ["cpu:0"], "reward": ["cpu:1"]})
    assert [(tile.device, tile.name) for tile in found.tiles] == [("cpu:0", "CPU slot 0"), ("cpu:1", "CPU slot 1")]
    assert [place.role for place in found.places] == ["actor", "reward"]


def test_more_gpus_than_a_person_can_read_have_no_tiles() -> None:
    topology = wb.Topology.preset("16xhgx-h100")
    assert machine(topology, {"actor": list(topology.ids)}).tiles == ()


def test_without_a_machine_it_is_the_devices_that_the_run_names() -> None:
    assert bare(made.SMALL).ids == ("local:0", "local:1", "local:2", "local:3")
    assert bare({"actor": ["cpu:0"], "reward": ["cpu:0"]}).is_cpu
    assert len(machine(bare(made.SMALL), made.SMALL).tiles) == 4


def test_the_driver_and_a_service_are_no_devices() -> None:
    placement = {"actor": ["cpu:0"], "rollout": ["cpu:1"], "reward": ["driver:0"], "reference": []}
    assert bare(placement).ids == ("cpu:0", "cpu:1")
    words = {item.text for item in machine(bare(placement), placement).scene.items if isinstance(item, Text)}
    assert {"CPU of the driver", "reward", "service", "reference"} <= words


def test_the_static_twin_has_the_numbers_and_marks_who_works() -> None:
    found = machine(wb.Topology.preset("l40s-4"), made.SMALL)
    uses = {"local:0": Use("local:0", 0.5, 24.0, 48.0, {"actor": 12.0}), "local:1": Use("local:1", None, None, None, {}, "n/a: MIG")}
    scene = with_heads(found, uses, "a run · running", ("rollout",))
    words = [item.text for item in scene.items if isinstance(item, Text)]
    assert {"a run · running", "50%", "24.0 of 48 GiB", "GPU 0"} <= {*words}
    assert (words.count("n/a"), words.count("—"), words.count("▶")) == (2, 4, 2)
    first = found.tiles[0]
    row = [item for item in scene.items if isinstance(item, Rect) and item.y == first.y + 39 and first.x < item.x < first.x + 140]
    rail, actor, rest = row
    assert (actor.fill, rest.fill) == ("update_actor", "wire")
    assert (actor.width + 0.5, rest.width + 0.5) == (rail.width / 4, rail.width / 4)  # 12 of 48 GiB each
    assert scene.description.startswith("a run · running; actor on")


@pytest.mark.parametrize("name", PRESETS)
def test_no_word_of_a_head_leaves_its_tile(name: str) -> None:
    topology = wb.Topology.preset(name)
    found = machine(topology, {"actor": list(topology.ids)})
    uses = {device: Use(device, 1.0, 141.0, 288.0) for device in topology.ids}
    heads = with_heads(found, uses, "x").items[len(found.scene.items) :]
    for item in heads:
        if isinstance(item, Text) and item.text != "x":
            left, _, right, _ = item.box
            assert any(tile.x <= left and right <= tile.x + tile.width and tile.y <= item.y <= tile.y + HEAD for tile in found.tiles)


def test_memory_in_words() -> None:
    assert memory_words(Use("a", 0.1, 61.25, 80.0)) == ("61.2 of 80 GiB", "61/80", "61")
    assert memory_words(Use("a", 0.1, 61.25)) == ("61.2 GiB", "61 G")
    assert memory_words(Use("a", 0.1)) == ("n/a",)
