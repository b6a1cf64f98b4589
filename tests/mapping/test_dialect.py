"""Whole maps as people write them: roles, groups, sizes and wrappers, and what is refused with file and line."""

from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap, Placement
from workbench.mapping.dialect import placements
from workbench.mapping.source import Source, read_text
from workbench.roles import Role


def read(text: str) -> dict[str, str]:
    """Role -> compact string."""
    return {str(role): str(place) for role, place in placements(read_text(text, "map.yaml")).items()}


DESIGN = """
actor:     {devices: [0, 1, 2, 3], layout: fsdp}
critic:    {share: actor}
rollout:   {devices: [0, 1, 2, 3], tp: 2}
reference: {share: actor}
reward:    {devices: cpu}
"""


@pytest.mark.parametrize(
    ("text", "roles"),
    [
        (DESIGN, {"actor": "0-3 fsdp", "critic": "share:actor", "rollout": "0-3 tp2", "reference": "share:actor", "reward": "cpu"}),
        ("actor: 0", {"actor": "0"}),
        ("actor: '0'", {"actor": "0"}),
        ("actor: 0-3 fsdp", {"actor": "0-3 fsdp"}),
        ("actor: 0,2", {"actor": "0,2"}),
        ("actor: [0, 1]", {"actor": "0-1"}),
        ("actor: [node1:0, node2:0]", {"actor": "node1:0,node2:0"}),
        ("actor: node1:0-3,node2:0-3", {"actor": "node1:0-3,node2:0-3"}),
        ("actor: cpu\nref: share:actor", {"actor": "cpu", "reference": "share:actor"}),
        ("actor: cpu\nref_model: {share: actor}", {"actor": "cpu", "reference": "share:actor"}),
        ("actor: cpu\nreference_model: 0", {"actor": "cpu", "reference": "0"}),
        ("actor: cpu\nreward_model: http://h:1", {"actor": "cpu", "reward": "http://h:1"}),
        ("reward: cpu\nactor: 0", {"actor": "0", "reward": "cpu"}),  # in the order of the roles
        ("device_map: {actor: 0}", {"actor": "0"}),
        ("device_mapping:\n  actor: 0", {"actor": "0"}),
        ("roles:\n  actor: 0\n  rollout: 1", {"actor": "0", "rollout": "1"}),
        ("device_map: {actor: a}\ngroups: {a: 0-1}", {"actor": "0-1"}),
        ("device_map: {actor: a, groups: {a: 0-1}}\nparallelism_config: {actor: {tp: 2}}", {"actor": "0-1 tp2"}),
        ("groups: {a: [0, 1], b: 2-3}\nactor: a\nrollout: {device_group: b}", {"actor": "0-1", "rollout": "2-3"}),
        ("groups: {a: {devices: [0, 1], layout: fsdp}}\nactor: a", {"actor": "0-1 fsdp"}),
        ("groups: {a: {gpus_per_node: 2, parallel_strategy: tp}}\nactor: a", {"actor": "0-1 tp2"}),
        ("groups: {a: {devices: 0-3, tp_size: 2}}\nrollout: a", {"rollout": "0-3 tp2"}),
        ("groups: {a: {devices: node1:0-1}}\nactor: a", {"actor": "node1:0-1"}),
        # groups without devices take the next numbers that no group has
        (
            "groups: {a: {gpus_per_node: 2}, b: {devices: 1}, c: {gpus_per_node: 1}}\nactor: a\nrollout: c\nref: b",
            {"actor": "0,2", "rollout": "3", "reference": "1"},
        ),
        # a group that no role is in may forbid
        ("groups: {a: {devices: 2, inference_only: true}}\nactor: 0-1", {"actor": "0-1"}),
        ("actor: 0-3 tp4096\nrollout: 0-3 tp1", {"actor": "0-3 tp4096", "rollout": "0-3"}),
        ("actor: 0-3\nparallelism_config: {actor: {tp: 2, dp: 2}}", {"actor": "0-3 tp2"}),
        ("actor: 0-3 fsdp\nparallelism_config: {actor: {dp: 4, pp: 1, expert: 1}}", {"actor": "0-3 fsdp"}),
        ("ref: 0-1\nparallelism_config: {ref_model: {tp: 2}}", {"reference": "0-1 tp2"}),
        ("actor: &x {devices: [0, 1]}\nrollout: {<<: *x, tp: 2}", {"actor": "0-1", "rollout": "0-1 tp2"}),
        ("actor: 0,0", {"actor": "0,0"}),  # what a map can't do is a finding, not an error
        ("actor: 0-2 tp2", {"actor": "0-2 tp2"}),
        ("actor: 0-1\nparallelism_config: {actor: {tp: 2, dp: 2}}", {"actor": "0-1 tp2"}),
        ("critic: share:rollout", {"critic": "share:rollout"}),
        ("actor: http://h:1", {"actor": "http://h:1"}),
        ("actor: cpu\nrollout: 0", {"actor": "cpu", "rollout": "0"}),
    ],
)
def test_maps(text: str, roles: dict[str, str]) -> None:
    assert read(text) == roles


