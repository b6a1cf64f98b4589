"""What a topology refuses when it is made, and what it says of a device that nobody would name so."""

import gc
import re
import time
from itertools import combinations
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.topology import GPU, NIC, Link, Topology
from workbench.topology.topology import connect

TWO = (GPU(0), GPU(1))
ONE_LINK = (Link("local:0", "local:1", "NV4", 100.0),)
DGX = Topology.preset("dgx-a100")


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"index": -1}, "index=-1: positions begin at 0"),
        ({"index": "0"}, "index='0': that is a str"),
        ({"index": True}, "index=True: that is a bool"),
        ({"index": 0, "memory_gib": 0.0}, r"memory_gib=0.0: a GPU has more\n  fix: give GiB such as 80, or None"),
        ({"index": 0, "memory_gib": -1}, "memory_gib=-1: a GPU has more"),
        ({"index": 0, "memory_gib": float("nan")}, "that is no finite number"),
        ({"index": 0, "memory_gib": "80"}, "that is a str"),
        ({"index": 0, "name": "A100\x1b[31m"}, r"name='A100\\x1b\[31m': it has characters that can't be printed\n  fix: leave them out"),
        ({"index": 0, "name": "A100\0"}, "can't be printed"),
        ({"index": 0, "name": "A100\ud800"}, r"name='A100\\ud800': it has characters that can't be printed"),
        ({"index": 0, "cpus": "0-1\n"}, "cpus='0-1.*can't be printed"),
        ({"index": 0, "node": "node\x07"}, "node=.*can't be printed"),
        ({"index": 0, "node": ""}, "node='': a node's name is a letter"),
        ({"index": 0, "node": "a:b"}, "node='a:b': a node's name is a letter.*\n  fix: write 'node1'"),
        ({"index": 0, "node": "ünode"}, "a node's name is a letter"),
        ({"index": 0, "node": None}, "node=None: that is a NoneType"),
        ({"index": 0, "numa": "0"}, "numa='0': that is no NUMA node"),
        ({"index": 0, "numa": (0, "1")}, "that is no NUMA node"),
        ({"index": 0, "kind": "tpu"}, "kind='tpu': a device is a GPU or a CPU slot"),
    ],
)
def test_a_gpu_that_is_none(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        GPU(**fields)


@pytest.mark.parametrize(("name", "node"), [("mlx5_0\n", "local"), ("mlx5_0", "a b"), (0, "local")])
def test_a_card_that_is_none(name: Any, node: str) -> None:
    with pytest.raises(ConfigError, match=r"can't be printed|a node's name is|that is a int"):
        NIC(name, node)


@pytest.mark.parametrize(
    ("values", "match"),
    [
        (
            ("local:0", "local:1", "NVX"),
            r"link 'NVX': that is no class of a link\n  fix: write NV12 for 12 NVLinks, or one of XGMI, C2C, PIX",
        ),
        (("local:0", "local:1", "NV"), "link 'NV': that is no class"),
        (("local:0", "local:1", "NV" + "9" * 5000), "that is no class"),
        (("local:0", "local:1", ""), "that is no class"),
        (("local:0", "local:1", 4), "link=4: that is a int"),
        ((0, 1, "NV4"), "link=0: that is a int"),
        (("local:0", "local:1", "NV4", 0.0), "gb_per_s=0.0: over such a link nothing arrives"),
        (("local:0", "local:1", "NV4", "25"), "gb_per_s='25': that is a str"),
    ],
)
def test_a_link_that_is_none(values: tuple[Any, ...], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Link(*values)


@pytest.mark.parametrize(
    ("parts", "match"),
    [
        ({"name": "a\x1b[2J"}, "topology: name=.*can't be printed"),
        ({"name": None}, "topology: name=None: that is a NoneType"),
        ({"gpus": [GPU(0)]}, "topology: gpus: that is a list\n  fix: give a tuple of GPU"),
        ({"gpus": ("0",)}, "topology: gpus: a str is in it"),
        ({"gpus": (GPU(0), GPU(1), GPU(0))}, "topology: device 'local:0': two devices have that name"),
        ({"nics": (NIC("NIC0"), NIC("NIC0"))}, "topology: device 'local:NIC0': two devices have that name"),
        ({"nics": (NIC("0"),)}, "topology: device 'local:0': two devices have that name"),
        ({"links": (Link("local:0", "local:9", "NV4"),)}, "link 'local:0' - 'local:9': 'local:9' is no GPU of this topology"),
        ({"links": (Link("x", "local:1", "NV4"),)}, "'x' is no GPU of this topology"),
        ({"links": (Link("local:0", "local:0", "NV4"),)}, "it leads from a device to itself"),
        ({"links": (*ONE_LINK, Link("local:1", "local:0", "SYS"))}, "link 'local:1' - 'local:0': it is there already"),
        ({"nic_links": (Link("local:0", "local:NIC0", "PIX"),)}, "'local:NIC0' is no GPU or network card of this topology"),
    ],
)
def test_parts_that_do_not_belong_together(parts: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Topology(**({"name": "machine", "gpus": TWO} | parts))


def test_parts_that_do() -> None:
    machine = Topology("machine", TWO, ONE_LINK, (NIC("NIC0"),), (Link("local:0", "local:NIC0", "PIX"),))
    assert machine.is_clique([0, 1])
    assert Topology("nothing", ()).ids == ()


def test_many_links_are_checked_in_little_time() -> None:
    gpus = tuple(GPU(index) for index in range(256))
    links = connect(gpus, {(a.id, b.id): "SYS" for a, b in combinations(gpus, 2)})
    gc.collect()
    gc.freeze()  # what thousands of tests before have left is not to be looked through meanwhile
    try:
        began = time.perf_counter()
        Topology("many", gpus, links)
        assert time.perf_counter() - began < 0.5
    finally:
        gc.unfreeze()


@pytest.mark.parametrize(
    "device", ["9" * 5000, pytest.param(10**5000, id="large"), -1, 8, "8", "local:8", "", "²", "١", None, b"0", True, 0.0, (), [0], "a\x1b"]
)
def test_a_device_that_is_not_there(device: Any) -> None:
    assert DGX.find(device) is None
    with pytest.raises(ConfigError, match=r"^device .*has no such device\n  fix: the devices are local:0, local:1") as caught:
        DGX.gpu(device)
    assert len(str(caught.value)) < 250
    with pytest.raises(ConfigError, match="no such device"):
        Topology("nothing", ()).gpu(device)


def test_a_device_by_name_and_by_number() -> None:
    assert DGX.gpu("local:3") is DGX.gpu("3") is DGX.gpu(3)
    with pytest.raises(ConfigError, match=re.escape("device 3: 2xdgx-a100 has no such device")):
        Topology.preset("2xdgx-a100").gpu(3)


@pytest.mark.parametrize("devices", ["local:0", 5, None, b"01"[0]])
def test_what_is_no_list_of_devices(devices: Any) -> None:
    with pytest.raises(ConfigError, match=r"^is_clique\(.*that is no list of devices\n  fix: give \[0, 1\]"):
        DGX.is_clique(devices)


def test_cliques_of_devices_however_they_are_named() -> None:
    assert DGX.is_clique(["0", 1, "local:2"])
    assert DGX.is_clique([0, "local:0"])  # one device
    assert DGX.is_clique([])
    with pytest.raises(ConfigError, match="no such device"):
        DGX.is_clique([0, 99])
