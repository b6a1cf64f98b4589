"""What a run is made of, as it was written; and the same as JSON, so that another process can go on with it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from workbench import algos, tasks
from workbench.algos import Algorithm, check_algorithm
from workbench.errors import ConfigError, check_kind
from workbench.knobs import Settings
from workbench.mapping import DeviceMap
from workbench.mapping.resolve import named
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.rewards import Reward, reward_name
from workbench.roles import Role
from workbench.rollout.config import VLLM, Sampling
from workbench.runtime.assemble import check_runtime, choose, is_here
from workbench.runtime.plans import WorkerPlan
from workbench.runtime.pools import in_driver, machine_of
from workbench.runtime.settings import Ray
from workbench.tasks import Origin, Task
from workbench.topology import Topology

FILE = "plan.json"
_PARTS: dict[str, type] = {"lora": LoRA, "sampling": Sampling, "optimizer": Optimizer, "engine": VLLM}
_PLAIN = ("model", "held_out", "name", "seed", "checkpoint_every", "keep", "prefetch", "overlap", "restart")


@dataclass(frozen=True)
class RunPlan:
    """Everything a run is made of."""

    devices: DeviceMap
    task: Task
    model: str
    algo: Algorithm
    reward: Reward
    lora: LoRA
    sampling: Sampling
    optimizer: Optimizer
    engine: VLLM
    held_out: int
    name: str
    seed: int
    folder: Path
    checkpoint_every: int | None = 10  # steps; None: only on request and at every rest
    keep: int = 2  # periodic checkpoints
    prefetch: int = 2  # steps' prompts that are tokenized ahead
    trackers: tuple[str, ...] | None = None  # None: TensorBoard where it is installed
    machine: Topology | None = None  # CPU slots that stand for GPUs; None: what is there
    runtime: str | Ray = "auto"
    overlap: int = 0  # steps that are sampled ahead of the one that is learnt from
    restart: bool = False  # make dead workers anew, from the last checkpoint

    def __post_init__(self) -> None:
        for name, kind in _PARTS.items():
            check_kind(name, getattr(self, name), kind, f"wb.{kind.__name__}(...)")
        check_kind("seed", self.seed, int, "a whole number")
        check_kind("held_out", self.held_out, int, "a number of prompts, 0 for none")
        if self.held_out < 0 or self.held_out == 1:
            raise ConfigError(f"held_out={self.held_out}", "a standard error takes at least 2 prompts", "give 2 or more, or 0 for none")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed={self.seed}", "seeds are whole numbers from 0 to below 2^63", "give a smaller one")
        for name, least in (("keep", 1), ("prefetch", 0), ("checkpoint_every", 1)):
            value = getattr(self, name)
            if value is None and name == "checkpoint_every":
                continue
            check_kind(name, value, int, "a whole number")
            if value < least:
                raise ConfigError(f"{name}={value}", f"it is at least {least}", "leave it out for the default")
        _check_place(self)
        _check_overlap(self)
        _check_memory(self)
        _check_prefetch(self.devices, self.prefetch)

    @property
    def settings(self) -> Settings:
        """The part that may change while the run trains."""
        return Settings(self.algo, self.sampling, self.optimizer)

    def worker(self, model: Path, device: str) -> WorkerPlan:
        """What the workers are built from. ``device``: "cpu" or "cuda"."""
        return WorkerPlan(
            model=model,
            lora=self.lora,
            optimizer=self.optimizer,
            engine=self.engine,
            device=device,
            dtype="bfloat16" if device == "cuda" else "float32",
            seed=self.seed,
            reward=None if in_driver(self.devices, Role.REWARD) else self.reward,
            kept=2 * self.overlap,
        )

    def shown(self) -> dict[str, Any]:
        """The plan as plain values, for the first event."""
        plain = {"task": self.task.name, "reward": reward_name(self.reward), "held_out": self.held_out}
        return plain | {name: asdict(getattr(self, name)) for name in _PARTS}

    def saved(self) -> dict[str, Any]:
        """The plan as JSON for ``restored``. A function, a task or an algorithm of the user's own is there by name only."""
        origin = self.task.origin
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "devices": self.devices.to_dict(),
            "task": {
                "name": self.task.name,
                "fingerprint": self.task.fingerprint(self.seed),
                "origin": origin and asdict(origin),
                "held_out_temperature": self.task.held_out_temperature,
            },
            "reward": None if self.reward is self.task.scorer else reward_name(self.reward),
            "algo": saved_algorithm(self.algo),
            "trackers": None if self.trackers is None else list(self.trackers),
            "slots": None if self.machine is None else len(self.machine.gpus),
            "runtime": self.runtime if isinstance(self.runtime, str) else asdict(self.runtime),
            **{name: asdict(getattr(self, name)) for name in _PARTS},
        }


