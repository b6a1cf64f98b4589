"""A training run and its life: train, start, pause, resume, stop, wait, close, generate, summary.

One thread at a time trains: the caller's (``train``) or the run's own (``start``). Whatever touches the models holds one
lock, so a ``generate`` from a notebook cell falls between two steps.
"""

import threading
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import workbench
from workbench import console, views
from workbench.algos import GRPO, Algorithm, check_algorithm
from workbench.errors import ConfigError, StateError, Stopped, check_kind, spelled
from workbench.look import Look
from workbench.mapping import DeviceMap
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.resolve import check_model
from workbench.records import Notice, State, Step
from workbench.rewards import Reward
from workbench.rollout.config import VLLM, Sampling
from workbench.tasks import Task
from workbench.training import RunPlan, Training

if TYPE_CHECKING:
    from workbench.views import Comparison

BUSY = ("starting", "running", "paused")

_open: "weakref.WeakValueDictionary[str, Run]" = weakref.WeakValueDictionary()


@spelled(rewards="reward", reward_funcs="reward", algorithm="algo", dataset="task", peft_config="lora", vllm="engine", output_dir="folder")
class Run(Look):
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
        older = _open.get(name)
        if older is not None:
            older.close()
        self._stop, self._go, self._lock = threading.Event(), threading.Event(), threading.RLock()
        self._resting = threading.Event()
        self._go.set()
        self._training = Training(plan, self._stop.is_set)
        self._thread: threading.Thread | None = None
        self._iterating = False
        self.state, self.error = "new", None
        self.plan = plan
        _open[name] = self
        if plan.devices.device == "cuda":
            self._training.log.emit(Notice("all roles run in this process: the GPU's memory is fully back only when it ends"))
        elif workbench.TORCH_CAME_FIRST:
            warnings.warn("torch was imported before workbench: on a busy CPU the engine may run ten times slower", stacklevel=3)

    # ------------------------------------------------------------ training

    def train(self, steps: int) -> Iterator[Step]:
        """Train ``steps`` more steps in the caller's thread: ``for step in run.train(50): ...``.

        Leaving the loop is a pause: another ``train`` or ``start`` goes on where it was left. Held-out prompts are scored
        before the first step and after the last. Raises what failed; an interrupt pauses.
        """
        self._check_idle("train", steps)
        return self._train(steps)

    def _train(self, steps: int) -> Iterator[Step]:
        self._check_idle("train", steps)
        with console.progress(self._training.log):
            yield from self._drive(steps)

    def start(self, steps: int) -> "Run":
        """Train ``steps`` more steps in a thread of the run's own; returns at once. ``wait`` for it, or ``watch`` it."""
        self._check_idle("start", steps)
        self._thread = threading.Thread(target=self._work, args=(steps,), name=f"workbench-{self.plan.name}", daemon=True)
        self._set("starting")
        self._thread.start()
        return self

    def _work(self, steps: int) -> None:
        try:
            for _ in self._drive(steps):
                pass
        except BaseException as error:
            self.error = error

    def _drive(self, steps: int) -> Iterator[Step]:
        """The one way through a run: open, evaluate, step by step, evaluate, save."""
        training, end, finished = self._training, self._training.done + steps, False
        self._iterating, self.error = True, None
        self._stop.clear()
        self._resting.clear()
        try:
            self._set("starting")
            with self._lock:
                training.open()
                if training.done == 0:
                    training.evaluate()
            self._set("running")
            while training.done < end:
                self._rest()
                with self._lock:
                    step = training.step(end)
                yield step
            with self._lock:
                training.evaluate()
            finished = True
        except Stopped:
            self._set("stopped")
        except (KeyboardInterrupt, GeneratorExit):
            self._set("paused")
            raise
        except BaseException as error:
            self._set("failed", f"{type(error).__name__}: {error}")
            raise
        finally:
            self._iterating = False
            training.save()
            if finished:
                self._set("finished")
            self._resting.set()

    def _rest(self) -> None:
        """Between two steps: wait while paused. Raises Stopped when it's time to go."""
        if not self._go.is_set():
            self._set("paused")
            self._training.save()
            self._resting.set()
            while not self._go.wait(0.05):
                if self._stop.is_set():
                    raise Stopped("pause")
            self._resting.clear()
            self._set("running")
        if self._stop.is_set():
            raise Stopped("step")

    # ------------------------------------------------------------ control

    def pause(self) -> None:
        """Rest after the step in progress; returns when the run rests. Nothing to do where nothing runs."""
        self._go.clear()
        if not self._is_alive:
            self._go.set()
            return
        if threading.current_thread() is not self._thread:
            self._resting.wait()
            views.refresh(self._training.log)

    def resume(self) -> None:
        """Go on after ``pause``. Raises StateError where no thread rests: after a loop was left, ``train`` or ``start`` goes on."""
        if not self._is_alive:
            found = f"no thread of this run rests ({self.state}, {self._training.done} steps)"
            raise StateError("run.resume", found, "train(n) or start(n) to make n more steps")
        self._go.set()

    def stop(self) -> None:
        """End training now: the step in progress is dropped, within a second also in a long rollout. ``start`` may follow."""
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._go.set()

    def wait(self, timeout: float | None = None, *, until_step: int | None = None) -> "Run":
        """Wait until the thread is done, with a progress bar, and raise what failed in it. An interrupt pauses the run.

        ``timeout``: seconds at most. ``until_step``: only until that step is made.
        """
        if self.state == "new":
            raise StateError("run.wait", "nothing was started", "start(n) first")
        if self._thread is not None:
            try:
                console.follow(
                    self._training.log, lambda: self._is_alive and (until_step is None or self._training.done < until_step), timeout
                )
            except KeyboardInterrupt:
                self.pause()
                raise
            views.refresh(self._training.log)
        if self.error is not None:
            raise self.error
        return self

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
        with self._lock:
            self._training.open()
            self._training.evaluate()

    def __repr__(self) -> str:
        where = self._training.folder.path
        return f"Run({self.plan.name!r}, {self.state}, {self._training.done} steps{f', {where}' if where else ''})"

    # ------------------------------------------------------------ inside

    def _set(self, state: str, error: str = "") -> None:
        if self.state != state:
            self.state = state
            self._training.log.emit(State(state, error))

    def _has_made(self, step: int | None) -> bool:
        return step is not None and self._training.done >= step

    @property
    def _is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _check_open(self, call: str) -> None:
        if self.state == "closed":
            raise StateError(f"run.{call}", "the run is closed", "make a new Run")

    def _check_idle(self, call: str, steps: int) -> None:
        self._check_open(call)
        check_kind(f"run.{call}: steps", steps, int, "a number of steps")
        if steps < 1:
            raise ConfigError(f"run.{call}({steps})", "a run has at least one step", "give the number of steps to train")
        if self._iterating or self._is_alive:
            raise StateError(f"run.{call}", f"this run trains already ({self.state})", "wait(), stop(), or resume() it")
