"""Several machines as one topology: nodes over a network."""

import re
from collections.abc import Mapping
from itertools import chain, combinations, product

from workbench.errors import ConfigError, check_kind
from workbench.topology.links import Link, LinkKind
from workbench.topology.topology import Topology, on_node

# What a device map reads as something else: "cpu:0" is a CPU slot, "share:actor" a role, "local:0" a GPU of the machine alone.
TAKEN = ("cpu", "local", "share", "http", "https")


def join(nodes: Mapping[str, Topology], gb_per_s: float, source: str = "as given") -> Topology:
    """The machines ``nodes`` (name -> topology of one node), each pair of GPUs of different nodes linked over the network.

    ``gb_per_s``: what two such GPUs have between them, one direction, in GB/s; ``source``: where that number comes from. Warnings
    keep their node's name; the whole is complete where every part is. CPU slots are joined as GPUs are. Raises ConfigError where a
    name is no node's name, a topology has several nodes or none, or the speed is no speed.
    """
    check_kind("join: nodes", nodes, Mapping, "{'node1': topology, 'node2': topology}")
    check_kind("join: gb_per_s", gb_per_s, float, "GB/s a GPU in one direction, such as 25")
    check_kind("join: source", source, str, "where the speed comes from, such as '8 x 200 Gb/s InfiniBand'")
    if gb_per_s <= 0:
        raise ConfigError(f"join(gb_per_s={gb_per_s})", "over such a network nothing arrives", "give GB/s a GPU, such as 25")
    if not nodes:
        raise ConfigError("join({})", "there is nothing to join", "give {'node1': topology, 'node2': topology}")
    for name, topology in nodes.items():
        _check(name, topology)
    parts = [on_node(topology, name) for name, topology in nodes.items()]
    return Topology(
        name=" + ".join(nodes) if len(nodes) <= 4 else f"{len(nodes)} nodes",
        gpus=tuple(gpu for part in parts for gpu in part.gpus),
        links=tuple(chain.from_iterable(part.links for part in parts)) + _network(parts, gb_per_s, source),
        nics=tuple(nic for part in parts for nic in part.nics),
        nic_links=tuple(link for part in parts for link in part.nic_links),
        complete=all(part.complete for part in parts),
        warnings=tuple(f"{name}: {warning}" for name, topology in nodes.items() for warning in topology.warnings),
    )


def _network(parts: list[Topology], gb_per_s: float, source: str) -> tuple[Link, ...]:
    return tuple(
        Link(a, b, LinkKind.NETWORK.value, float(gb_per_s), source)
        for one, other in combinations(parts, 2)
        for a, b in product(one.ids, other.ids)
    )


def _check(name: str, topology: Topology) -> None:
    asked = f"join: node {name!r}"
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][\w.-]*", name, re.ASCII):
        raise ConfigError(asked, "a node's name is a letter, then letters, digits, '.', '_' and '-'", "write 'node1'")
    if name.lower() in TAKEN:
        raise ConfigError(asked, f"a device map reads {name + ':...'!r} as something else", "write 'node1'")
    if not isinstance(topology, Topology):
        raise ConfigError(asked, f"that is a {type(topology).__name__}, no topology", "give what detect, parse, preset or cpu made")
    if len(topology.nodes) != 1:
        found = f"it has the nodes {', '.join(topology.nodes[:4])} itself" if topology.nodes else "it has no devices"
        raise ConfigError(asked, found, "join machines of one node each, all in one call")
