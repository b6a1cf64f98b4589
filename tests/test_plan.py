"""A run's plan as JSON and back: maps of every form are there again. Nothing is trained, no engine is made."""

import json
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.plan import FILE, RunPlan, restored

TASK = wb.tasks.from_list([(f"{number}=", str(number)) for number in range(20)], scorer=lambda prompt, completion, answer: 0.0)


def plan(folder: Path, **changes: Any) -> RunPlan:
    fields = {
        "devices": DeviceMap(),
        "task": TASK,
        "model": "small",
        "algo": wb.GRPO(group_size=8),
        "reward": TASK.scorer,
        "lora": wb.LoRA(rank=4, alpha=8),
        "sampling": wb.Sampling(prompts=8, max_tokens=8),
        "optimizer": wb.Optimizer(),
        "engine": wb.VLLM(window=512, kv_cache_gib=0.2),
        "held_out": 8,
        "name": "plan",
        "seed": 0,
        "folder": folder,
    }
    return RunPlan(**{**fields, **changes})


def again(folder: Path, made: DeviceMap | None = None, written: Any = None) -> RunPlan:
    """A plan that was written and read. ``made``: its map. ``written``: what the file says in the map's place."""
    data = plan(folder, devices=made or DeviceMap()).saved()
    (folder / "plan").mkdir()
    (folder / "plan" / FILE).write_text(json.dumps(data if written is None else data | {"devices": written}))
    return restored(folder / "plan", {"task": TASK})


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"actor": "cpu:0", "rollout": "cpu"},
        {"actor": "cpu", "rollout": {"devices": "cpu", "mode": "adapter", "offload_strategy": "cpu_prefetch"}},
        {"actor": {"devices": "cpu", "placement_policy": "hybrid", "nccl_backend": "none", "prompt_loading": "disabled"}},
    ],
)
def test_a_plan_is_restored_as_it_was(written: dict[str, Any], tmp_path: Path) -> None:
    devices = DeviceMap(**written)
    assert again(tmp_path, made=devices) == plan(tmp_path, devices=devices)


@pytest.mark.parametrize(
    ("older", "devices"),
    [
        ({"actor": "cpu", "rollout": "cpu", "reference": "share:actor", "reward": "cpu"}, DeviceMap()),
        (
            {"actor": {"devices": "cpu"}, "rollout": {"devices": "cpu"}, "reference": {"share": "actor"}, "reward": {"devices": "cpu"}},
            DeviceMap(),
        ),
    ],
)
def test_a_plan_of_an_older_version_is_restored(older: dict[str, Any], devices: DeviceMap, tmp_path: Path) -> None:
    assert again(tmp_path, written=older).devices == devices


def test_a_map_that_is_none_is_told_by_its_role(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^device map: aktor: 'aktor' is no role"):
        again(tmp_path, written={"aktor": "cpu"})


@pytest.mark.parametrize(("key", "value"), [("offload_strategy", "cpu_prefetch"), ("prompt_loading", "disabled")])
def test_prompts_that_are_loaded_ahead_and_are_not(key: str, value: str, tmp_path: Path) -> None:
    devices = DeviceMap(rollout={"devices": "cpu", key: value}, actor="cpu")
    assert plan(tmp_path, devices=devices, prefetch=1).prefetch == 1
    match = rf"^prefetch=0: the map says rollout: {key}: {value}, so that .*\n  fix: leave prefetch out, or {key} out of the map$"
    with pytest.raises(ConfigError, match=match):
        plan(tmp_path, devices=devices, prefetch=0)
    assert plan(tmp_path, prefetch=0).prefetch == 0
