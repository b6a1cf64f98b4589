"""A run's plan as another process finds it in ``plan.json``, made whole with what was written as code."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench import algos, tasks
from workbench.algos import check_algorithm
from workbench.errors import ConfigError, check_kind
from workbench.mapping import DeviceMap
from workbench.models.critic import Critic
from workbench.plan import FILE, LOAD, PARTS, PLAIN, RunPlan, reward_of, saved_algorithm, saved_reward
from workbench.runtime.settings import Ray
from workbench.tasks import Origin, Task
from workbench.topology import Topology


def restored(path: Path, given: Mapping[str, Any]) -> RunPlan:
    """The plan of the run in the folder ``path``. ``given``: what the caller hands in (task, reward, algo, devices, engine).

    Raises ConfigError where the plan can't be read, where something was written as code and has to be handed in again, and
    where what is handed in is not what the run was made with.
    """
    data = _read(path / FILE)
    try:
        return _plan(path, data, given)
    except (LookupError, TypeError, AttributeError) as error:
        found = f"plan.json is damaged, or another version's: {type(error).__name__}: {error}"
        raise ConfigError(f"restore {str(path)!r}", found, "restore it with the version that wrote it") from error


def _plan(path: Path, data: Mapping[str, Any], given: Mapping[str, Any]) -> RunPlan:
    missing = _missing(data, given)
    if missing:
        words = ", ".join(f"{name}=..." for name in missing)
        found = "; ".join(missing.values())
        raise ConfigError(f"Run.restore({str(path)!r})", found, f"hand in the same again: Run.restore(path, {words})")
    task = given.get("task") or _rebuilt(data["task"])
    _check_task(task, data)
    algo = given.get("algo") or getattr(algos, data["algo"]["name"])(**data["algo"]["fields"])
    devices = DeviceMap.load(given.get("devices") or data["devices"])
    reward = reward_of(devices, task, given.get("reward"))
    _check_same("algo", json.loads(json.dumps(saved_algorithm(check_algorithm(algo)))), data["algo"])
    _check_same("reward", saved_reward(reward, devices, task), data["reward"])
    parts = {name: cls(**_tuples(data[name])) for name, cls in PARTS.items()}
    plain = {name: data[name] for name in PLAIN} | {name: data[name] for name in LOAD if name in data}
    plan = RunPlan(
        **plain | ({} if given.get("overlap") is None else {"overlap": given["overlap"]}),
        **parts,
        devices=devices,
        task=task,
        algo=algo,
        reward=reward,
        trackers=None if data["trackers"] is None else tuple(data["trackers"]),
        machine=None if data["slots"] is None else Topology.cpu(data["slots"]),
        runtime=given.get("runtime") or (data["runtime"] if isinstance(data["runtime"], str) else Ray(**data["runtime"])),
        folder=path.parent,
        full=data.get("full", False),
        prometheus=data.get("prometheus") if given.get("prometheus") is None else given["prometheus"],
        profile=tuple(data.get("profile", ())),
        critic=_critic(data.get("critic") or {}),
    )
    return replace(plan, engine=given["engine"]) if given.get("engine") else plan


def _read(path: Path) -> dict[str, Any]:
    try:
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(data, dict):
            raise ValueError(f"it holds {type(data).__name__}, no plan")
    except FileNotFoundError as error:
        found = "there is no plan.json in it" if path.parent.is_dir() else "there is no such folder"
        fix = "give a run's folder, runs/NAME-TIMESTAMP or the link runs/NAME; a run killed before its first step is made anew"
        raise ConfigError(f"restore {str(path.parent)!r}", found, fix) from error
    except (OSError, ValueError) as error:
        found = f"plan.json can't be read: {error}"
        raise ConfigError(f"restore {str(path.parent)!r}", found, "give the folder of an intact run") from error
    return data


def _missing(data: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, str]:
    """What only the caller has: argument -> why."""
    found = {}
    if data["task"]["origin"] is None and given.get("task") is None:
        found["task"] = f"its task {data['task']['name']!r} was made from data or functions of a program"
    if data["reward"] is not None and given.get("reward") is None:
        found["reward"] = f"its reward {data['reward']!r} is a function of a program"
    if data["algo"]["fields"] is None and given.get("algo") is None:
        found["algo"] = f"its algorithm {data['algo']['name']!r} is a class of a program"
    return found


def _check_same(name: str, found: Any, made: Any) -> None:
    """Raise ConfigError where what is handed in is not what the run was made with."""
    if found != made:
        fix = "hand in the same (knobs turn what may change); to train on with another, start a new run"
        raise ConfigError(f"Run.restore({name}={_words(found)})", f"the run was made with {_words(made)}", fix)


def _words(made: Any) -> str:
    if not isinstance(made, Mapping):
        return "the task's scorer" if made is None else str(made)
    return f"{made['name']}({', '.join(f'{name}={value}' for name, value in (made['fields'] or {}).items())})"


def _rebuilt(data: Mapping[str, Any]) -> Task:
    return replace(tasks.rebuild(Origin(**data["origin"])), held_out_temperature=data["held_out_temperature"])


def _check_task(task: Task, data: Mapping[str, Any]) -> None:
    check_kind("task", task, Task, "the task that the run was made with")
    if task.fingerprint(data["seed"]) != data["task"]["fingerprint"]:
        found = f"it gives other prompts than the run was trained on ({data['task']['name']!r})"
        raise ConfigError(f"task {task.name!r}", found, "hand in the same task; to train on with other data, start a new run")


def _critic(data: Mapping[str, Any]) -> Critic:
    parts = {name: PARTS[name](**_tuples(data[name])) for name in ("lora", "optimizer") if data.get(name)}
    return Critic(**{**data, **parts})


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples, frozen dataclasses no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
