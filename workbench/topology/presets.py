"""Known machines, each a YAML file in ``machines/``, and several of one kind over their network.

The files are short. All of the grammar::

    title: NVIDIA DGX-1                         # for people
    gpu: Tesla V100-SXM2-32GB                   # as the driver calls it
    memory_gib: 32.0                            # GiB (2^30 bytes), as the driver reports it
    numa: [0, 0, 0, 0, 1, 1, 1, 1]              # one a GPU, so it also says how many there are
    cpus: {0: "0-19,40-59", 1: "20-39,60-79"}   # CPUs of a NUMA node; may be left out
    p2p: false                                  # whether peers may read each other; may be left out
    links: {NV2: [[0, 3], [0, 4]], SYS: rest}   # class -> groups of GPUs, in which all pairs have it
    nics: {mlx5_0: {PIX: [0, 1], SYS: rest}}    # network card -> class -> GPUs; may be left out
    network: {gb_per_s: 12.5, source: ...}      # between two such machines, a GPU, one direction, in GB/s (10^9 bytes)
    source: [...]                               # where all of this comes from

``rest`` are all that no other class names; a class alone (``links: NV12``) is short for ``{NV12: rest}``.
"""

import re
from dataclasses import replace
from difflib import get_close_matches
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from workbench.errors import ConfigError, check_kind
from workbench.topology.devices import GPU, NIC
from workbench.topology.join import join
from workbench.topology.links import Link
from workbench.topology.topology import Topology, connect

MOST_NODES = 64
_MACHINES = Path(__file__).with_name("machines")
Rule = str | dict[str, Any]


def names() -> tuple[str, ...]:
    """Names of all known machines."""
    return tuple(sorted(path.stem for path in _MACHINES.glob("*.yaml")))


def preset(name: str, network_gb_per_s: float | None = None) -> Topology:
    """A known machine ("dgx-a100"), or 1 to 64 of one kind ("2xdgx-a100") as the nodes node1, node2, ...

    ``network_gb_per_s``: between two GPUs of different nodes, one direction, in GB/s; left out, it is what the machine's own
    network cards give. Raises ConfigError where the name is unknown (it names the nearest), or the speed is no speed.
    """
    check_kind("preset", name, str, "a name such as 'dgx-a100' or '2xdgx-a100'")
    asked = f"preset {_short(name)!r}"
    several = re.fullmatch(r"([0-9]+)x(.+)", name.strip().lower(), re.DOTALL)
    kind = several[2] if several else name.strip().lower()
    if kind not in names():
        near = _nearest(_short(kind))
        fix = f"write {(several[1][:2] + 'x' if several else '') + near!r}" if near else "give one of these, or 2xNAME for two of them"
        raise ConfigError(asked, f"the known machines are {', '.join(names())}", fix)
    if several:
        return _nodes(name.strip().lower(), several[1], kind, network_gb_per_s)
    if network_gb_per_s is not None:
        raise ConfigError(f"{asked} with network_gb_per_s={network_gb_per_s!r}", "one machine has no network inside", f"write '2x{kind}'")
    return _machine(kind)


def _nodes(name: str, count: str, kind: str, gb_per_s: float | None) -> Topology:
    if len(count) > 3 or not 1 <= int(count) <= MOST_NODES:
        raise ConfigError(f"preset {_short(name)!r}", f"it takes 1 to {MOST_NODES} machines", f"write '2x{kind}'")
    network = _read(kind)["network"]
    speed, source = (network["gb_per_s"], network["source"]) if gb_per_s is None else (gb_per_s, "as given")
    joined = join({f"node{number}": _machine(kind) for number in range(1, int(count) + 1)}, speed, source)
    return replace(joined, name=name)


@cache
def _read(kind: str) -> dict[str, Any]:
    machine: dict[str, Any] = yaml.safe_load((_MACHINES / f"{kind}.yaml").read_text(encoding="utf-8"))
    return machine


@cache
def _machine(kind: str) -> Topology:
    machine = _read(kind)
    cpus = machine.get("cpus", {})
    gpus = tuple(
        GPU(index, name=machine["gpu"], memory_gib=machine["memory_gib"], numa=numa, cpus=cpus.get(numa))
        for index, numa in enumerate(machine["numa"])
    )
    nics = machine.get("nics", {})
    return Topology(
        name=kind,
        gpus=gpus,
        links=_links(machine["links"], gpus, machine.get("p2p")),
        nics=tuple(NIC(nic) for nic in nics),
        nic_links=tuple(link for nic, rule in nics.items() for link in _nic_links(NIC(nic), rule, gpus)),
    )


def _links(rule: Rule, gpus: tuple[GPU, ...], p2p: bool | None) -> tuple[Link, ...]:
    pairs = tuple(combinations(range(len(gpus)), 2))
    classes = {kind: [pair for group in groups for pair in combinations(group, 2)] for kind, groups in _groups(rule).items()}
    found = {(gpus[a].id, gpus[b].id): kind for (a, b), kind in _classes(rule, classes, pairs).items()}
    return connect(gpus, found, None if p2p is None else dict.fromkeys(found, p2p))


def _nic_links(nic: NIC, rule: Rule, gpus: tuple[GPU, ...]) -> list[Link]:
    found = _classes(rule, _groups(rule), range(len(gpus)))
    return [Link(gpus[index].id, nic.id, kind) for index, kind in sorted(found.items())]


def _groups(rule: Rule) -> dict[str, list[Any]]:
    """Class -> what the rule names; without the class of the rest."""
    return {} if isinstance(rule, str) else {kind: named for kind, named in rule.items() if named != "rest"}


def _classes(rule: Rule, named: dict[str, list[Any]], everything: Any) -> dict[Any, str]:
    """Each of ``everything`` -> its class."""
    rest = rule if isinstance(rule, str) else next((kind for kind, where in rule.items() if where == "rest"), None)
    found = dict.fromkeys(everything, rest) | {one: kind for kind, ones in named.items() for one in ones}
    return {one: kind for one, kind in found.items() if kind is not None}


def _nearest(kind: str) -> str | None:
    """The known name that ``kind`` begins, or that is most like it."""
    begun = [name for name in names() if kind and name.startswith(kind)]
    return next(iter(begun + get_close_matches(kind, names(), n=1, cutoff=0.4)), None)


def _short(text: str) -> str:
    """As an error quotes it."""
    return text if len(text) <= 60 else f"{text[:57]}..."
