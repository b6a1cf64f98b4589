"""What a run is made of, as it was written; and the same as JSON, from which another process goes on (replan.py)."""

from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from workbench import algos
from workbench.algos import Algorithm
from workbench.errors import ConfigError, check_kind
from workbench.knobs import Settings
from workbench.mapping import DeviceMap
from workbench.mapping.resolve import named
from workbench.models.critic import Critic, CriticPlan
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.resolve import check_model
from workbench.rewards import Reward, Service, reward_name
from workbench.roles import Role
from workbench.rollout.config import VLLM, Sampling, check_mode
from workbench.runtime.assemble import check_runtime, choose, is_here
from workbench.runtime.plans import WorkerPlan
from workbench.runtime.pools import in_driver, machine_of
from workbench.runtime.settings import Ray
from workbench.tasks import Task
from workbench.telemetry.exporter import endpoint
from workbench.telemetry.sampler import LEAST_HZ, MOST_HZ
from workbench.topology import Topology

FILE = "plan.json"
PARTS: dict[str, type] = {"lora": LoRA, "sampling": Sampling, "optimizer": Optimizer, "engine": VLLM}
PLAIN = ("model", "held_out", "name", "seed", "checkpoint_every", "keep", "prefetch", "overlap", "restart")
LOAD = ("load_hz", "load_csv")  # runs of before have none


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
    prometheus: int | str | None = None  # a port, or "ADDRESS:PORT", where its numbers can be scraped
    machine: Topology | None = None  # CPU slots that stand for GPUs; None: what is there
    runtime: str | Ray = "auto"
    overlap: int = 0  # steps that are sampled ahead of the one that is learnt from
    restart: bool = False  # make dead workers anew, from the last checkpoint
    full: bool = False  # train all of the actor's weights, and no adapter
    critic: Critic = field(default_factory=Critic)  # how it learns, where the algorithm has one
    load_hz: float = 2.0  # samples of the devices' load in a second; 0: none
    load_csv: bool = False  # write them to load.csv too
    profile: tuple[int, ...] = ()  # steps in which workers record what they tell one another

    def __post_init__(self) -> None:
        object.__setattr__(self, "devices", with_critic(self.devices, self.algo))
        check_kind("critic", self.critic, Critic, "wb.Critic(...); where it sits the map says")
        for name, kind in PARTS.items():
            check_kind(name, getattr(self, name), kind, f"wb.{kind.__name__}(...)")
        check_kind("seed", self.seed, int, "a whole number")
        check_kind("full", self.full, bool, "True to train all weights, False for an adapter")
        check_kind("load_csv", self.load_csv, bool, "True to write load.csv")
        check_kind("load_hz", self.load_hz, float, "samples a second, such as 2.0")
        if self.load_hz and not LEAST_HZ <= self.load_hz <= MOST_HZ:
            found = f"devices are sampled {LEAST_HZ:g} to {MOST_HZ:g} times a second"
            raise ConfigError(f"load_hz={self.load_hz}", found, "give 0 for not at all")
        if self.load_csv and not self.load_hz:
            raise ConfigError("load_csv=True with load_hz=0", "nothing is sampled, so the table stays empty", "leave one of them out")
        check_kind("held_out", self.held_out, int, "a number of prompts, 0 for none")
        if self.held_out < 0 or self.held_out == 1:
            raise ConfigError(f"held_out={self.held_out}", "a standard error takes at least 2 prompts", "give 2 or more, or 0 for none")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed={self.seed}", "seeds are whole numbers from 0 to below 2^63", "give a smaller one")
        if self.prometheus is not None:
            endpoint(self.prometheus)
        for name, least in (("keep", 1), ("prefetch", 0), ("checkpoint_every", 1)):
            value = getattr(self, name)
            if value is None and name == "checkpoint_every":
                continue
            check_kind(name, value, int, "a whole number")
            if value < least:
                raise ConfigError(f"{name}={value}", f"it is at least {least}", "leave it out for the default")
        _check_place(self)
        _check_critic(self)
        _check_overlap(self)
        _check_memory(self)
        _check_prefetch(self.devices, self.prefetch)

    @property
    def settings(self) -> Settings:
        """The part that may change while the run trains."""
        return Settings(self.algo, self.sampling, self.optimizer)

    @property
    def mode(self) -> str:
        """How the engine gets the weights: as the map says; else all of them where all are trained, and the adapter where one is."""
        asked = self.devices.places[Role.ROLLOUT].mode
        return asked if asked != "auto" else "full" if self.full else "adapter"

    @property
    def why_mode(self) -> str:
        """Why the mode is so, in words."""
        if self.devices.places[Role.ROLLOUT].mode != "auto":
            return "as the map says"
        return "all of them are trained" if self.full else "only the adapter changes, and the engine keeps a base of its own"

    @property
    def critic_shares(self) -> bool:
        """Whether the critic is an adapter on the actor's base."""
        return Role.CRITIC in self.devices.places and bool(self.devices.places[Role.CRITIC].share)

    def worker(self, model: Path, device: str, critic_model: Path | None = None) -> WorkerPlan:
        """What the workers are built from. ``device``: "cpu" or "cuda". ``critic_model``: of a critic with a base of its own."""
        return WorkerPlan(
            model=model,
            lora=None if self.full else self.lora,
            optimizer=self.optimizer,
            engine=self.engine,
            device=device,
            dtype="bfloat16" if device == "cuda" else "float32",
            seed=self.seed,
            reward=self.reward if self._reward_in_workers else None,
            critic=self._critic_plan(critic_model) if self.algo.needs_critic else None,
            mode=self.mode,
            kept=2 * self.overlap,
        )

    @property
    def _reward_in_workers(self) -> bool:
        return not in_driver(self.devices, Role.REWARD) and not self.devices.places[Role.REWARD].url

    def _critic_plan(self, model: Path | None) -> CriticPlan:
        lora = None if self.critic.full else self.critic.lora or self.lora
        return CriticPlan(lora, self.critic.optimizer or self.optimizer, self.seed + 1, None if self.critic_shares else model)

    def shown(self) -> dict[str, Any]:
        """The plan as plain values, for the first event."""
        plain: dict[str, Any] = {
            "full": self.full,
            "mode": self.mode,
            "task": self.task.name,
            "reward": reward_name(self.reward),
            "held_out": self.held_out,
        }
        plain |= {"critic": asdict(self.critic)} if self.algo.needs_critic else {}
        return plain | {name: asdict(getattr(self, name)) for name in PARTS}

    def saved(self) -> dict[str, Any]:
        """The plan as JSON for ``restored``. A function, a task or an algorithm of the user's own is there by name only."""
        origin = self.task.origin
        return {
            **{name: getattr(self, name) for name in (*PLAIN, *LOAD)},
            "full": self.full,
            "profile": list(self.profile),
            "devices": self.devices.to_dict(),
            "task": {
                "name": self.task.name,
                "fingerprint": self.task.fingerprint(self.seed),
                "origin": origin and asdict(origin),
                "held_out_temperature": self.task.held_out_temperature,
            },
            "reward": saved_reward(self.reward, self.devices, self.task),
            "algo": saved_algorithm(self.algo),
            "trackers": None if self.trackers is None else list(self.trackers),
            "prometheus": self.prometheus,
            "slots": None if self.machine is None else len(self.machine.gpus),
            "runtime": self.runtime if isinstance(self.runtime, str) else asdict(self.runtime),
            "critic": asdict(self.critic),
            **{name: asdict(getattr(self, name)) for name in PARTS},
        }


