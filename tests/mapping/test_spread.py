"""One role's keys as one placement: each has its effect, contradictions are refused."""

import socket
from functools import partial
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.mapping.entry import GroupEntry, RoleEntry, SizesEntry
from workbench.mapping.placement import Placement
from workbench.mapping.source import Source
from workbench.mapping.spread import Group, place

AT = partial(Source("map.yaml", {}, {("actor",): 1, ("actor", "tp"): 3}).at, "actor")
GROUPS = {
    "trainers": Group(("0", "1"), GroupEntry(devices=[0, 1], layout="fsdp", inference_only=False)),
    "samplers": Group(("2", "3"), GroupEntry(devices="2-3", tp_size=2, inference_only=True)),
}
FOUR = ("0", "1", "2", "3")


def placed(sizes: SizesEntry | None = None, **keys: Any) -> Placement:
    return place(RoleEntry(**keys), AT, GROUPS, sizes or SizesEntry())


@pytest.mark.parametrize(
    ("keys", "placement"),
    [
        ({"devices": 0}, Placement(devices=("0",))),
        ({"devices": [0, "1-3"]}, Placement(devices=FOUR)),
        ({"device_group": [0, 1]}, Placement(devices=("0", "1"))),
        ({"device_group": ["node1:0"]}, Placement(devices=("node1:0",))),
        ({"device_group": "0-3"}, Placement(devices=FOUR)),
        ({"device_group": "cpu"}, Placement(devices=("cpu",))),
        ({"device_group": "trainers"}, Placement(devices=("0", "1"), layout="fsdp")),
        ({"device_group": "samplers"}, Placement(devices=("2", "3"), tp=2, inference_only=True)),
        ({"device_group": "samplers", "tp": 2, "dp": 1}, Placement(devices=("2", "3"), tp=2, dp=1, inference_only=True)),
        ({"share": "actor"}, Placement(share="actor")),
        ({"share": "ref"}, Placement(share="reference")),
        ({"url": "http://h:1"}, Placement(url="http://h:1")),
        ({"device_group": [], "service_url": "http://h:1"}, Placement(url="http://h:1")),
        ({"url": "http://h:1", "service_url": "http://h:1"}, Placement(url="http://h:1")),
        ({"devices": "0-3", "layout": "ddp"}, Placement(devices=FOUR)),
        ({"devices": "0-3", "layout": "fsdp"}, Placement(devices=FOUR, layout="fsdp")),
        ({"devices": "0-3", "layout": "tp=4"}, Placement(devices=FOUR, tp=4)),
        ({"devices": "0-3", "layout": "tp2"}, Placement(devices=FOUR, tp=2)),
        ({"devices": "0-3", "tp": 2}, Placement(devices=FOUR, tp=2)),
        ({"devices": "0-3", "tp_size": 2}, Placement(devices=FOUR, tp=2)),
        ({"devices": "0-3", "tp": 2, "tp_size": 2, "layout": "tp=2"}, Placement(devices=FOUR, tp=2)),
        ({"devices": "0-3", "dp": 4}, Placement(devices=FOUR, dp=4)),
        ({"devices": "0-3", "dp": 3}, Placement(devices=FOUR, dp=3)),  # that it is not the group a check tells
        ({"devices": "0-3", "mesh_shape": [2, 2]}, Placement(devices=FOUR, tp=2, dp=2)),
        ({"devices": "0-3", "mesh_shape": [4]}, Placement(devices=FOUR, tp=1, dp=4)),
        ({"devices": "0-3", "mesh_shape": {"tp": 2, "dp": 2}}, Placement(devices=FOUR, tp=2, dp=2)),
        ({"devices": "0-3", "mesh_shape": {"tp": 2}}, Placement(devices=FOUR, tp=2)),
        ({"devices": "0-3", "parallel_strategy": "ddp"}, Placement(devices=FOUR)),
        ({"devices": "0-3", "parallel_strategy": "FSDP"}, Placement(devices=FOUR, layout="fsdp")),
        ({"devices": "0-3", "parallel_strategy": "tensor_parallel"}, Placement(devices=FOUR, tp=4)),
        ({"devices": "0-3", "parallel_strategy": "tp", "tp_size": 2}, Placement(devices=FOUR, tp=2)),
        ({"devices": "0-3", "parallel_strategy": "tp", "mesh_shape": [2, 2]}, Placement(devices=FOUR, tp=2, dp=2)),
        ({"devices": "0-3", "parallel_strategy": "tp", "dp": 2}, Placement(devices=FOUR, tp=2, dp=2)),
        ({"devices": "0-3", "sharding_strategy": "FULL_SHARD"}, Placement(devices=FOUR, layout="fsdp")),
        ({"devices": "0-3", "sharding_strategy": "full_shard"}, Placement(devices=FOUR, layout="fsdp")),
        (
            {"devices": "0-3", "sharding_strategy": "SHARD_GRAD_OP"},
            Placement(devices=FOUR, layout="fsdp", sharding_strategy="SHARD_GRAD_OP"),
        ),
        ({"devices": "0-3", "sharding_strategy": "NO_SHARD"}, Placement(devices=FOUR)),
        ({"devices": "0-3", "gpus_per_node": 4}, Placement(devices=FOUR)),
        ({"devices": ["a:0", "b:0"], "gpus_per_node": 1}, Placement(devices=("a:0", "b:0"))),
        ({"devices": 0, "mode": "merged"}, Placement(devices=("0",), mode="merged")),
        ({"devices": 0, "placement_policy": "static"}, Placement(devices=("0",), placement_policy="static")),
        ({"devices": 0, "offload_strategy": "cpu_prefetch"}, Placement(devices=("0",), offload_strategy="cpu_prefetch")),
        ({"devices": 0, "prompt_loading": "disabled"}, Placement(devices=("0",), prompt_loading="disabled")),
        ({"devices": 0, "nccl_backend": "ring"}, Placement(devices=("0",), nccl_backend="ring")),
        ({"url": "http://h:1", "nccl_backend": "none"}, Placement(url="http://h:1", nccl_backend="none")),
        ({"devices": 0, "inference_only": True}, Placement(devices=("0",), inference_only=True)),
        ({"url": "http://localhost:1", "shared_mem_name": "/r.1"}, Placement(url="http://localhost:1", shared_mem_name="/r.1")),
        ({"url": "http://[::1]:1", "shared_mem_name": "r"}, Placement(url="http://[::1]:1", shared_mem_name="r")),
    ],
)
def test_effects(keys: dict[str, Any], placement: Placement) -> None:
    assert placed(**keys) == placement


