"""What a run does, without threads: open, step, evaluate, checkpoint, talk, close. ``Run`` adds its life on top."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import checkpoint
from workbench.batch import Batch, Completion, Prompt
from workbench.checkpoint import Checkpoints, Past, RunState
from workbench.errors import ConfigError, StateError, Stopped
from workbench.events import EventLog, standing
from workbench.folder import RunFolder
from workbench.knobs import Knobs, Settings, turned_after
from workbench.loop import Crew, Outcome, score, train_step
from workbench.metrics import metrics
from workbench.models.resolve import resolve_model
from workbench.models.tokenizer import Tokenizer
from workbench.plan import FILE, RunPlan
from workbench.records import Checkpoint, HeldOut, Memory, Notice, Progress, Restored, Step, mean
from workbench.rewards import Scorer
from workbench.runtime.worker import Draw, Worker, WorkerPlan
from workbench.supply import Supply
from workbench.tasks import Conversation, Example
from workbench.tasks.messages import Chat, read_prompt
from workbench.telling import StepBook, answers, samples, started, versions
from workbench.trackers import attach

if TYPE_CHECKING:
    from torch import Tensor

_OPENING = threading.Lock()


class Training:
    """One run's models, data and records. Everything here is called by one thread at a time."""

    def __init__(self, plan: RunPlan, should_stop: Callable[[], bool], past: Past | None = None) -> None:
        self.plan, self.should_stop = plan, should_stop
        self.folder = RunFolder(plan.folder, plan.name)
        self.log = EventLog()
        self.scorer = Scorer(plan.reward)
        self.knobs = Knobs(plan.settings, self.log, self._check_room)
        self.crew: Crew | None = None
        self.supply: Supply | None = None
        self.done = self.end = self.position = 0  # steps made, steps asked for, prompts used up
        self.batch: Batch | None = None
        self.closed = False
        self._end_trackers: Callable[[], None] | None = None
        self.evaluated_at: int | None = None  # the step of the last held-out score
        self._saved_at = 0  # the step of the last checkpoint
        self._reward: Any = None  # the reward's memory at the end of the last whole step
        self._updates = 0  # optimizer steps at the end of the last whole step
        self._waking: tuple[RunState, dict[str, Tensor]] | None = None  # from the checkpoint, until the models are there
        if past is None:
            self.log.emit(started(plan))
        else:
            self._go_on(past)

    def _go_on(self, past: Past) -> None:
        """Take up the folder, the events, and the state of the checkpoint."""
        self.folder.adopt(past.folder)
        try:
            if past.checkpoint is not None:
                self._waking = checkpoint.read(past.checkpoint)
                self._take_over(self._waking[0])
            self.log.go_on(past.folder / "events.jsonl")
            later = turned_after(self.done, self.log.events)
            scored = [event.data["step"] for event in standing(self.log.events) if event.kind == "held_out"]
            self.evaluated_at = self.done if past.checkpoint is not None and self.done in scored else None
            totals = [event.data["total"] for event in self.log.events if event.kind == "progress" and event.data["what"] == "steps"]
            self.end = max(self.done, int(totals[-1]) if totals else 0)  # it may have been asked for more since the checkpoint
            self.log.emit(Restored(self.done, past.checkpoint.name if past.checkpoint else "", versions()))
            self.knobs.resume(self.done, later)
        except BaseException:
            self.folder.release()
            raise

    def _take_over(self, state: RunState) -> None:
        self.knobs = Knobs(self.plan.settings.turned(state.settings), self.log, self._check_room)
        self.done, self.end, self.position = state.step, state.end, state.position
        self._saved_at = state.step
        self._reward = state.reward
        checkpoint.load_reward_state(self.plan.reward, state.reward)

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
        Checkpoints(self.folder.make(), plan.keep).set_aside(self.done)
        self.log.write_to(self.folder.make() / "events.jsonl")
        self._report("steps", self.done, self.end)  # so that a run that is killed before its first step knows
        self.folder.write_json(FILE, plan.saved())
        self.folder.write_json("placement.json", plan.devices.placement)
        if self._end_trackers is None:
            self._end_trackers = attach(self.log, plan.trackers, self.folder.make(), plan.shown())
        path = resolve_model(plan.model, plan.task.name, plan.task.demonstrations, self._report_or_stop)
        device = plan.devices.device
        dtype = "bfloat16" if device == "cuda" else "float32"
        worker = Worker(WorkerPlan(path, plan.lora, plan.optimizer, plan.engine, device, dtype, plan.seed), Tokenizer(path))
        try:
            ready = worker.open(self._report_or_stop)
            if self._waking is not None:
                state, tensors = self._waking
                worker.load_state(tensors, state.optimizer_steps, state.adapter_version)
            sync = worker.sync(self.done)
            worker.warm_up()
        except BaseException:
            worker.close()
            raise
        self.log.emit(ready, role="rollout", device=plan.devices.placement["rollout"][0])
        self.log.emit(sync, role="rollout", phase="sync")
        self.supply = Supply(plan, path, worker.window)
        self._fit_in_window()
        settings = self.knobs.settings
        self._updates, self._waking = worker.updates, None
        self._reward = checkpoint.reward_state(plan.reward)
        self.crew = Crew(worker, self.scorer, settings.algo, settings.sampling, self.should_stop)

    def close(self) -> None:
        """End the engine, free the memory, close the files. The records stay readable."""
        self.closed = True
        if self._end_trackers is not None:
            self._end_trackers()
        crew, self.crew = self.crew, None
        if self.supply is not None:
            self.supply.close()
        if crew is not None:
            crew.worker.close()
        self.scorer.close()
        self.knobs.close()

    # ------------------------------------------------------------ one step

    def step(self) -> Step:
        """The next step. One that fails or is stopped leaves no record, uses up no prompts, and isn't counted."""
        self._catch_up()
        number, began = self.done + 1, time.monotonic()
        settings = self.knobs.take(number)
        self.crew = replace(self._crew, algo=settings.algo, sampling=settings.sampling)
        rate = settings.optimizer.rate(number, self.end)
        step = StepBook(self.log, self._supply, number, self.position, self.should_stop)
        try:
            version = self.crew.worker.version
            outcome = train_step(number, step.draw, self.crew, rate, step.phase)
        except BaseException:
            self.knobs.give_back(number)
            checkpoint.load_reward_state(self.plan.reward, self._reward)  # what it was asked in vain doesn't count
            raise
        if outcome.sync is not None:
            self.log.emit(outcome.sync, role="rollout", phase="sync")
        record = outcome.record(number, rate, version, time.monotonic() - began, step.spent)
        return self._ended(replace(record, data_wait_seconds=step.waited), outcome, step.position)

    def _ended(self, record: Step, outcome: Outcome, position: int) -> Step:
        """The step is made: count it and write it down."""
        worker = self._crew.worker
        self.done, self.batch, self.position, self._updates = record.step, outcome.batch, position, worker.updates
        self._reward = checkpoint.reward_state(self.plan.reward)
        self.log.emit(record)  # first: where the disk is full, this is what has to be kept for later
        self.log.emit(samples(record.step, outcome.batch))
        self.log.emit(Memory(worker.peak_memory_gib()), device=self.plan.devices.placement["actor"][0])
        self._report("steps", record.step, max(self.end, record.step), str(record))
        if self.plan.checkpoint_every and record.step % self.plan.checkpoint_every == 0:
            self.checkpoint()
        return record

    # ------------------------------------------------------------ beside the loop

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left of what was asked for: no step, and no score at its end."""
        return self.done == self.end and (self.done == 0 or not self.plan.held_out or self.evaluated_at == self.done)

    def evaluate(self) -> None:
        """Score the held-out prompts with the policy as it is, once per step, and record it. Leaves a reward's memory as it was."""
        if not self.plan.held_out or self.evaluated_at == self.done:
            return
        self._catch_up()
        self._report("held_out", 0, 1, "scoring held-out prompts")
        longest = self.knobs.settings.sampling.max_tokens
        prompts = tuple(self._supply.prompt(e, longest) for e in self.plan.task.held_out(self.plan.held_out))
        draw = Draw(("held_out",), self.plan.task.held_out_temperature, longest, seeded=True)
        batch = Batch(prompts, tuple(self._crew.worker.rollout([p.ids for p in prompts], 1, draw, self.should_stop)))
        try:
            rewards = score(batch, self._crew)
        finally:
            checkpoint.load_reward_state(self.plan.reward, self._reward)
        spread = mean([(r - mean(rewards)) ** 2 for r in rewards]) * len(rewards) / max(1, len(rewards) - 1)
        error = (spread / len(rewards)) ** 0.5
        self.log.emit(HeldOut(self.done, mean(rewards), error, len(rewards), draw.temperature))
        self.log.emit(answers(self.done, replace(batch, rewards=tuple(rewards))))
        self.evaluated_at = self.done
        self._report("held_out", 1, 1, "")

    def asked(self, prompt: str | Sequence[Any], max_tokens: int) -> Prompt:
        """``prompt`` as the task puts its own: a text goes through the chat template, after the same system message, where those do."""
        text = read_prompt(prompt, "run.generate")
        example = self.plan.task.train(self.plan.seed, 0, 1)[0].text
        if isinstance(text, str) and isinstance(example, Conversation):
            first = example.messages[0]
            text = Chat(True, first.content if first.role == "system" else None)(text)
        return self._supply.prompt(Example(text, None, -1), max_tokens)

    def talk(self, prompt: Prompt, temperature: float, max_tokens: int, adapter: bool) -> Completion:
        """One completion of ``prompt``, from the trained policy or from the base."""
        self._catch_up()
        draw = Draw(("talk",), temperature, max_tokens, seeded=True, adapter=adapter)
        return self._crew.worker.rollout([prompt.ids], 1, draw, lambda: False)[0]

    def checkpoint(self, *, requested: bool = False) -> Path | None:
        """Write everything that a run goes on from. None where this moment is no such place.

        That is before the first step, after a policy that diverged, and after a step that was broken off between two minibatches.
        """
        worker = self._crew.worker
        whole = self.done > 0 and worker.updates == self._updates and worker.is_finite
        if not whole or (self._saved_at == self.done and not requested):
            return None
        state = RunState(
            step=self.done,
            end=self.end,
            position=self.position,
            adapter_version=worker.version,
            optimizer_steps=worker.updates,
            settings=self.knobs.used,
            reward=self._reward,
        )
        written = Checkpoints(self.folder.make(), self.plan.keep).write(state, worker.state(), requested=requested)
        self._saved_at = self.done
        self.log.emit(Checkpoint(self.done, str(written.path.relative_to(self.folder.make())), written.bytes, written.seconds))
        return written.path

    def save(self) -> None:
        """Write the adapter, unless it has diverged (then the one saved before stays), a checkpoint, and ``metrics.json``."""
        if self.folder.path is None:
            return
        if self.crew is not None and self.done:
            if self.crew.worker.is_finite:
                self.folder.write("adapter", self.crew.worker.save_adapter)
            else:
                self.log.emit(Notice("the adapter has weights that are not finite: it is not saved, the one saved before stays"))
            self.checkpoint()
        self.folder.write_json("metrics.json", asdict(metrics(self.log.events)))

    # ------------------------------------------------------------ inside

    @property
    def _crew(self) -> Crew:
        if self.crew is None:
            raise RuntimeError("the training is not open")
        return self.crew

    @property
    def _supply(self) -> Supply:
        if self.supply is None:
            raise RuntimeError("the training is not open")
        return self.supply

    def _fit_in_window(self) -> None:
        """Take back a limit on completions that was turned up before the engine's window was known, and say so."""
        try:
            self._check_room(self.knobs.wanted)
        except ConfigError as error:
            self.knobs.max_tokens = self.plan.sampling.max_tokens
            self.log.emit(Notice(f"max_tokens is taken back to {self.plan.sampling.max_tokens}: {error}"))

    def _check_room(self, settings: Settings) -> None:
        """Refuse a limit on completions for which the prompts seen so far leave no room."""
        if self.supply is None:
            return
        room = self.supply.window - max(1, self.supply.longest)
        if settings.sampling.max_tokens > room:
            found = f"the engine's window holds {self.supply.window} tokens, and the longest prompt so far has {self.supply.longest}"
            raise ConfigError(f"max_tokens={settings.sampling.max_tokens}", found, f"write {room} or less")

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