def reward_of(devices: DeviceMap, task: Task, given: Reward | None) -> Reward:
    """What a run is rewarded by: what was ``given``, else the service that the map names, else the task's scorer.

    Raises ConfigError where the map names a service, and something else was given.
    """
    place = devices.places.get(Role.REWARD)
    if place is None or not place.url:
        return given or task.scorer
    service = Service(place.url, shared_mem_name=place.shared_mem_name or None)
    if given is None:
        return service
    if not isinstance(given, Service) or given.url != service.url:
        found = f"the map's reward is the service at {service.url}, and Run(reward={reward_name(given)}) is something else"
        fix = (
            "leave one of them out; to combine it with others, write reward: cpu, and a wb.rewards.Service(url) within wb.rewards.Weighted"
        )
        raise ConfigError(f"reward: {str(place)!r}", found, fix)
    return given


def saved_reward(reward: Reward, devices: DeviceMap, task: Task) -> str | None:
    """Its name where it has to be handed in again; None of what plan and task say themselves."""
    known = reward is task.scorer or (isinstance(reward, Service) and bool(devices.places[Role.REWARD].url))
    return None if known else reward_name(reward)


def with_critic(devices: DeviceMap, algo: Algorithm) -> DeviceMap:
    """``devices``, with a critic on the actor's base where the algorithm needs one and the map has none."""
    if not algo.needs_critic or Role.CRITIC in devices.places:
        return devices
    return DeviceMap(**{str(role): place for role, place in devices.places.items()}, critic="share:actor")


