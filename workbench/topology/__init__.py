"""What the machine is: GPUs, what lies between them, NUMA nodes, network cards."""

from workbench.topology.devices import GPU, NIC
from workbench.topology.links import Link, LinkKind
from workbench.topology.topology import Path, Topology

__all__ = ["GPU", "NIC", "Link", "LinkKind", "Path", "Topology"]
