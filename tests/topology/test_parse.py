"""Matrices as people paste them: 42 real ones and a dozen odder ones, the same in other clothes, and text that is none."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.topology import LinkKind, Topology

DATA = Path(__file__).parent / "data"  # index.tsv names the sources; more/expected.json those of the others
EXPECTED = json.loads((DATA / "expected.json").read_text())
MORE = {f"more/{name}": case for name, case in json.loads((DATA / "more/expected.json").read_text()).items()}
TEXTS = {name: (DATA / name).read_bytes().decode() for name in (*EXPECTED, *MORE)}
NVIDIA = [name for name in EXPECTED if "amd" not in name]


def links(topology: Topology) -> dict[tuple[str, str], str]:
    return {(link.a, link.b): link.name for link in topology.links}


def numa(topology: Topology) -> dict[str, object]:
    return {id: node for id, node in topology.numa.items() if node is not None}


def check(name: str, expected: dict) -> Topology:
    topology = Topology.parse(TEXTS[name])
    assert [gpu.index for gpu in topology.gpus] == list(range(expected["gpus"]))
    if expected["islands"] is not None:
        assert [[topology.gpu(id).index for id in island] for island in topology.islands] == expected["islands"]
    if expected["numa"] is not None:
        assert numa(topology) == {f"local:{index}": node for index, node in expected["numa"].items()}
    assert topology.complete is not expected["truncated"]
    assert topology.complete or topology.warnings
    return topology


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_machine(name):
    check(name, EXPECTED[name])


@pytest.mark.parametrize("name", MORE)
def test_an_odder_one(name):
    topology = check(name, MORE[name])
    for pair, link in MORE[name].get("links", {}).items():
        assert topology.link(*pair.split("-")).name == link


def test_a_cube_mesh_link_by_link():
    topology = Topology.parse(TEXTS["01_dgx1-v100-8gpu-mlx.txt"])
    assert [topology.link(0, other).name for other in range(1, 8)] == ["NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS"]
    assert topology.link(7, 3).lanes == 1
    assert topology.link(2, 1).kind is LinkKind.NVLINK
    assert topology.gpu(5).cpus == "20-39,60-79"


def test_numa_nodes_of_every_kind():
    assert set(Topology.parse(TEXTS["05_v100-8gpu-vm-phb-numa-range.txt"]).numa.values()) == {(0, 1)}
    gb200 = Topology.parse(TEXTS["38_gb200-4gpu-numa-lists-gpu-numa-id.txt"])
    assert [gpu.numa for gpu in gb200.gpus] == [0, 0, 1, None]  # the nodes behind the first are the GPUs' own memory
    slurm = Topology.parse(TEXTS["23_slurm-4xnv4-blank-cpu-affinity.txt"])
    assert [(gpu.cpus, gpu.numa) for gpu in slurm.gpus] == [("0", 0), ("0", 0), (None, 1), (None, 1)]


@pytest.mark.parametrize(
    ("tail", "cpus", "node"),
    [
        ("\t0-15\t0\t\tN/A", "0-15", 0),
        ("\t\t1\t\tN/A", None, 1),  # a job without CPUs near it
        ("\t0-15\t\t\tN/A", "0-15", None),
        ("\t0-15\tN/A\t\tN/A", "0-15", None),
        ("\t0-15\t0,3-5\t\t2", "0-15", 0),
        ("\t0-15\t0,2\t\tN/A", "0-15", (0, 2)),
        ("\t\t0-15\t0\t\tN/A", "0-15", 0),  # a tab too many
        ("  0-15  1  N/A", "0-15", 1),
        ("  0-15  N/A", "0-15", None),
        ("  5", None, None),  # CPU or NUMA node?
        ("0-15\t1\t\tN/A", "0-15", 1),  # a tab lost
    ],
)
def test_what_stands_behind_the_cells(tail, cpus, node):
    header = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n"
    topology = Topology.parse(f"{header}GPU0\t X \tNODE{tail}\nGPU1\tNODE\t X \t16-31\t0\t\tN/A\n")
    assert (topology.gpu(0).cpus, topology.gpu(0).numa) == (cpus, node)
    assert topology.gpu(1).numa == 0


@pytest.mark.parametrize(
    ("glued", "lanes", "cpus"),
    [("NV448-63", 4, "48-63"), ("NV120-15", 12, "0-15"), ("NV1816-31", 18, "16-31"), ("NV10-9,20-29", 1, "0-9,20-29")],
)
def test_lanes_glued_to_the_cpus(glued, lanes, cpus):
    topology = Topology.parse(f"GPU0 GPU1 CPU Affinity NUMA Affinity\nGPU0 X {glued} 0\nGPU1 NV{lanes} X 0-63 1\n")
    assert topology.link(0, 1).lanes == lanes
    assert (topology.gpu(0).cpus, topology.gpu(0).numa) == (cpus, 0)


def test_network_cards():
    topology = Topology.parse(TEXTS["51_2xv100-sxm2-sys-nic-legend-rocep.txt"])
    assert [(nic.name, nic.device) for nic in topology.nics][:2] == [("NIC0", "rocep4s0f0"), ("NIC1", "rocep4s0f1")]
    assert {(link.a, link.b): link.name for link in topology.nic_links}["local:0", "local:NIC2"] == "SYS"
    assert len(topology.nic_links) == 2 * 4 + 6
    assert Topology.parse(TEXTS["10_dgx-a100-8gpu-12mlx-nps4.txt"]).nics[0].device == "mlx5_0"


def test_the_matrix_of_peers_is_another_matter():
    text = TEXTS["29_2x5090-tab-with-p2p-matrix.txt"]
    assert (Topology.parse(text).link(0, 1).name, Topology.parse(text).link(0, 1).p2p) == ("PHB", False)
    assert Topology.parse(text.replace("GNS", "OK")).link(0, 1).p2p is True
    assert Topology.parse(text.replace("GNS", "U")).link(0, 1).p2p is None
    atomics = "$ nvidia-smi topo -p2p a\n \tGPU0\tGPU1\t\n GPU0\tX\tNS\t\n GPU1\tNS\tX\t\n"
    assert Topology.parse(text.replace("GNS", "OK") + atomics).link(0, 1).p2p is True


def test_names_come_from_a_list_in_the_same_text():
    listed = "GPU 0: NVIDIA H200 (UUID: GPU-11)\n  MIG 1g.18gb Device 0: (UUID: MIG-1)\nGPU 1: NVIDIA H200 (UUID: GPU-22)\n"
    topology = Topology.parse(listed + TEXTS["69_2xh200-vm-nv18-ansi.txt"])
    assert [(gpu.name, gpu.uuid) for gpu in topology.gpus] == [("NVIDIA H200", "GPU-11"), ("NVIDIA H200", "GPU-22")]
    assert topology.bandwidth(0, 1) == 450.0
    assert "MIG slices" in topology.warnings[-1]


CLOTHES: dict[str, Callable[[str], str]] = {
    "shell comment": lambda s: re.sub("^", "# ", s, flags=re.M),
    "quoted": lambda s: re.sub("^", "> ", s, flags=re.M),
    "source comment": lambda s: re.sub("^", "    // ", s, flags=re.M),
    "bar": lambda s: re.sub("^", "│ ", s, flags=re.M),
    "pod log": lambda s: re.sub("^", "2026-01-01T00:00:00.123Z stdout F ", s, flags=re.M),
    "worker": lambda s: re.sub("^", "(worker pid=12, ip=10.0.0.1) ", s, flags=re.M),
    "srun --label": lambda s: re.sub("^", "0: ", s, flags=re.M),
    "grep": lambda s: re.sub("^", "topo.txt:", s, flags=re.M),
    "expanded": lambda s: s.expandtabs(8),
    "collapsed": lambda s: re.sub("[ \t]+", " ", s),
    "CRLF": lambda s: s.replace("\n", "\r\n"),
    "fenced": lambda s: f"```\nroot@host:~# nvidia-smi topo -m\n{s}\n```\n",
    "stripped": lambda s: "\n".join(line.strip() for line in s.strip().split("\n")),
    "no-break blanks": lambda s: s.replace(" ", "\u00a0"),
    "blank lines": lambda s: s.replace("\n", "\n\n"),
    "coloured": lambda s: re.sub(r"(NV\d+|XGMI)", "\x1b[32m\\1\x1b[0m", s),
    "escape lost": lambda s: s.replace("\x1b", "").replace("GPU0", "[4mGPU0", 1),
    "JSON": json.dumps,
    "repr": repr,
    "twice": lambda s: f"{s}\n\n{s}",
}
NVIDIA_CLOTHES: dict[str, Callable[[str], str]] = {
    "Markdown table": lambda s: "\n".join(f"| {line.replace(chr(9), ' | ')} |" if "\t" in line else line for line in s.split("\n")),
    "glued cells": lambda s: re.sub(r"(NV\d+|SYS|NODE|PHB|PXB|PIX|X)[ \t]+(?=NV|SYS|NODE|PHB|PXB|PIX|X)", r"\1", s),
    "glued labels": lambda s: re.sub(r"^(GPU\d+)[ \t]+(?=X|NV|SYS|NODE|PHB|PXB|PIX)", r"\1", s, flags=re.M),
    "glued header": lambda s: re.sub(r"(GPU\d|NIC\d+|Affinity)[ \t]+(?=GPU|NIC|CPU|NUMA)", r"\1", s),
    "glued CPUs": lambda s: re.sub(r"(NV\d+|SYS|NODE|PHB|PXB|PIX|X)[ \t]+(?=\d+-)", r"\1", s),
}


@pytest.mark.parametrize("clothes", [*CLOTHES, *NVIDIA_CLOTHES])
def test_the_same_machine_in_other_clothes(clothes):
    """Links are the same; a NUMA node may be lost with the blanks that told its place, and is never another one."""
    change = {**CLOTHES, **NVIDIA_CLOTHES}[clothes]
    for name in EXPECTED if clothes in CLOTHES else NVIDIA:
        whole, other = Topology.parse(TEXTS[name]), Topology.parse(change(TEXTS[name]))
        assert (other.ids, links(other), other.complete) == (whole.ids, links(whole), whole.complete), name
        assert numa(other).items() <= numa(whole).items(), name


@pytest.mark.parametrize("name", [name for name in NVIDIA if not EXPECTED[name]["truncated"]])
def test_without_a_header_the_own_x_tells(name):
    header = next(line for line in TEXTS[name].split("\n") if "GPU0" in line and "CPU" in line)
    whole, other = Topology.parse(TEXTS[name]), Topology.parse(TEXTS[name].replace(header, ""))
    assert links(other) == links(whole)
    assert "no header" in " ".join(other.warnings)


def test_columns_are_found_by_name():
    text = "\tNIC0\tGPU1\tGPU0\nNIC0\tX\tPIX\tSYS\nGPU1\tPIX\tX\tNV2\nGPU0\tSYS\tNV2\tX\n"
    topology = Topology.parse(text)
    assert topology.complete
    assert links(topology) == {("local:0", "local:1"): "NV2"}
    assert {(link.a, link.name) for link in topology.nic_links} == {("local:0", "SYS"), ("local:1", "PIX")}


def test_rows_that_do_not_fit_are_noticed():
    turned = Topology.parse("\tGPU0\tGPU1\nGPU0\tNV2\tX\nGPU1\tX\tNV2\n")
    assert not turned.complete
    assert "the header does not fit the rows" in " ".join(turned.warnings)
    lost_cell = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV1\tNV1\nGPU1\tX\tNV1\nGPU2\tNV1\tNV1\tX\n"
    assert "GPU1: the row does not fit the header" in " ".join(Topology.parse(lost_cell).warnings)


def test_what_is_missing_is_said():
    topology = Topology.parse(TEXTS["36_k8s-8gpu-trailing-blanks-truncated.txt"])
    assert topology.warnings[:2] == ("GPU5, GPU6, GPU7, mlx4_0: rows missing", "links between GPU5, GPU6, GPU7 are not known")
    assert topology.link(5, 6) is None
    assert topology.link(4, 5).name == "PIX"


def test_a_matrix_that_contradicts_itself():
    text = TEXTS["55_bash-comment-4xa100-collapsed-spaces.txt"].replace("NV4     X     NV4    NV4", "NV4     X     SYS    NV4")
    topology = Topology.parse(text)
    assert topology.link(1, 2) is None
    assert not topology.complete
    assert "GPU1-GPU2 (NV4 or SYS)" in topology.warnings[0]
    assert topology.is_clique(["local:0", "local:1", "local:3"])


def test_two_machines_are_refused():
    with pytest.raises(ConfigError, match=r"2 matrices that differ, of several machines perhaps\n  fix: .*Topology.join"):
        Topology.parse(TEXTS["20_2x3090-nv4-bridge.txt"] + TEXTS["17_2xl4-numa-reversed.txt"])


def test_rocm_over_pcie():
    pcie = TEXTS["63_amd-rocm-smi-4gcd-xgmi.txt"].replace("XGMI", "PCIE")
    assert links(Topology.parse(pcie))["local:0", "local:1"] == "SYS"  # two NUMA nodes
    one_node = re.sub(r"(Numa \w+): \d", r"\1: 0", pcie)
    assert links(Topology.parse(one_node))["local:0", "local:1"] == "PHB"
    assert Topology.parse(re.sub(r"(Numa \w+): \d", r"\1: -1", pcie)).gpu(0).numa is None
    unknown = Topology.parse(pcie[pcie.index("====", pcie.index("Hops")) :].split("=== Numa")[0])
    assert "taken as SYS" in unknown.warnings[-1]


def test_amd_smi():
    topology = Topology.parse(TEXTS["more/amd_smi_2gpu_pcie.txt"])
    assert [gpu.pci_bus for gpu in topology.gpus] == ["0000:03:00.0", "0000:0c:00.0"]
    assert topology.link(0, 1).p2p is False


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the text is empty"),
        (" \n\t ", "the text is empty"),
        ("bash: nvidia-smi: command not found", "the command was not found"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "nvidia-smi failed"),
        ("| NVIDIA-SMI 580.126.20     Driver Version: 580.126.20     CUDA Version: 13.0     |", "plain nvidia-smi.*\n.*topo -m"),
        ("Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n", "the legend without the matrix"),
        ("\tGPU0\tGPU1\tCPU Affinity\n", "a header, but no row"),
        (" \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n", "only which peers may read"),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)\n", "nvidia-smi -L"),
        (TEXTS["63_amd-rocm-smi-4gcd-xgmi.txt"].split("=== Link Type")[0], "without the matrix of link types"),
        ("<html><body>GPU0</body></html>", "a web page"),
        ("use GPU0 and GPU1 for the actor", "there is no matrix of GPUs in it; it begins with 'use GPU0"),
        ("x" * 4_000_001, "4,000,001 characters"),
        (" ".join(f"GPU{n}" for n in range(129)) + "\nGPU0 X SYS\n", "129 GPUs.*\n.*128 GPUs at most"),
        ("GPU00 GPU0\nGPU00 X SYS\n", "rows without a header, too few"),
        ("GPU,GPU0,GPU1\nGPU0,X,NV4\nGPU1,NV4,X\n", "separated by commas"),
        ("GPU99999999999 GPU1\nGPU99999999999 X\n", "no row of a GPU"),
    ],
)
def test_text_that_is_no_topology(text, reason):
    with pytest.raises(ConfigError, match=reason):
        Topology.parse(text)


def test_what_is_no_text():
    with pytest.raises(ConfigError, match="that is a bytes"):
        Topology.parse(b"GPU0")  # type: ignore[arg-type]