def _check_place(plan: RunPlan) -> None:
    """Raise ConfigError where the map can't be run at all, or not by the runtime that was asked for, or not on what is here."""
    check_runtime(plan.runtime)
    if plan.machine is not None and not plan.machine.is_cpu:
        found = f"{plan.machine.name} is a description of GPUs, and a run works on what is there"
        raise ConfigError(f"Run(topology={plan.machine.name!r})", found, "leave it out, or rehearse on wb.Topology.cpu(slots=4)")
    machine = machine_of(plan.devices, plan.machine)
    plan.devices.check_runnable(machine)
    here = is_here(choose(plan.runtime, plan.devices, machine))
    if here and machine is None:
        plan.devices.check_present()


def _check_overlap(plan: RunPlan) -> None:
    """Raise ConfigError where the next step can't be sampled while this one is learnt from."""
    check_kind("overlap", plan.overlap, int, "0, or 1 for sampling one step ahead")
    asked = f"Run(overlap={plan.overlap})"
    if plan.overlap not in (0, 1):
        raise ConfigError(asked, "a batch may be one step old, no more", "write overlap=1, or leave it out")
    if not plan.overlap:
        return
    machine = machine_of(plan.devices, plan.machine)
    actor, rollout = set(named(plan.devices, Role.ACTOR, machine)), set(named(plan.devices, Role.ROLLOUT, machine))
    if actor & rollout:
        found = f"actor and rollout have {', '.join(sorted(actor & rollout))} in common: they take turns there"
        raise ConfigError(asked, found, "give the rollout devices of its own, or leave overlap out")
    if getattr(plan.algo, "importance_cap", 0.0) is None:
        found = f"{type(plan.algo).__name__}(importance_cap=None) does not correct for samples of an older policy"
        raise ConfigError(asked, found, "write importance_cap=2.0, or leave overlap out")


def _check_memory(plan: RunPlan) -> None:
    """Raise ConfigError where a reward with a memory is in several processes: each would remember what it was asked itself."""
    devices = named(plan.devices, Role.REWARD, machine_of(plan.devices, plan.machine))
    if len(devices) > 1 and not in_driver(plan.devices, Role.REWARD) and hasattr(plan.reward, "state_dict"):
        found = f"it has a memory (state_dict), and its {len(devices)} processes would remember different things"
        raise ConfigError(f"reward {reward_name(plan.reward)} on {', '.join(devices)}", found, "give the reward one device, or 'cpu'")


def _check_prefetch(devices: DeviceMap, prefetch: int) -> None:
    """Raise ConfigError where the map says that prompts are made ready ahead of the roles, and the run is to do no such thing."""
    for role, place in devices.places.items():
        for key in ("offload_strategy", "prompt_loading"):
            value = getattr(place, key)
            if value and not prefetch:
                found = f"the map says {role}: {key}: {value}, so that prompts are loaded ahead of the steps"
                raise ConfigError("prefetch=0", found, f"leave prefetch out, or {key} out of the map")


def saved_algorithm(algo: Algorithm) -> dict[str, Any]:
    """An algorithm as JSON: its fields, where it is one of the package's."""
    name = type(algo).__name__
    ours = getattr(algos, name, None) is type(algo) and is_dataclass(algo)
    return {"name": name, "fields": {field.name: getattr(algo, field.name) for field in fields(algo)} if ours else None}  # type: ignore[arg-type]


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
    reward = given.get("reward") or task.scorer
    _check_same("algo", json.loads(json.dumps(saved_algorithm(check_algorithm(algo)))), data["algo"])
    _check_same("reward", None if reward is task.scorer else reward_name(reward), data["reward"])
    parts = {name: cls(**_tuples(data[name])) for name, cls in _PARTS.items()}
    plan = RunPlan(
        **{name: data[name] for name in _PLAIN},
        **parts,
        devices=DeviceMap.load(given.get("devices") or data["devices"]),
        task=task,
        algo=algo,
        reward=reward,
        trackers=None if data["trackers"] is None else tuple(data["trackers"]),
        machine=None if data["slots"] is None else Topology.cpu(data["slots"]),
        runtime=given.get("runtime") or (data["runtime"] if isinstance(data["runtime"], str) else Ray(**data["runtime"])),
        folder=path.parent,
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


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows no tuples, frozen dataclasses no lists."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