def test_sizes_are_kept() -> None:
    text = "actor: 0-3\nparallelism_config: {actor: {tp: 2, dp: 2}}\nrollout: {devices: 0-3, mesh_shape: [2, 2]}"
    places = placements(read_text(text, "map.yaml"))
    assert (places[Role.ACTOR].tp, places[Role.ACTOR].dp) == (2, 2)
    assert (places[Role.ROLLOUT].tp, places[Role.ROLLOUT].dp) == (2, 2)


def test_the_keys_of_tutorials() -> None:
    text = """
actor:
  device_group: [2, 3]
  placement_policy: hybrid
  nccl_backend: p2p
rollout:
  device_group: samplers
  offload_strategy: cpu_prefetch
reference: {share: actor, prompt_loading: disabled, nccl_backend: none}
reward: {device_group: [], service_url: "http://localhost:8080", shared_mem_name: rewards}
groups:
  samplers: {gpus_per_node: 2, parallel_strategy: tp, inference_only: true}
"""
    places = placements(read_text(text, "map.yaml"))
    assert places[Role.ACTOR] == Placement(devices=("2", "3"), placement_policy="hybrid", nccl_backend="p2p")
    assert places[Role.ROLLOUT] == Placement(devices=("0", "1"), tp=2, offload_strategy="cpu_prefetch", inference_only=True)
    assert places[Role.REFERENCE] == Placement(share="actor", prompt_loading="disabled", nccl_backend="none")
    assert places[Role.REWARD] == Placement(url="http://localhost:8080", shared_mem_name="rewards")


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (
            "aktor: cpu",
            r"^map.yaml, line 1: aktor: 'aktor' is no role: the roles are actor, critic, rollout, reference, reward\n  fix: write 'actor'$",
        ),
        ("\n\nref_modle: cpu", r"^map.yaml, line 3: ref_modle: .*\n  fix: write 'ref_model'$"),
        ("group: {a: 0}", "fix: write 'groups'$"),
        ("paralelism_config: {}", "fix: write 'parallelism_config'$"),
        ("xyz: 0", r"fix: the keys of a map are actor, critic, rollout, reference, reward, ref, .*, groups, parallelism_config$"),
        ("1: cpu", "'1' is no role"),
        ("actor: 0\nmodel: tiny\ndevice_map: {}", "map.yaml, line 2: model: 'model' is no role"),
        ("device_map:\n  actor: 0\n  rolout: 1", r"^map.yaml, line 3: rolout: .*\n  fix: write 'rollout'$"),
        ("device_map: {groups: {a: 0}, actor: a}\ngroups: {a: 1}", "groups: it stands beside device_map and in it\n  fix: write it once"),
        ("actor:\ncritic: 0", r"^map.yaml, line 1: actor: nothing is written there\n  fix: write devices, or leave it out$"),
        ("actor: true", "^map.yaml, line 1: actor: True is not understood\n  fix: write {devices: "),
        ("actor: 0.5", "0.5 is not understood"),
        ("actor: 99999", "'99999' is no device"),
        ("actor: -1", "'-1' is no device"),
        ("actor: [0, true]", "True is no device"),
        ("actor: [[0]]", r"\[0\] is no device"),
        ("actor: ''", "that is no device"),
        ("actor: cuda:0", r"^map.yaml, line 1: actor: 'cuda:0' is no device.*\n  fix: write '0'$"),
        ("actor: 0-1 fsdpp", "'fsdpp' is no layout\n  fix: write 'fsdp'"),
        ("actor: 0\n\nrollout:\n  device: 0", r"^map.yaml, line 4: rollout.device: 'device' is no key here\n  fix: write 'devices'$"),
        ("actor: 0\nref_model: {devces: 0}", r"^map.yaml, line 2: ref_model.devces: .*\n  fix: write 'devices'$"),
        ("actor: {devices: 0,\n  tp: two}", "^map.yaml, line 2: actor.tp: 'two' does not fit"),
        ("ref: 0\nreference: 0", "^map.yaml, line 2: reference: the reference is there already, as 'ref'\n  fix: write it once$"),
        ("actor: trainers", "'trainers' is no device"),
        (
            "actor: {device_group: trainers}",
            r"line 1: actor.device_group: 'trainers' names a group, and this map has no groups\n  fix: .*groups: {trainers:",
        ),
        ("groups: {trainers: 0}\nactor: trainer", r"^map.yaml, line 2: actor: 'trainer' names no group\n  fix: write 'trainers', or add"),
        (
            "groups: [0, 1]\nactor: 0",
            r"^map.yaml, line 1: groups: \[0, 1\] is no table\n  fix: write groups: {trainers: {devices: \[0, 1\]}}$",
        ),
        ("groups: {a: {}}\nactor: a", "^map.yaml, line 1: groups.a: it says no devices\n  fix: write devices: "),
        ("groups: {a: []}\nactor: a", r"groups.a.devices: \[\] does not fit"),
        (
            "groups:\n  a: 0-1\n  b: 2-3\nactor: a",
            r"^map.yaml, line 3: groups.b: no role is in this group\n  fix: write device_group: b at a role, or leave the group out$",
        ),
        # what a group says is refused as at a role, whoever is in it
        ("groups:\n  a: {devices: 0, layout: fsdpp}\nactor: 0", "^map.yaml, line 2: groups.a.layout: 'fsdpp' is no layout"),
        ("groups: {a: {devices: 0, parallel_strategy: zero3}}\nactor: 0", "groups.a.parallel_strategy: ZeRO is not supported"),
        ("groups: {a: {devices: 0-1, tp: 1, tp_size: 2}}\nactor: 0", "groups.a: tp says tp 1 and tp_size says tp 2"),
        ("groups: {a: {devices: 0-1, gpus_per_node: 3}}\nactor: 0", "groups.a.gpus_per_node: 3 GPUs on each node"),
        (
            "groups: {a: {devices: [0, 1], inference_only: true}}\nrollout: a\nactor: {devices: 1-2, inference_only: false}",
            "^map.yaml, line 3: actor.inference_only: False here, and local:1 is also in the group 'a', which is for inference only",
        ),
        # more than a role can have, however it is written
        ("actor: 0-1 tp4097", "^map.yaml, line 1: actor: 'tp4097' is more than the 4096 devices that a role can have"),
        ("actor: {devices: 0-1, layout: tp9999}", "^map.yaml, line 1: actor.layout: 'tp9999' is more than the 4096 devices"),
        ("actor: 0-7 tp2 dp4", r"'dp4' is no layout, .*\n  fix: write {devices: 0-7, tp: 2, dp: 4}$"),
        ("actor: 0-7 fsdp dp=8", r"fix: write {devices: 0-7, layout: fsdp, dp: 8}$"),
        ("actor: 0 8", r"^map.yaml, line 1: actor: '0 8' has blanks between its devices\n  fix: write '0,8'$"),
        ("actor: 0-1 3 tp2", r"fix: write '0-1,3 tp2'$"),
        ("actor: {devices: 0 8}", r"actor.devices: '0 8' has blanks between its devices\n  fix: write '0,8'$"),
        ("reward: localhost:8080", r"^map.yaml, line 1: reward: 'localhost:8080' .*\n  fix: write 'http://localhost:8080' for a service"),
        ('actor: 0\nreward: "http://h/\\e[31m"', "is no address of a service"),
        ("actor: 0-1 tp1\nparallelism_config: {actor: {tp: 2}}", "tp says tp 1 and parallelism_config says tp 2"),
        ("actor: {devices: 0-1, layout: tp=1, tp: 2}", "layout says tp 1 and tp says tp 2"),
        ("groups: {a: {device: 0}}\nactor: a", "groups.a.device: 'device' is no key here\n  fix: write 'devices'"),
        ("groups: {a: {share: actor}}\nactor: a", "groups.a.share: 'share' is no key here"),
        ("groups: {a: cuda:0}\nactor: a", "groups.a.devices: 'cuda:0' is no device"),
        ("groups: {a: 0-1 fsdp}\nactor: a", "groups.a.devices: '0-1 fsdp' is no device"),
        ("groups: {actor: 0}\nactor: 0", "groups.actor: 'actor' can't be the name of a group\n  fix: write a word that is no device"),
        ("groups: {'0': 0}\nactor: 0", "'0' can't be the name of a group"),
        ("groups: {'node1:0': 0}\nactor: 0", "can't be the name of a group"),
        ("groups: {a: {gpus_per_node: 4096}, b: {gpus_per_node: 4096}}\nactor: a", "groups: they have more than 4096 devices"),
        ("actor: 0\ngroups: {" + ", ".join(f"g{n}: 0" for n in range(65)) + "}", "groups: 65 groups\n  fix: write at most 64"),
        (
            "parallelism_config: {actr: {tp: 2}}\nactor: 0",
            "^map.yaml, line 1: parallelism_config.actr: 'actr' is no role\n  fix: write 'actor'$",
        ),
        (
            "actor: 0-1\nparallelism_config:\n  actor: {pp: 2}",
            "^map.yaml, line 3: parallelism_config.actor.pp: pipeline parallelism is not supported",
        ),
        ("actor: 0-1\nparallelism_config: {actor: {expert: 2}}", "expert parallelism is not supported\n  fix: write expert: 1"),
        ("actor: 0-1\nparallelism_config: {actor: {tp_size: 2}}", "'tp_size' is no key here\n  fix: write 'tp'"),
        ("actor: 0-1\nparallelism_config: {actor: 2}", "parallelism_config.actor: 2 are no sizes\n  fix: write {tp: 2, dp: 2}"),
        ("actor: 0-1\nparallelism_config: 2", "parallelism_config: 2 is no table"),
        (
            "actor: 0-1\nparallelism_config: {critic: {tp: 2}}",
            "parallelism_config.critic: the critic has no devices of its own, .*\n  fix: give it devices",
        ),
        (
            "actor: 0-1\ncritic: share:actor\nparallelism_config: {critic: {tp: 2}}",
            "^map.yaml, line 3: parallelism_config.critic: the critic has no devices of its own",
        ),
        ("ref: 0\nparallelism_config: {ref: {tp: 1}, reference: {tp: 1}}", "sizes of the reference are there already"),
        ("actor: 0-1 tp2\nparallelism_config: {actor: {tp: 4}}", "^map.yaml, line 1: actor: tp says tp 2 and parallelism_config says tp 4"),
    ],
)
def test_what_is_refused(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read(text)


@pytest.mark.parametrize(
    ("value", "again"),
    [
        (0, "0"),
        ((0, 1), "0-1"),
        ({"devices": (0, 1)}, "0-1"),
        (Placement(devices=("0", "1"), tp=2), "0-1 tp2"),
    ],
)
def test_values_of_python(value: Any, again: str) -> None:
    assert str(placements(Source("device map", {"actor": value}))[Role.ACTOR]) == again


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (Placement(), "^device map: actor: it says no place"),
        (object(), "^device map: actor: <object.* is not understood"),
        ({1}, r"\{1\} is not understood"),
        (b"0", "b'0' is not understood"),
    ],
)
def test_values_of_python_that_are_none(value: Any, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        DeviceMap(actor=value)
