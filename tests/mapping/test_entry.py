"""Every key as it is written, what does not fit in plain words, and the JSON Schema."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from tests.mapping.maps import MAPS
from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.mapping.entry import ELSEWHERE, GroupEntry, RoleEntry, SizesEntry, json_schema, read_entry
from workbench.mapping.source import Source

FILES = Path(__file__).parent.parent.parent / "recipes" / "maps"
VALIDATOR = Draft202012Validator(json_schema())
AT = partial(Source("map.yaml", {}, {("actor", "tp"): 3}).at, "actor")


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"tpp": 2}, r"^map.yaml: actor.tpp: 'tpp' is no key here\n  fix: write 'tp'$"),
        ({"device": 0}, "fix: write 'devices'$"),
        ({"devcies": 0}, "fix: write 'devices'$"),
        ({"tensor_parallel_size": 2}, "fix: write 'tp'$"),
        ({"n_gpus_per_node": 2}, "fix: write 'gpus_per_node'$"),
        ({"colocate_with": "actor"}, "fix: write 'share'$"),
        ({"zzz": 0}, r"'zzz' is no key here\n  fix: the keys are devices, gpus_per_node, layout"),
        ({3: 0}, "^map.yaml: actor.3: 3 is no key here"),
        ({"tp": "two"}, r"^map.yaml, line 3: actor.tp: 'two' does not fit\n  fix: write a whole number from 1 to 4096$"),
        ({"tp": 0}, "0 does not fit"),
        ({"tp": -1}, "-1 does not fit"),
        ({"tp": 10**30}, "10000.* does not fit"),
        ({"tp": True}, "True does not fit"),
        ({"tp": 2.0}, "2.0 does not fit"),
        ({"tp": [2]}, r"\[2\] does not fit"),
        ({"tp": None}, r"^map.yaml, line 3: actor.tp: nothing is written there\n  fix: write a value, or leave the key out$"),
        ({"inference_only": "yes"}, r"'yes' does not fit\n  fix: write true or false$"),
        ({"inference_only": 1}, "1 does not fit"),
        ({"devices": True}, r"True does not fit\n  fix: write \[0, 1\] or 0-3 or cpu$"),
        ({"devices": [0, True]}, r"\[0, True\] does not fit"),
        ({"devices": [0, -1]}, r"\[0, -1\] does not fit"),
        ({"devices": {"a": 0}}, r"\{'a': 0\} does not fit"),
        ({"devices": 0.5}, "0.5 does not fit"),
        ({"layout": 3}, r"3 does not fit\n  fix: write fsdp$"),
        ({"mode": "mergd"}, r"^map.yaml: actor.mode: 'mergd' does not fit\n  fix: write 'merged'$"),
        ({"mode": "x"}, r"fix: possible are auto, zero_copy, merged, adapter, full$"),
        ({"placement_policy": "hybird"}, "fix: write 'hybrid'$"),
        ({"placement_policy": True}, "fix: possible are hybrid, static$"),
        ({"nccl_backend": "nccl"}, "fix: possible are p2p, ring, none$"),
        ({"offload_strategy": "cpu"}, "fix: write 'cpu_prefetch'$"),
        ({"prompt_loading": "enabled"}, "'enabled' does not fit\n  fix: write 'disabled'$"),
        ({"mesh_shape": "2x2"}, r"'2x2' does not fit\n  fix: write \[2, 2\] or {'dp': 2, 'tp': 2}$"),
        ({"mesh_shape": {"dp": 2, "pp": 2}}, "does not fit"),
        ({"mesh_shape": [0, 2]}, r"\[0, 2\] does not fit"),
        ({"url": 3}, r"3 does not fit\n  fix: write http://host:8080$"),
    ],
)
def test_what_does_not_fit(value: dict[Any, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        read_entry(RoleEntry, value, AT)


def test_a_key_of_a_role_is_none_of_a_group() -> None:
    with pytest.raises(ConfigError, match="'mode' is no key here"):
        read_entry(GroupEntry, {"mode": "auto"}, AT)
    with pytest.raises(ConfigError, match=r"'tensor_parallel_size' is no key here\n  fix: write 'tp'"):
        read_entry(SizesEntry, {"tensor_parallel_size": 2}, AT)


def test_words_of_other_frameworks_name_keys_of_ours() -> None:
    assert {key for key in ELSEWHERE.values() if key not in RoleEntry.model_fields} == set()


def test_the_schema_in_the_folder_is_current() -> None:
    assert json.loads((FILES / "device_map.schema.json").read_text()) == json_schema(), (
        "write it anew: json.dumps(DeviceMap.json_schema(), indent=2)"
    )


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize("path", sorted(FILES.glob("*.yaml")), ids=lambda path: path.stem)
def test_files_agree_with_the_schema(path: Path) -> None:
    assert path.read_text().splitlines()[0] == "# yaml-language-server: $schema=device_map.schema.json"
    VALIDATOR.validate(yaml.safe_load(path.read_text()))


@pytest.mark.parametrize(
    "text",
    [
        "actor: 0",
        "actor: [0, 1]",
        "actor: {devices: node1:0-3, tp: 2}",
        "actor: {devices: [0, 1], layout: tp=2, parallel_strategy: TP}",
        "ref_model: share:actor",
        "device_map: {actor: 0, rollout: {device_group: [1]}}",
        "groups: {a: [0, 1], b: {gpus_per_node: 2}}\nactor: a\nrollout: b",
        "actor: {devices: 0-1, sharding_strategy: full_shard, layout: fsdp}",
        "actor: {devices: 0-1, layout: tp4096}",
        "reward: {device_group: [], url: 'http://h:1'}",
        "actor: 0-1\nparallelism_config: {actor: {tp: 2, pp: 1}}",
    ],
)
def test_what_the_schema_takes(text: str) -> None:
    VALIDATOR.validate(yaml.safe_load(text))
    DeviceMap.parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "aktor: 0",
        "actor: true",
        "actor: 1.5",
        "actor: -1",
        "actor:",
        "actor: {device: 0}",
        "actor: {devices: 0, tp: two}",
        "actor: {devices: 0, tp: 0}",
        "actor: {devices: 0, tp:}",
        "actor: {devices: 0, layout: fsdpp}",
        "actor: {devices: 0, layout: tp=0}",
        "actor: {devices: 0, parallel_strategy: fdsp}",
        "actor: {devices: 0, sharding_strategy: HYBRID_SHARD}",
        "actor: {devices: 0-1, sharding_strategy: Full_Shard}",
        "actor: {devices: 0-1, parallel_strategy: Tp}",
        "actor: {devices: 0-1, mesh_shape: []}",
        "actor: {devices: 0-1, mesh_shape: {}}",
        "actor: {devices: 0-1, mesh_shape: [1, 2, 1]}",
        "actor: {devices: 0-1, layout: tp4097}",
        "actor: {}",
        "actor: []",
        "actor: ''",
        "actor: ' '",
        "actor: {devices: []}",
        "actor: {devices: ''}",
        "actor: {device_group: []}",
        "actor: {tp: 1}",
        "actor: 0\ngroups: {a: {layout: fsdp}}",
        "actor: 0\ngroups: {a: []}",
        "actor: 0\ngroups: {cpu: 0}",
        "actor: 0\ngroups: {'0': 0}",
        "actor: {devices: 0, mode: merge}",
        "actor: {share: actr}",
        "actor: {devices: 0, inference_only: 1}",
        "actor: 0\ngroups: {a: {device: 0}}",
        "actor: 0\nparallelism_config: {actr: {tp: 1}}",
        "actor: 0\nparallelism_config: {actor: {pp: 2}}",
        "device_map: {aktor: 0}",
    ],
)
def test_what_schema_and_reader_refuse(text: str) -> None:
    assert not VALIDATOR.is_valid(yaml.safe_load(text))
    with pytest.raises(ConfigError):
        DeviceMap.parse(text)


@settings(deadline=None)
@given(MAPS)
def test_what_a_map_writes_agrees_with_the_schema(roles: dict[str, Any]) -> None:
    VALIDATOR.validate(DeviceMap(**roles).to_dict())
