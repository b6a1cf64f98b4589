import time
from dataclasses import replace

import pytest

from workbench.topology import GPU, NIC, Link, Topology
from workbench.topology.presets import names, preset
from workbench.topology.table import positions, table
from workbench.topology.topology import connect


def test_a_cube_mesh_in_words():
    text = table(preset("dgx1-v100"))
    assert "one island of 8, not all to all: the largest cliques are 0-3 and 4-7" in text
    assert "local:4  NV2  SYS  SYS  SYS    .  NV1  NV1  NV2" in text
    assert "local:4  Tesla V100-SXM2-32GB  32.0 GiB  1     20-39,60-79" in text
    assert "  2-3: mlx5_1 (PIX)" in text
    assert str(preset("dgx1-v100")) == text


def test_all_to_all_in_words():
    assert "one island of 8, all to all: 0-7" in table(preset("hgx-h100"))


def test_islands_of_a_part():
    gpus = tuple(GPU(index) for index in range(5))
    names = {(f"local:{a}", f"local:{b}"): "SYS" for a in range(5) for b in range(a)}
    names |= {("local:1", "local:0"): "NV2", ("local:2", "local:1"): "NV2", ("local:4", "local:3"): "PHB"}
    text = table(Topology("odd", gpus, connect(gpus, names)))
    assert "island of 3 (0-2), not all to all: the largest cliques are 0-1 and 1-2" in text
    assert "on their own: 3-4" in text
    assert "local:0    .  NV2  SYS  SYS  SYS" in text


def test_an_island_of_which_a_link_is_not_known():
    """Then it isn't said not to be all to all."""
    gpus = tuple(GPU(index) for index in range(4))
    names = {("local:0", "local:1"): "NV2", ("local:1", "local:2"): "NV2", ("local:0", "local:3"): "SYS"}
    text = table(Topology("cut", gpus, connect(gpus, names)))
    assert "island of 3: 0-2" in text
    assert "not known whether linked with one another: 0-3" in text
    assert "not all to all" not in text


def test_without_a_fabric():
    text = table(preset("rtx4090-8"))
    assert "no NVLink and no XGMI: each GPU is an island of its own" in text
    assert "no peer-to-peer access between any two GPUs" in text
    assert "  0-5,7: NIC0 and NIC1 (SYS)\n  6: NIC0 and NIC1 (PHB)" in text


def test_several_nodes():
    lines = table(preset("2xdgx-a100")).splitlines()
    assert lines[0] == "2xdgx-a100: 16 GPUs on 2 nodes"
    (head,) = [number for number, line in enumerate(lines) if line.split() == ["node1", "node2"]]
    column = lines[head].index("node2") - 1
    row = next(line for line in lines[head + 2 :] if line.startswith("node1:0"))
    assert row[column:].split() == ["NET"] * 8
    assert "island of 8, all to all: node2:0-7" in lines
    assert "between nodes, 25 GB/s a GPU: 8 x 200 Gb/s InfiniBand for 8 GPUs (NVIDIA DGX A100 data sheet)" in lines


def test_columns_of_which_nothing_is_known_are_left_out():
    assert table(Topology.cpu(2)) == (
        "cpu, 2 slots: 2 CPU slots, each stands for a GPU\n\ndevice  name\ncpu:0   CPU slot\ncpu:1   CPU slot"
    )
    assert table(Topology("nothing", ())) == "nothing: 0 GPUs\n\ndevice"
    assert table(Topology("one", (GPU(0),))) == "one: 1 GPU\n\ndevice\nlocal:0"


def test_what_is_missing_is_said_last():
    topology = replace(preset("l40s-4"), complete=False, warnings=("the row of GPU3 is cut off " * 8,))
    lines = table(topology).splitlines()
    assert lines[0] == "l40s-4: 4 GPUs (incomplete)"
    assert lines[-3].startswith("warning: the row of GPU3")
    assert all(len(line) <= 110 for line in lines)


def test_a_card_is_called_by_both_names():
    topology = Topology("x", (GPU(0),), nics=(NIC("NIC0", device="mlx5_3"),), nic_links=(Link("local:0", "local:NIC0", "PIX"),))
    assert "  0: NIC0 = mlx5_3 (PIX)" in table(topology)


@pytest.mark.parametrize("name", [*names(), *(f"2x{name}" for name in names())])
def test_no_line_is_too_wide(name):
    assert max(map(len, table(preset(name)).splitlines())) <= 110


def test_strange_names_break_nothing():
    gpus = tuple(GPU(index, name="<b>" + "n" * 500, cpus="0," * 500, numa=tuple(range(50)), mig=True) for index in range(8))
    text = table(Topology("t " * 90, gpus, connect(gpus, {("local:0", "local:1"): "NV999"})))
    assert max(map(len, text.splitlines())) <= 110
    assert text.splitlines()[0].endswith("8 GPUs")


def test_many_machines_are_told_shortly_and_soon():
    topology = preset("64xdgx-a100")
    begin = time.process_time()
    lines = table(topology).splitlines()
    assert time.process_time() - begin < 2
    assert "... and 48 more islands" in lines
    assert len(lines) < 512 + 40


def test_positions():
    topology = preset("2xl40s-4")
    assert positions(topology, ["node2:1", "node1:0", "node1:1", "node1:3"]) == "node1:0-1,node1:3,node2:1"
    assert positions(preset("l40s-4"), ["local:0", "local:2", "local:3"]) == "0,2-3"
    assert positions(Topology.cpu(3), ["cpu:0", "cpu:1"]) == "cpu:0-1"
