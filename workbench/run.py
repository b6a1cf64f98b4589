"""A training run: made of what a person writes, trained (life.py), looked at (look.py), talked to, closed."""

import warnings
import weakref
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench import views
from workbench.algos import GRPO, Algorithm, check_algorithm
from workbench.beside import held
from workbench.checkpoint import Past, find
from workbench.errors import ConfigError, StateError, Stopped, check_kind, spelled
from workbench.knobs import Knobs
from workbench.life import Life
from workbench.mapping import DeviceMap
from workbench.models.critic import Critic
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.resolve import check_model
from workbench.past import PastRun, load
from workbench.plan import RunPlan, check_critic_wanted, reward_of
from workbench.profiling import profiled_steps
from workbench.records import Notice
from workbench.replan import restored
from workbench.rewards import Reward, check_outside
from workbench.rollout.config import VLLM, Sampling
from workbench.runtime.assemble import check_runtime, choose
from workbench.runtime.routes import Routes
from workbench.runtime.settings import Ray
from workbench.tasks import Task
from workbench.topology import Topology
from workbench.trackers import check_trackers

if TYPE_CHECKING:
    from workbench.views import Comparison

_open: "weakref.WeakValueDictionary[str, Run]" = weakref.WeakValueDictionary()


@spelled(rewards="reward", reward_funcs="reward", algorithm="algo", dataset="task", peft_config="lora", vllm="engine", output_dir="folder")
class Run(Life):
    """Trains a LoRA actor on rollouts from vLLM.

    ``devices``: a DeviceMap, a file, a mapping, or None (the first GPU, else the CPU). ``model``: a folder, a hub name, or "tiny".
    ``reward``: any function (prompt, completion, answer) -> float, sync or async; None: the task's scorer. ``critic``: how the critic of
    PPO learns; where the map has none it is a second adapter on the actor's base. ``held_out``: how many
    prompts, never trained on, are scored before and after. ``topology``: ``Topology.cpu(slots=4)`` rehearses a map of GPUs on CPU slots.
    ``runtime``: "inline" (all roles in this process), "ray" (a process per device) or ``wb.Ray(...)``; "auto": inline on one CPU, else
    Ray. ``overlap=1`` samples the next step while this one is learnt from, where actor and rollout have devices of their own.
    ``restart``: when a worker dies, go on from the last checkpoint with new ones. ``full``: train all of the actor's weights
    instead of an adapter; the reference is then a model beside it. ``load_hz``: how often a second the load of every device is sampled
    while the run works, up to 4; 0: not at all. ``load_csv``: write the samples to ``load.csv`` too. ``prometheus=9400``: its numbers can
    be scraped at that port of the loopback (0: any that is free, ``run.metrics_url`` says which), or at "ADDRESS:PORT".
    ``profile=range(3, 5)``: in these steps the workers record which collectives they make (``run.profile``, and traces in the folder).

    Nothing is loaded before the first ``train``, ``start`` or ``generate``. Raises ConfigError on values that can't work and StateError
    on calls that the run's state doesn't allow. A run of the same name that is still open in this process is closed first, so that
    running a cell again does no harm.
    """

    def __init__(
        self,
        devices: DeviceMap | str | Path | dict[str, Any] | None = None,
        *,
        task: Task,
        model: str | Path = "tiny",
        algo: Algorithm | None = None,
        reward: Reward | None = None,
        lora: LoRA | None = None,
        sampling: Sampling | None = None,
        optimizer: Optimizer | None = None,
        engine: VLLM | None = None,
        critic: Critic | None = None,
        held_out: int = 256,
        checkpoint_every: int | None = 10,
        keep: int = 2,
        prefetch: int = 2,
        trackers: str | Sequence[str] | None = None,
        prometheus: int | str | None = None,
        topology: Topology | None = None,
        runtime: str | Ray = "auto",
        overlap: int = 0,
        restart: bool = False,
        full: bool = False,
        load_hz: float = 2.0,
        load_csv: bool = False,
        profile: Sequence[int] | None = None,
        name: str = "run",
        seed: int = 0,
        folder: str | Path = "runs",
    ) -> None:
        check_kind("task", task, Task, "wb.tasks.sorting(), reasoning_gym(...) or from_list(...)")
        places, algo = DeviceMap.load(devices), check_algorithm(GRPO() if algo is None else algo)
        check_critic_wanted(critic, algo)
        if full and lora is not None:
            raise ConfigError("Run(full=True, lora=...)", "where all weights are trained there is no adapter", "leave one of them out")
        plan = RunPlan(
            devices=places,
            task=task,
            model=check_model(model, task),
            algo=algo,
            reward=reward_of(places, task, reward),
            lora=lora or LoRA(),
            sampling=sampling or Sampling(),
            optimizer=optimizer or Optimizer(),
            engine=engine or VLLM(),
            critic=Critic() if critic is None else critic,
            held_out=held_out,
            name=name,
            seed=seed,
            folder=Path(folder),
            checkpoint_every=checkpoint_every,
            keep=keep,
            prefetch=prefetch,
            trackers=None if trackers is None else check_trackers(trackers),
            prometheus=prometheus,
            machine=topology,
            runtime=check_runtime(runtime),
            overlap=overlap,
            restart=restart,
            full=full,
            load_hz=load_hz,
            load_csv=load_csv,
            profile=profiled_steps(profile),
        )
        self._begin(plan, None)

    def _begin(self, plan: RunPlan, past: Past | None, asked: Path | None = None) -> None:
        """Take the place of an open run of the same name; last, so that a mistake in the cell closes none."""
        if past is None:
            super().__init__(plan)
        older = _open.get(plan.name)
        if older is not None:
            older.close()
            if past is not None and asked is not None and asked.resolve() == past.folder:
                past = find(past.folder)  # closing it wrote a newer checkpoint
        if past is not None:
            super().__init__(plan, past)
        _open[plan.name] = self
        self.knobs.belong_to(self)
        inline = choose(plan.runtime, plan.devices, plan.machine) == "inline"
        if inline and plan.devices.device == "cuda":
            self._training.log.emit(Notice("all roles run in this process: the GPU's memory is fully back only when it ends"))
        elif inline and workbench.TORCH_CAME_FIRST:
            warnings.warn("torch was imported before workbench: on a busy CPU the engine may run ten times slower", stacklevel=3)

    @classmethod
    def restore(
        cls,
        path: str | Path,
        *,
        task: Task | None = None,
        reward: Reward | None = None,
        algo: Algorithm | None = None,
        devices: DeviceMap | str | Path | dict[str, Any] | None = None,
        engine: VLLM | None = None,
        runtime: str | Ray | None = None,
        overlap: int | None = None,
        prometheus: int | str | None = None,
    ) -> "Run":
        """Go on with a run whose process has ended, from its last checkpoint: ``Run.restore("runs/run").start()``.

        ``path``: the run's folder, the link ``runs/NAME``, or one of its checkpoints (later ones are set aside then). What was written as
        code (a task from data in memory, a reward, an algorithm of one's own) has to be handed in again; ``devices``, ``engine``,
        ``runtime``, ``overlap`` and ``prometheus`` may differ. On a CPU, with the same versions, the numbers are those of a run that was
        never interrupted; knobs turned after the checkpoint are turned again at their steps. Raises ConfigError on a damaged checkpoint,
        naming the one before, and StateError where another process has the run open.
        """
        past = find(Path(path))
        given: dict[str, Any] = {"task": task, "reward": reward, "algo": algo, "devices": devices, "engine": engine, "overlap": overlap}
        given |= {"runtime": None if runtime is None else check_runtime(runtime), "prometheus": prometheus}
        run = cls.__new__(cls)
        run._begin(restored(past.folder, given), past, Path(path))
        return run

    @staticmethod
    def load(path: str | Path) -> PastRun:
        """Open a run read-only, alive or not: ``Run.load("runs/run").summary()``. Raises ConfigError where there is none."""
        return load(path)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Stop, end the engine, free the memory. The records stay: ``summary`` and ``watch`` go on working. Twice is harmless."""
        if self.state == "closed":
            return
        self.stop()
        with self._lock:
            self._training.close()
        try:
            self._set("closed")
            views.refresh(self._training.log)
        finally:  # also on a full disk: the folder is free for another process
            self._training.log.close()
            self._training.folder.release()
            if _open.get(self.plan.name) is self:
                del _open[self.plan.name]

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ looking

    def generate(self, prompt: str | Sequence[Any], *, temperature: float = 0.0, max_tokens: int | None = None) -> "Comparison":
        """What the trained policy says to ``prompt``, beside the base. Greedy unless told otherwise; waits for a step in progress.

        ``prompt``: a text, put as the task puts its own (through the chat template where those are), or a conversation as a message list.
        """
        self._check_open("generate")
        check_outside("run.generate")
        check_kind("run.generate: temperature", temperature, float, "0 for greedy, or up to 2")
        if not 0 <= temperature <= 2:
            raise ConfigError(f"run.generate(temperature={temperature})", "vLLM samples at 0 to 2", "give 0 for greedy")
        longest = max_tokens or self.knobs.max_tokens
        with self._models("generate"):
            self._training.open()
            asked = self._training.asked(prompt, longest)
            trained = self._training.talk(asked, temperature, longest, adapter=True).text
            # where all weights are trained no base is left
            base = None if self.plan.full else self._training.talk(asked, temperature, longest, adapter=False).text
        return views.comparison(asked.question, trained, base)

    @property
    def routes(self) -> Routes:
        """What goes from which role to which, derived from the map, with the bytes of the last step once there was one."""
        return self._training.routes

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes the run's numbers; None before it starts, after it is closed, and without ``prometheus=``."""
        exporter = self._training.following.exporter
        return None if exporter is None else exporter.url

    @property
    def knobs(self) -> Knobs:
        """What may be turned while the run trains: ``run.knobs.learning_rate = 3e-4`` acts from the next step on."""
        return self._training.knobs

    def checkpoint(self) -> Path:
        """Write a checkpoint now, after the step in progress, and keep it for good. Raises StateError where there is no whole step."""
        self._check_open("checkpoint")
        check_outside("run.checkpoint")
        with self._models("checkpoint"):
            self._training.open()
            path = self._training.checkpoint(requested=True)
        if path is None:
            found = "no step is made yet" if not self._training.done else "the last step was broken off between two updates, or diverged"
            raise StateError("run.checkpoint", found, "make a step first")
        return path

    def evaluate(self) -> None:
        """Score the held-out prompts now, where that was not done since the last step."""
        self._check_open("evaluate")
        check_outside("run.evaluate")
        try:
            with self._models("evaluate"):
                self._training.open()
                self._training.evaluate()
        except Stopped as stopped:
            raise StateError("run.evaluate", "stop() was called meanwhile", "call it again") from stopped

    def _models(self, call: str) -> AbstractContextManager[None]:
        """The models, between two steps. Raises StateError while a step holds them that waits for a reward service."""

        def refuse() -> None:
            if self._waits:
                found = "the step in progress holds the models, and waits for its reward service"
                raise StateError(f"run.{call}", found, "see to the service, or stop() the run")

        return held(self._lock, refuse)

    def __repr__(self) -> str:
        where = self._training.folder.path
        return f"Run({self.plan.name!r}, {self.state}, {self._training.done} steps{f', {where}' if where else ''})"
