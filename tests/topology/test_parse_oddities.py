"""One lost or unknown cell, numbers that are no NUMA nodes, prose, two tools in one text; names and memory that stand beside a matrix."""

import pytest

from tests.topology.test_parse import TEXTS, links
from workbench.errors import ConfigError
from workbench.topology import Topology

HEADER = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
MATRIX = f"{HEADER}GPU0\t X \tNV12\t0-31\t0\t\tN/A\nGPU1\tNV12\t X \t0-31\t0\t\tN/A\n"


def test_a_lost_cell_loses_no_gpu():
    text = "GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X PHB 0-11 N/A\nGPU1 X 0-11 N/A\n"
    topology = Topology.parse(text)
    assert links(topology) == {("local:0", "local:1"): "PHB"}
    assert not topology.complete
    assert "GPU1: the row does not fit" in topology.warnings[0]
    only = Topology.parse("GPU0 GPU1 CPU Affinity\nGPU1 X 0-11\n")
    assert only.ids == ("local:0", "local:1")
    assert not only.complete


@pytest.mark.parametrize(("cells", "link"), [("FOO\t X ", "NV4"), ("NV4\t FOO ", "NV4"), ("9x9\t X ", "NV4")])
def test_an_unknown_word_is_one_unknown_cell(cells, link):
    topology = Topology.parse(f"{HEADER}GPU0\t X \tNV4\t0-31\t0\t\tN/A\nGPU1\t{cells}\t0-31\t1\t\tN/A\n")
    assert topology.numa["local:0"] == 0
    if "9x9" not in cells:  # what begins with a number ends the cells
        assert topology.numa["local:1"] == 1
        assert "row missing" not in " ".join(topology.warnings)
    unknown = Topology.parse(f"{HEADER}GPU0\t X \tFOO\t0-31\t0\t\tN/A\nGPU1\tFOO\t X \t0-31\t1\t\tN/A\n")
    assert unknown.warnings == ("no class of link, left out: GPU0-GPU1 (FOO)",)
    assert unknown.numa == {"local:0": 0, "local:1": 1}


def test_cpus_are_no_numa_nodes():
    text = HEADER + "".join(f"GPU{n}\tNV999\tNV999\t0-31\t0\t\tN/A\n" for n in range(2))
    assert set(Topology.parse(text).numa.values()) <= {None, 0}


@pytest.mark.parametrize("node", ["3-1", "999999", "0-4000", "0-127", "x"])
def test_a_numa_node_that_is_none(node):
    topology = Topology.parse(MATRIX.replace("\t0\t", f"\t{node}\t"))
    assert set(topology.numa.values()) == {None}
    assert not topology.complete
    assert f"NUMA node can't be read: GPU0 ({node})" in topology.warnings[0]


@pytest.mark.parametrize("text", ["GPU0 X NV4", "GPU0 X\nGPU1 X", "GPU0 X NV4 0-3 0\n", "on GPU0 X NV4\n"])
def test_prose_is_no_machine(text):
    with pytest.raises(ConfigError, match="too few to name columns"):
        Topology.parse(text)
    assert links(Topology.parse(f"{text}\n\n{MATRIX}")) == {("local:0", "local:1"): "NV12"}


def test_tabs_written_out():
    for text in (MATRIX.replace("\t", "\\t"), "log\n" + repr(MATRIX) + "\nlog\n"):
        assert Topology.parse(text) == Topology.parse(MATRIX)


def test_two_tools_in_one_text():
    with pytest.raises(ConfigError, match="of NVIDIA's and of AMD's tools"):
        Topology.parse(TEXTS["63_amd-rocm-smi-4gcd-xgmi.txt"] + MATRIX)
    assert links(Topology.parse("no XGMI here\n" + MATRIX)) == {("local:0", "local:1"): "NV12"}


TABLE = """
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
|=========================================+========================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   32C    P0             63W /  400W |    1234MiB /  81920MiB |      0%      Default |
|   1  Tesla V100-SXM2...             Off |   00000000:0B:00.0 Off |                    0 |
| N/A   32C    P0             63W /  400W |       0MiB /  16384MiB |      0%      Default |
"""
QUERY = "index, name, memory.total [MiB]\n0, NVIDIA A100-SXM4-80GB, 81920 MiB\n1, Tesla V100-SXM2, 16384 MiB\n"


@pytest.mark.parametrize(
    "beside",
    [
        TABLE,
        QUERY,
        QUERY.split("\n", 1)[1],
        QUERY.replace(" MiB\n", "\n"),
        "index, uuid, memory.total [MiB], name\n0, GPU-1, 81920 MiB, NVIDIA A100-SXM4-80GB\n1, GPU-2, 16384 MiB, Tesla V100-SXM2\n",
    ],
)
def test_names_and_memory_from_beside_the_matrix(beside):
    for text in (beside + MATRIX, MATRIX + beside):
        gpus = Topology.parse(text).gpus
        assert [(gpu.name, gpu.memory_gib) for gpu in gpus] == [("NVIDIA A100-SXM4-80GB", 80.0), ("Tesla V100-SXM2", 16.0)]


def test_memory_that_is_said_twice_or_cut():
    twice = QUERY + "index, name, memory.total [MiB]\n0, NVIDIA A100-SXM4-80GB, 40960 MiB\n"
    assert [gpu.memory_gib for gpu in Topology.parse(MATRIX + twice).gpus] == [80.0, 16.0]  # of the first the name tells
    cut = MATRIX + "index, name, memory.total [MiB]\n0, NVIDIA X1, 8192"
    assert Topology.parse(cut).gpu(0).memory_gib is None