def check_critic_wanted(critic: Critic | None, algo: Algorithm) -> None:
    """Raise ConfigError where a critic was written for an algorithm without one."""
    if critic is not None and not algo.needs_critic:
        fix = "leave it out, or write algo=wb.PPO()"
        raise ConfigError("Run(critic=wb.Critic(...))", f"{type(algo).__name__} has no critic", fix)


def _check_critic(plan: RunPlan) -> None:
    """Raise ConfigError where the map has a critic that nobody asks, or one that can't be as it should."""
    place = plan.devices.places.get(Role.CRITIC)
    if place is None:
        return
    if not plan.algo.needs_critic:
        found = f"{type(plan.algo).__name__} takes advantages from rewards alone: a critic would hold memory and never work"
        raise ConfigError(f"critic: {str(place)!r}", found, "leave the critic out of the map, or write algo=wb.PPO()")
    if place.share and (plan.critic.full or plan.critic.model is not None):
        asked = "Critic(full=True)" if plan.critic.full else f"Critic(model={plan.critic.model!r})"
        found = "on the actor's base it is an adapter (critic: share:actor)"
        raise ConfigError(asked, found, "give the critic devices in the map, its own or the actor's; or leave it out of Critic(...)")
    if plan.critic.model is not None:
        check_model(plan.critic.model, plan.task)
    budget = plan.critic.optimizer.token_budget if plan.critic.optimizer else None
    if place.share and budget not in (None, plan.optimizer.token_budget):
        asked, found = f"Critic(optimizer=wb.Optimizer(token_budget={budget}))", "on the actor's base micro-batches are the actor's"
        raise ConfigError(asked, found, "write Run(optimizer=wb.Optimizer(token_budget=...)), or give the critic devices in the map")


def _check_place(plan: RunPlan) -> None:
    """Raise ConfigError where the map can't be run at all, or not by the runtime that was asked for, or not on what is here."""
    check_runtime(plan.runtime)
    if plan.machine is not None and not plan.machine.is_cpu:
        found = f"{plan.machine.name} is a description of GPUs, and a run works on what is there"
        raise ConfigError(f"Run(topology={plan.machine.name!r})", found, "leave it out, or rehearse on wb.Topology.cpu(slots=4)")
    machine = machine_of(plan.devices, plan.machine)
    plan.devices.check_runnable(machine, lora=not plan.full)
    check_mode(plan.engine, plan.mode)
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
        raise ConfigError(asked, found, "give the rollout devices of its own, or write overlap=0")
    if getattr(plan.algo, "importance_cap", 0.0) is None:
        found = f"{type(plan.algo).__name__}(importance_cap=None) does not correct for samples of an older policy"
        raise ConfigError(asked, found, "write importance_cap=2.0, or leave overlap out")


def _check_memory(plan: RunPlan) -> None:
    """Raise ConfigError where a reward with a memory is in several processes: each would remember what it was asked itself."""
    devices = named(plan.devices, Role.REWARD, machine_of(plan.devices, plan.machine))
    if len(devices) > 1 and hasattr(plan.reward, "state_dict"):
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
