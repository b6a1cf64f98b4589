import re
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workbench.errors import ConfigError
from workbench.topology import Topology, presets
from workbench.topology.presets import names, preset

# GPU rows of the captured matrix of a DGX-1 (microsoft/msccl-tools, tests/test_topologies.py), the network cards in its columns' order.
DGX1 = """
X   NV1 NV1 NV2 NV2 SYS SYS SYS PIX SYS PHB SYS
NV1 X   NV2 NV1 SYS NV2 SYS SYS PIX SYS PHB SYS
NV1 NV2 X   NV2 SYS SYS NV1 SYS PHB SYS PIX SYS
NV2 NV1 NV2 X   SYS SYS SYS NV1 PHB SYS PIX SYS
NV2 SYS SYS SYS X   NV1 NV1 NV2 SYS PIX SYS PHB
SYS NV2 SYS SYS NV1 X   NV2 NV1 SYS PIX SYS PHB
SYS SYS NV1 SYS NV1 NV2 X   NV2 SYS PHB SYS PIX
SYS SYS SYS NV1 NV2 NV1 NV2 X   SYS PHB SYS PIX
"""
EIGHT = tuple(f"local:{index}" for index in range(8))


def files() -> list[Path]:
    return sorted((Path(presets.__file__).parent / "machines").glob("*.yaml"))


def test_all_that_are_promised_are_there():
    promised = "dgx1-v100 dgx-a100 hgx-h100 hgx-h200 gb200-nvl4 rtx4090-8 l40s-4 rtx3090-2-bridge mi300x-8"
    assert set(names()) == set(promised.split())


def test_dgx1_is_the_captured_matrix():
    topology = preset("dgx1-v100")
    cells = [line.split() for line in DGX1.strip().splitlines()]
    found = [[topology.link(a, b).name if a != b else "X" for b in range(8)] for a in range(8)]
    assert found == [row[:8] for row in cells]
    nics = {(link.a, link.b): link.name for link in topology.nic_links}
    assert [nic.name for nic in topology.nics] == ["mlx5_0", "mlx5_2", "mlx5_1", "mlx5_3"]  # the order of that matrix
    assert [[nics[gpu.id, nic.id] for nic in topology.nics] for gpu in topology.gpus] == [row[8:] for row in cells]


def test_dgx1_is_one_island_but_not_all_to_all():
    topology = preset("dgx1-v100")
    assert topology.islands == (EIGHT,)
    across = tuple((f"local:{index}", f"local:{index + 4}") for index in range(4))
    assert set(topology.cliques) == {EIGHT[:4], EIGHT[4:], *across}
    lanes = [sum(link.lanes for link in topology.links if gpu in (link.a, link.b) and link.kind.is_fabric) for gpu in topology.ids]
    assert lanes == [6] * 8  # as many NVLinks as a V100 has
    assert topology.bandwidth(0, 3) == 50.0  # two links of 25 GB/s


@pytest.mark.parametrize(
    ("name", "count", "link", "speed"),
    [
        ("dgx-a100", 8, "NV12", 300.0),
        ("hgx-h100", 8, "NV18", 450.0),
        ("hgx-h200", 8, "NV18", 450.0),
        ("gb200-nvl4", 4, "NV6", 300.0),
        ("rtx3090-2-bridge", 2, "NV4", 56.2),
        ("mi300x-8", 8, "XGMI", 48.0),
    ],
)
def test_machines_that_are_one_clique(name, count, link, speed):
    topology = preset(name)
    assert topology.cliques == (topology.ids,) == topology.islands
    assert len(topology.gpus) == count
    assert {(found.name, found.gb_per_s) for found in topology.links} == {(link, speed)}


def test_machines_without_a_fabric():
    l40s, rtx4090 = preset("l40s-4"), preset("rtx4090-8")
    assert [(link.a[-1] + link.b[-1], link.name) for link in l40s.links if link.name != "SYS"] == [("01", "NODE"), ("23", "NODE")]
    assert {link.name for link in rtx4090.links} == {"SYS"}
    assert all(link.p2p is False for link in rtx4090.links)
    assert len(l40s.islands) == 4
    assert len(rtx4090.islands) == 8


