"""A run's plan as JSON and back: maps of every form are there again. Nothing is trained, no engine is made."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import workbench as wb
from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.plan import FILE, RunPlan
from workbench.replan import restored
from workbench.topology import Topology

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


def again(folder: Path, made: DeviceMap | None = None, written: Any = None, given: dict[str, Any] | None = None, **changes: Any) -> RunPlan:
    """A plan that was written and read. ``made``: its map; ``written``: what the file says in its place; ``given``: at the restore."""
    data = plan(folder, devices=made or DeviceMap(), **changes).saved()
    (folder / "plan").mkdir()
    (folder / "plan" / FILE).write_text(json.dumps(data if written is None else data | {"devices": written}))
    return restored(folder / "plan", {"task": TASK, **(given or {})})


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


def test_a_plan_that_knows_nothing_of_load_is_restored(tmp_path: Path) -> None:
    (tmp_path / "plan").mkdir()
    saved = plan(tmp_path).saved()
    (tmp_path / "plan" / "plan.json").write_text(json.dumps({name: value for name, value in saved.items() if not name.startswith("load_")}))
    found = restored(tmp_path / "plan", {"task": TASK})
    assert (found.load_hz, found.load_csv) == (2.0, False)


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


# ---------------------------------------------------------------- processes

SPLIT = DeviceMap(actor="0-1", rollout="2-3")
FOUR = Topology.cpu(4)


@pytest.mark.parametrize(
    ("devices", "changes"),
    [
        (SPLIT, {"machine": FOUR}),
        (SPLIT, {"machine": FOUR, "overlap": 1, "restart": True}),
        (SPLIT, {"machine": FOUR, "runtime": "ray"}),
        (DeviceMap(), {"runtime": "inline"}),
        (DeviceMap(actor="cpu:0-1", rollout="cpu:2"), {"overlap": 1}),
        (SPLIT, {"runtime": wb.Ray(address="10.0.0.1:6379"), "overlap": 1}),
        (
            DeviceMap(actor="node1:0", rollout="node2:0"),
            {"runtime": wb.Ray(address="auto", timeouts={"control": 30.0}, compression="bf16", start_timeout=60.0, env={"A": "b"})},
        ),
    ],
)
def test_a_plan_of_several_processes_is_restored_as_it_was(devices: DeviceMap, changes: dict[str, Any], tmp_path: Path) -> None:
    assert again(tmp_path, made=devices, **changes) == plan(tmp_path, devices=devices, **changes)


def test_what_the_file_says_of_processes(tmp_path: Path) -> None:
    saved = plan(tmp_path, devices=SPLIT, machine=FOUR, overlap=1, restart=True, runtime="ray").saved()
    assert {name: saved[name] for name in ("slots", "runtime", "overlap", "restart")} == {
        "slots": 4,
        "runtime": "ray",
        "overlap": 1,
        "restart": True,
    }
    plain = plan(tmp_path).saved()
    assert (plain["slots"], plain["runtime"], plain["overlap"], plain["restart"]) == (None, "auto", 0, False)
    ray = plan(tmp_path, runtime=wb.Ray(address="auto", compression="fp16")).saved()["runtime"]
    assert (ray["address"], ray["compression"], json.loads(json.dumps(ray))) == ("auto", "fp16", ray)


def test_another_map_and_another_runtime_are_taken_at_a_restore(tmp_path: Path) -> None:
    moved = again(tmp_path, made=SPLIT, given={"devices": "cpu", "runtime": "inline"}, machine=FOUR)
    assert (moved.devices, moved.runtime) == (DeviceMap(actor="cpu"), "inline")
    (tmp_path / "other").mkdir()
    other = {"actor": "0-1 fsdp", "rollout": "2"}  # of the same slots
    moved = again(tmp_path / "other", made=SPLIT, given={"devices": other}, machine=FOUR)
    assert (str(moved.devices.actor), moved.machine) == ("0-1 fsdp", FOUR)


def test_a_run_that_sampled_ahead_moves_to_where_that_can_not_be(tmp_path: Path) -> None:
    given = {"devices": "cpu", "runtime": "inline"}
    with pytest.raises(ConfigError, match=r"actor and rollout have cpu:0 in common.*\n.*or write overlap=0"):
        again(tmp_path, made=SPLIT, given=given, machine=FOUR, overlap=1)
    assert restored(tmp_path / "plan", {"task": TASK, **given, "overlap": 0}).overlap == 0


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"overlap": 2}, r"^Run\(overlap=2\): a batch may be one step old, no more\n  fix: write overlap=1"),
        ({"overlap": -1}, r"^Run\(overlap=-1\): "),
        ({"overlap": True}, r"^overlap=True: that is a bool\n  fix: give 0, or 1"),
        ({"overlap": "1"}, r"^overlap='1': that is a str"),
        (
            {"overlap": 1},
            r"^Run\(overlap=1\): actor and rollout have cpu:0 in common: they take turns there\n  fix: give the rollout devices of",
        ),
        (
            {"overlap": 1, "devices": DeviceMap(actor="0-1"), "machine": FOUR},
            r"^Run\(overlap=1\): actor and rollout have cpu:0, cpu:1 in common",
        ),
        (
            {"overlap": 1, "devices": SPLIT, "machine": FOUR, "algo": wb.GRPO(group_size=8, importance_cap=None)},
            r"^Run\(overlap=1\): GRPO\(importance_cap=None\) does not correct for samples of an older policy\n  fix: write importance_cap=",
        ),
        (
            {"machine": Topology.preset("dgx-a100")},
            r"^Run\(topology='.*'\): .* is a description of GPUs.*\n  fix: leave it out, or rehearse on",
        ),
        ({"devices": SPLIT, "machine": Topology.cpu(2)}, r"\(WB101\): .*cpu, 2 slots"),
        ({"runtime": "rey"}, r"^Run\(runtime='rey'\): there are two runtimes\n  fix: write 'auto', 'inline', 'ray', or wb\.Ray"),
        ({"load_hz": 5}, r"^load_hz=5: devices are sampled 0.001 to 4 times a second\n  fix: give 0 for not at all"),
        ({"load_hz": 1e-12}, r"^load_hz=1e-12: devices are sampled 0.001 to 4 times a second"),
        ({"load_hz": "2"}, r"^load_hz='2': that is a str"),
        ({"load_csv": 1}, r"^load_csv=1: that is a int"),
        ({"load_csv": True, "load_hz": 0}, r"^load_csv=True with load_hz=0: nothing is sampled"),
        ({"runtime": None}, r"^Run\(runtime=None\): there are two runtimes"),
        ({"devices": SPLIT, "machine": FOUR, "runtime": "inline"}, r"with actor: '0-1', rollout: '2-3'.*: the map has 4 worker processes"),
    ],
)
def test_processes_that_cannot_be_are_refused_where_they_are_written(changes: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=match):
        plan(tmp_path, **changes)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_gpus_have_to_be_there_where_the_run_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for runtime in ("auto", "ray", wb.Ray()):
        with pytest.raises(ConfigError, match="torch sees no GPU here"):
            plan(tmp_path, devices=SPLIT, runtime=runtime)
    assert plan(tmp_path, devices=SPLIT, runtime=wb.Ray(address="10.0.0.1:6379")).devices == SPLIT  # the cluster's GPUs are looked at there
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert plan(tmp_path, devices=SPLIT).devices == SPLIT


def test_what_the_workers_are_built_from(tmp_path: Path) -> None:
    made = plan(tmp_path, devices=SPLIT, machine=FOUR, overlap=1).worker(Path("model"), "cpu")
    assert (made.dtype, made.kept, made.reward) == ("float32", 2, None)  # two versions for the batch that is on its way; the reward is here
    there = DeviceMap(actor="cpu:0", rollout="cpu:1", reward="cpu:2")
    assert plan(tmp_path, devices=there).worker(Path("model"), "cpu").reward is TASK.scorer
    assert plan(tmp_path).worker(Path("model"), "cuda").dtype == "bfloat16"
    assert plan(tmp_path).worker(Path("model"), "cuda").kept == 0


def test_routes_are_told_before_a_run(tmp_path: Path) -> None:
    """From the map alone: nothing is loaded, and no process is started."""
    fields = {"task": wb.tasks.sorting(), "folder": tmp_path, "held_out": 0, "trackers": ()}
    run = wb.Run({"actor": "0-1", "rollout": "2", "reward": "3"}, topology=FOUR, name="apart", **fields)
    assert repr(run.routes).splitlines() == [
        "rollout       driver -> rollout    prompts                    scatter to 1",
        "rollout       rollout -> driver    completions                gather from 1",
        "reward        driver -> reward     completions                scatter to 1",
        "reward        reward -> driver     rewards                    gather from 1",
        "reference     driver -> reference  rows                       scatter to 2",
        "reference     reference -> driver  log-probabilities          gather from 2",
        "update_actor  driver -> actor      rows and advantages        scatter to 2",
        "update_actor  actor -> driver      statistics                 gather from 2",
        "sync          actor -> rollout     adapter                    broadcast",
    ]
    run.close()
    here = wb.Run("cpu", name="here", **fields)
    assert {route.how for route in here.routes} == {"stay"}
    here.close()
    slot = wb.Run("cpu", name="slot", runtime="ray", **fields)
    assert {route.how for route in slot.routes} == {"scatter", "gather", "stay"}  # one process, and not this one
    slot.close()


def test_all_weights_or_an_adapter_is_a_yes_or_no(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="full"):
        plan(tmp_path, full="no")
    assert again(tmp_path, full=True).full
    assert plan(tmp_path, full=True).mode == "full"
    assert plan(tmp_path).mode == "adapter"


def test_the_port_for_prometheus_is_kept_and_a_wrong_one_refused(tmp_path: Path) -> None:
    assert again(tmp_path, prometheus="0.0.0.0:9400").prometheus == "0.0.0.0:9400"
    assert restored(tmp_path / "plan", {"task": TASK, "prometheus": 0}).prometheus == 0
    with pytest.raises(ConfigError, match=r"prometheus=70000: that is no port, and no address with one"):
        plan(tmp_path, prometheus=70000)


def test_slots_that_stand_for_gpus_are_the_runs_machine(tmp_path: Path) -> None:
    """The machine that the views draw and the profile's links are named by, whatever this one has."""
    fields = {"task": wb.tasks.sorting(), "folder": tmp_path}
    run = wb.Run({"actor": "0-1", "rollout": "2"}, topology=FOUR, **fields)
    assert run._training.machine is FOUR
    assert wb.Run("cpu", **fields)._training.machine is None