def test_shared_memory_of_this_machine_by_its_name() -> None:
    url = f"http://{socket.gethostname()}:8080"
    assert placed(url=url, shared_mem_name="r").shared_mem_name == "r"


def test_sizes_of_the_table_beside() -> None:
    assert placed(SizesEntry(tp=2, dp=2), devices="0-3") == Placement(devices=FOUR, tp=2, dp=2)
    assert placed(SizesEntry(tp=2), devices="0-3", tp=2) == Placement(devices=FOUR, tp=2)
    with pytest.raises(
        ConfigError, match=r"^map.yaml, line 1: actor: tp says tp 1 and parallelism_config says tp 2\n  fix: write one of them$"
    ):
        placed(SizesEntry(tp=2), devices="0-3", tp=1)
    with pytest.raises(ConfigError, match="actor: dp says dp 4 and parallelism_config says dp 2"):
        placed(SizesEntry(dp=2), devices="0-3", dp=4)


@pytest.mark.parametrize(
    ("keys", "match"),
    [
        (
            {},
            r"^map.yaml, line 1: actor: it says no place\n  fix: write devices: \[0, 1\], share: actor, or service_url: http://host:8080$",
        ),
        ({"device_group": []}, "it says no place"),
        ({"tp": 2}, "it says no place"),
        ({"devices": 0, "device_group": 0}, r"devices and device_group say the same thing\n  fix: write one of them"),
        ({"devices": 0, "share": "actor"}, r"actor: it says devices and share, and a role is in one place\n  fix: write one of them"),
        ({"devices": 0, "share": ""}, "it says devices and share"),
        ({"devices": 0, "url": "http://h"}, "it says devices and a service"),
        ({"url": "http://h", "service_url": "http://i"}, "url and service_url say different things"),
        ({"url": ""}, "actor.url: '' is no address"),
        ({"service_url": "h:80"}, r"actor.service_url: 'h:80' is no address of a service\n  fix: write http://HOST:PORT"),
        ({"share": "actr"}, r"actor.share: 'actr' is no role\n  fix: write 'actor'"),
        ({"share": ""}, "actor.share: '' is no role"),
        ({"devices": "cuda:0"}, r"actor.devices: 'cuda:0' is no device.*\n  fix: write '0'"),
        (
            {"devices": "0-3 fsdp"},
            r"'0-3 fsdp' says more than devices\n  fix: write the layout as a key of its own: layout: fsdp, or tp: 2",
        ),
        (
            {"device_group": "trainer"},
            r"actor.device_group: 'trainer' names no group\n  fix: write 'trainers', or add at the top level: groups:",
        ),
        ({"device_group": "zzz"}, "fix: the groups are trainers, samplers, or add at the top level: groups: {zzz: {devices: "),
        (
            {"device_group": "trainers", "layout": "ddp"},
            "actor.layout: 'ddp' here, and 'fsdp' in its group 'trainers'\n  fix: write one of them",
        ),
        ({"device_group": "samplers", "tp": 1}, "tp says tp 1 and tp_size says tp 2"),
        ({"device_group": "samplers", "inference_only": False}, "False here, and True in its group 'samplers'"),
        ({"devices": 0, "layout": "fsdpp"}, r"actor.layout: 'fsdpp' is no layout\n  fix: write 'fsdp'"),
        ({"devices": 0, "layout": "pipeline"}, "'pipeline' is no layout"),
        ({"devices": 0, "layout": "fsdp", "parallel_strategy": "ddp"}, "actor: layout says fsdp and parallel_strategy says ddp"),
        ({"devices": 0, "layout": "ddp", "sharding_strategy": "FULL_SHARD"}, "layout says ddp and sharding_strategy says fsdp"),
        ({"devices": "0-3", "tp": 2, "mesh_shape": [4, 1]}, "tp says tp 2 and mesh_shape says tp 1"),
        ({"devices": "0-3", "tp": 2, "tp_size": 4}, "tp says tp 2 and tp_size says tp 4"),
        ({"devices": "0-3", "layout": "tp=2", "tp": 4}, "layout says tp 2 and tp says tp 4"),
        ({"devices": "0-3", "dp": 4, "mesh_shape": [2, 2]}, "dp says dp 4 and mesh_shape says dp 2"),
        ({"devices": 0, "mesh_shape": []}, r"actor.mesh_shape: \[\] has 0 axes"),
        (
            {"devices": 0, "mesh_shape": [2, 2, 2]},
            r"\[2, 2, 2\] has 3 axes: pipeline and expert parallelism are not supported\n  fix: write \[dp, tp\]",
        ),
        (
            {"devices": 0, "parallel_strategy": "pipeline"},
            "actor.parallel_strategy: pipeline parallelism is not supported\n  fix: write ddp, fsdp or tp",
        ),
        (
            {"devices": "0-3", "parallel_strategy": "tp", "tp": 1},
            "^map.yaml, line 1: actor: parallel_strategy says tp and tp says tp 1\n  fix: write one of them",
        ),
        ({"devices": "0-3", "parallel_strategy": "tp", "mesh_shape": [4]}, "parallel_strategy says tp and mesh_shape says tp 1"),
        (
            {"devices": "0-2", "parallel_strategy": "tp", "dp": 2},
            r"actor.parallel_strategy: 2 copies on 3 devices: none can be split evenly\n  fix: write ddp, or 2 or more",
        ),
        ({"devices": "0-1", "parallel_strategy": "tp", "dp": 2}, "2 copies on 2 devices: none can be split evenly"),
        ({"devices": 0, "parallel_strategy": "tp"}, "actor.parallel_strategy: 1 copy on 1 device: none can be split evenly"),
        ({"devices": 0, "parallel_strategy": "Tp"}, "'Tp' is unknown\n  fix: write tp$"),
        ({"devices": 0, "sharding_strategy": "Full_Shard"}, "'Full_Shard' is unknown\n  fix: write FULL_SHARD$"),
        ({"devices": 0, "parallel_strategy": "zero3"}, "ZeRO is not supported"),
        ({"devices": 0, "parallel_strategy": "fspd"}, "'fspd' is unknown\n  fix: write fsdp"),
        ({"devices": 0, "parallel_strategy": "x"}, "'x' is unknown\n  fix: write ddp, fsdp or tp"),
        (
            {"devices": 0, "sharding_strategy": "HYBRID_SHARD"},
            "shards within a node and copies between nodes is not supported\n  fix: write FULL_SHARD",
        ),
        ({"devices": 0, "sharding_strategy": "FULL_SHRAD"}, "'FULL_SHRAD' is unknown\n  fix: write FULL_SHARD"),
        (
            {"devices": [0, 1], "gpus_per_node": 4},
            "actor.gpus_per_node: 4 GPUs on each node, and its devices are 2 on the node\n  fix: write gpus_per_node: 2",
        ),
        ({"devices": "a:0-1,b:0", "gpus_per_node": 2}, "2 GPUs on each node, and its devices are 1 on b"),
        ({"share": "actor", "layout": "fsdp"}, "actor.layout: it stands only beside devices, and this role has share\n  fix: leave it out"),
        ({"url": "http://h", "tp": 2}, "^map.yaml, line 3: actor.tp: it stands only beside devices, and this role has a service"),
        (
            {"url": "http://h", "nccl_backend": "ring"},
            "actor.nccl_backend: a service has no processes of this run\n  fix: leave it out, or write none",
        ),
        ({"devices": 0, "shared_mem_name": "r"}, "actor.shared_mem_name: .* there is no service\n  fix: add service_url"),
        (
            {"url": "http://localhost", "shared_mem_name": "a/b"},
            "'a/b' is no name of a shared-memory block\n  fix: write a name such as 'rewards'",
        ),
        ({"url": "http://localhost", "shared_mem_name": "r" * 251}, "is no name of a shared-memory block"),
        (
            {"url": "http://elsewhere", "shared_mem_name": "r"},
            "elsewhere is another machine, and memory is shared on one\n  fix: leave it out",
        ),
    ],
)
def test_refusals(keys: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        placed(**keys)


def test_without_groups_a_name_shows_how_to_define_one() -> None:
    with pytest.raises(ConfigError) as caught:
        place(RoleEntry(device_group="trainers"), AT, {}, SizesEntry())
    assert str(caught.value) == (
        "map.yaml, line 1: actor.device_group: 'trainers' names a group, and this map has no groups\n"
        "  fix: write at the top level: groups: {trainers: {devices: [0, 1]}}; or a list of devices"
    )
