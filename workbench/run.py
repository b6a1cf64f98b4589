"""A training run: made of what a person writes, trained (life.py), looked at (look.py), talked to, closed."""

import threading
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench import views
from workbench.algos import GRPO, Algorithm, check_algorithm
from workbench.errors import ConfigError, StateError, Stopped, check_kind, spelled
from workbench.life import Life
from workbench.mapping import DeviceMap
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.resolve import check_model
from workbench.records import Notice
from workbench.rewards import REWARD_THREAD, Reward
from workbench.rollout.config import VLLM, Sampling
from workbench.tasks import Task
from workbench.training import RunPlan

if TYPE_CHECKING:
    from workbench.views import Comparison

_open: "weakref.WeakValueDictionary[str, Run]" = weakref.WeakValueDictionary()


@spelled(rewards="reward", reward_funcs="reward", algorithm="algo", dataset="task", peft_config="lora", vllm="engine", output_dir="folder")
class Run(Life):
    """Trains a LoRA actor on rollouts from vLLM.

    ``devices``: a DeviceMap, a file, a mapping, or None (the first GPU, else the CPU). ``model``: a folder, a hub name, or "tiny".
    ``reward``: any function (prompt, completion, answer) -> float, sync or async; None: the task's scorer. ``held_out``: how many
    prompts, never trained on, are scored before and after. Nothing is loaded before the first ``train``, ``start`` or ``generate``.
    Raises ConfigError on values that can't work and StateError on calls that the run's state doesn't allow. A run of the same name
    that is still open in this process is closed first, so that running a cell again does no harm.
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
        held_out: int = 256,
        name: str = "run",
        seed: int = 0,
        folder: str | Path = "runs",
    ) -> None:
        check_kind("task", task, Task, "wb.tasks.sorting(), reasoning_gym(...) or from_list(...)")
        plan = RunPlan(
            devices=DeviceMap.load(devices),
            task=task,
            model=check_model(model, task),
            algo=check_algorithm(GRPO() if algo is None else algo),
            reward=reward or task.scorer,
            lora=lora or LoRA(),
            sampling=sampling or Sampling(),
            optimizer=optimizer or Optimizer(),
            engine=engine or VLLM(),
            held_out=held_out,
            name=name,
            seed=seed,
            folder=Path(folder),
        )
        super().__init__(plan)
        older = _open.get(name)
        if older is not None:  # last: a mistake in this cell must not close the run that is open
            older.close()
        _open[name] = self
        if plan.devices.device == "cuda":
            self._training.log.emit(Notice("all roles run in this process: the GPU's memory is fully back only when it ends"))
        elif workbench.TORCH_CAME_FIRST:
            warnings.warn("torch was imported before workbench: on a busy CPU the engine may run ten times slower", stacklevel=3)

    # ------------------------------------------------------------ the end

    def close(self) -> None:
        """Stop, end the engine, free the memory. The records stay: ``summary`` and ``watch`` go on working. Twice is harmless."""
        if self.state == "closed":
            return
        self.stop()
        with self._lock:
            self._training.close()
        self._set("closed")
        views.refresh(self._training.log)
        self._training.log.close()
        if _open.get(self.plan.name) is self:
            del _open[self.plan.name]

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # ------------------------------------------------------------ looking

    def generate(self, prompt: str, *, temperature: float = 0.0, max_tokens: int | None = None) -> "Comparison":
        """What the trained policy says to ``prompt``, beside the base. Greedy unless told otherwise; waits for a step in progress."""
        self._check_open("generate")
        if threading.current_thread().name == REWARD_THREAD:
            found = "the step that waits for this reward holds the models"
            raise StateError("run.generate in a reward", found, "score with another model")
        check_kind("run.generate: temperature", temperature, float, "0 for greedy, or up to 2")
        if not 0 <= temperature <= 2:
            raise ConfigError(f"run.generate(temperature={temperature})", "vLLM samples at 0 to 2", "give 0 for greedy")
        if not isinstance(prompt, str) or not prompt:
            raise ConfigError(
                f"run.generate({prompt!r})", "a prompt is one text that is not empty", "give a str; call it once for each prompt"
            )
        longest = max_tokens or self.plan.sampling.max_tokens
        with self._lock:
            self._training.open()
            trained, base = (self._training.talk(prompt, temperature, longest, adapter) for adapter in (True, False))
        return views.comparison(prompt, trained.text, base.text)

    def evaluate(self) -> None:
        """Score the held-out prompts now, where that was not done since the last step."""
        self._check_open("evaluate")
        try:
            with self._lock:
                self._training.open()
                self._training.evaluate()
        except Stopped as stopped:
            raise StateError("run.evaluate", "stop() was called meanwhile", "call it again") from stopped

    def __repr__(self) -> str:
        where = self._training.folder.path
        return f"Run({self.plan.name!r}, {self.state}, {self._training.done} steps{f', {where}' if where else ''})"
