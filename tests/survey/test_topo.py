"""A topology for programs."""

from workbench.survey.topo import report
from workbench.topology import Topology


def test_one_node():
    found = report(Topology.preset("l40s-4"))
    assert found.complete
    assert [(gpu.index, gpu.node, gpu.name, gpu.numa) for gpu in found.gpus][3] == (3, "local", "NVIDIA L40S", 1)
    assert found.islands == found.cliques == ((0,), (1,), (2,), (3,))
    assert found.links[:3] == ((0, 1, "NODE"), (0, 2, "SYS"), (0, 3, "SYS"))


def test_two_nodes_number_through():
    found = report(Topology.preset("2xdgx-a100"))
    assert [(gpu.index, gpu.node) for gpu in found.gpus][7:9] == [(7, "node1"), (8, "node2")]
    assert found.islands == (tuple(range(8)), tuple(range(8, 16)))
    assert (7, 8, "NET") in found.links
    assert all(a < b for a, b, _ in found.links)


def test_slots_of_the_cpu():
    found = report(Topology.cpu(slots=2))
    assert [(gpu.index, gpu.name, gpu.memory_gib, gpu.numa) for gpu in found.gpus] == [
        (0, "CPU slot", None, None),
        (1, "CPU slot", None, None),
    ]