def test_dgx_a100_has_two_cards_near_each_pair():
    topology = preset("dgx-a100")
    assert [gpu.numa for gpu in topology.gpus] == [3, 3, 1, 1, 7, 7, 5, 5]
    assert topology.gpu(4).cpus == "112-127,240-255"
    near = {(link.a, link.b) for link in topology.nic_links if link.name == "PXB"}
    assert {nic for gpu, nic in near if gpu == "local:5"} == {"local:mlx5_6", "local:mlx5_7"}
    assert len(near) == 16


@pytest.mark.parametrize("name", names())
def test_every_machine_is_whole(name):
    topology = preset(name)
    count = len(topology.gpus)
    assert len(topology.links) == count * (count - 1) // 2  # every pair, once
    assert len(topology.nic_links) == count * len(topology.nics)
    assert all(link.gb_per_s and link.source for link in topology.links)
    assert all(topology.link(link.b, link.a) is link for link in topology.links)
    assert all(gpu.memory_gib > 20 and gpu.name and gpu.numa is not None for gpu in topology.gpus)
    assert topology.complete
    assert topology.name == name


@pytest.mark.parametrize("path", files(), ids=lambda path: path.stem)
def test_every_file_says_where_it_comes_from(path):
    machine = yaml.safe_load(path.read_text())
    assert len(machine["source"]) >= 2
    assert machine["title"]
    assert machine["network"]["gb_per_s"] > 0
    assert machine["network"]["source"]
    assert set(machine.get("cpus", {})) <= set(machine["numa"])
    assert not re.search(r"/(work|tmp|home)/", path.read_text())


def test_several_over_the_machines_own_network():
    topology = preset("2xdgx-a100")
    assert topology.nodes == ("node1", "node2")
    assert topology.islands == (tuple(f"node1:{i}" for i in range(8)), tuple(f"node2:{i}" for i in range(8)))
    link = topology.link("node1:0", "node2:7")
    assert (link.name, link.gb_per_s) == ("NET", 25.0)  # 200 Gb/s
    assert "200 Gb/s" in link.source
    assert len(topology.links) == 2 * 28 + 64
    assert topology.link("node2:0", "node2:7").name == "NV12"
    assert topology.name == "2xdgx-a100"


def test_several_over_a_given_network():
    assert Topology.preset("3xl40s-4", network_gb_per_s=1.25).bandwidth("node1:0", "node3:3") == 1.25
    assert preset(" 2xDGX-A100 ").nodes == ("node1", "node2")
    assert preset("1xl40s-4").nodes == ("node1",)


def test_sixty_four_machines_are_the_most():
    assert len(preset("64xl40s-4").gpus) == 256
    for name in ("0xdgx-a100", "65xdgx-a100", f"{'9' * 5000}xdgx-a100"):
        with pytest.raises(ConfigError, match="takes 1 to 64 machines"):
            preset(name)


@pytest.mark.parametrize(
    ("name", "near"),
    [("dgx-a10", "'dgx-a100'"), ("a100", "'dgx-a100'"), ("dgx1", "'dgx1-v100'"), ("2xhgx_h100", "'2xhgx-h100'")],
)
def test_an_unknown_name_gets_the_nearest(name, near):
    with pytest.raises(ConfigError, match=f"(?s)known machines are dgx-a100, dgx1-v100.*write {near}"):
        preset(name)


def test_what_else_is_refused():
    with pytest.raises(ConfigError, match="one machine has no network"):
        preset("dgx-a100", network_gb_per_s=25)
    with pytest.raises(ConfigError, match="gb_per_s=-1"):
        preset("2xdgx-a100", network_gb_per_s=-1)
    with pytest.raises(ConfigError, match="gb_per_s='fast'"):
        preset("2xdgx-a100", network_gb_per_s="fast")
    with pytest.raises(ConfigError, match="preset=3"):
        preset(3)


@given(st.one_of(st.text(), st.from_regex(r"\d+x.*"), st.sampled_from(["../machines/dgx-a100", "dgx-a100.yaml", "2x2xdgx-a100", "\0"])))
def test_no_text_raises_anything_else(text):
    with suppress(ConfigError):
        preset(text)
