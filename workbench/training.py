"""What a run does, without threads: open, step, evaluate, checkpoint, talk, close. ``Run`` adds its life on top."""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import checkpoint
from workbench.ahead import Ahead
from workbench.batch import Batch, Completion, Prompt
from workbench.checkpoint import Checkpoints, Past, RunState
from workbench.errors import ConfigError, StateError, Stopped
from workbench.events import EventLog, standing
from workbench.folder import RunFolder
from workbench.judge import Judge, JudgeHere, JudgeThere
from workbench.knobs import Knobs, Settings, turned_after
from workbench.loop import Crew, Outcome, learn, sample, score
from workbench.metrics import metrics
from workbench.models.resolve import resolve_model
from workbench.plan import FILE, RunPlan
from workbench.records import Checkpoint, HeldOut, Memory, Notice, Progress, Restored, Step, mean
from workbench.roles import Role
from workbench.runtime.assemble import assemble, choose
from workbench.runtime.plans import Draw
from workbench.runtime.pools import machine_of, split
from workbench.runtime.routes import Routes, routes
from workbench.runtime.team import Team
from workbench.supply import Supply
from workbench.tasks import Conversation, Example
from workbench.tasks.messages import Chat, read_prompt
from workbench.telling import StepBook, answers, driver_seats, resolved, samples, started, versions
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
        self.judge: Judge = JudgeHere(plan.reward)  # checked here, where it was written
        self._ahead: Ahead | None = None
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
        self.judge.load_state(state.reward)

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
        if self._end_trackers is None:
            self._end_trackers = attach(self.log, plan.trackers, self.folder.make(), plan.shown())
        path = resolve_model(plan.model, plan.task.name, plan.task.demonstrations, self._report_or_stop)
        team = assemble(plan.devices, plan.machine, plan.runtime, plan.name, lambda device: plan.worker(path, device))
        try:
            ready = team.open(self._report_or_stop, self.should_stop)
            if self._waking is not None:
                state, tensors = self._waking
                team.load_state(tensors, state.optimizer_steps, state.adapter_version)
            sync = team.sync(self.done)
            team.warm_up()
        except BaseException:
            team.close()
            raise
        self._settle(team)
        self.log.emit(ready, role="rollout", device=team.devices_of(Role.ROLLOUT)[0])
        self.log.emit(sync, role="rollout", phase="sync")
        self.supply = Supply(plan, path, team.window)
        self._fit_in_window()
        settings = self.knobs.settings
        self._updates, self._waking = team.updates, None
        if Role.REWARD in team.home:
            self.judge = JudgeThere(team)
            self.judge.load_state(self._reward)
        self._reward = self.judge.state()
        self.crew = Crew(team, self.judge, settings.algo, settings.sampling, self.should_stop)

    def _settle(self, team: Team) -> None:
        """Write down where every role is, as each process says itself; and who shares or waits for what."""
        seats = [*team.seats, *driver_seats(self.plan.devices, team)]
        self.folder.write_json("placement.json", [asdict(seat) for seat in seats])
        self.log.emit(Notice(resolved(seats)))
        for text in team.notices:
            self.log.emit(Notice(text))

    def close(self) -> None:
        """End the workers, free the memory, close the files. The records stay readable."""
        self.closed = True
        if self._end_trackers is not None:
            self._end_trackers()
        self._disband()
        self.judge.close()
        self.knobs.close()

    def _disband(self) -> None:
        """End the workers, and what works ahead of them."""
        self.rest()
        crew, self.crew = self.crew, None
        if self.supply is not None:
            self.supply.close()
        if crew is not None:
            crew.team.close()

    def recover(self) -> None:
        """Make the workers anew, from the last checkpoint: for a run one of whose workers died. Knobs stay as they were turned."""
        self._disband()
        found = Checkpoints(self.folder.make(), self.plan.keep).all()
        self._waking = checkpoint.read(found[-1]) if found else None
        state = self._waking[0] if self._waking else RunState(0, self.end, 0, 0, 0, {})
        self.done, self.position, self._saved_at, self._reward = state.step, state.position, state.step, state.reward
        self.evaluated_at = None
        self.log.emit(Restored(self.done, found[-1].name if found else "", versions()))
        self.knobs.resume(self.done, [])
        self.open()

    # ------------------------------------------------------------ one step

    def step(self) -> Step:
        """The next step. One that fails or is stopped leaves no record, uses up no prompts, and isn't counted."""
        self._catch_up()
        number, began = self.done + 1, time.monotonic()
        ahead, self._ahead = self._ahead, None
        book = ahead.book if ahead is not None else self._book(number, self.position)
        main = book if ahead is None else self._book(number, book.position)
        try:
            if ahead is not None:
                with main.phase("rollout"):
                    sampled = ahead.take()
            else:
                sampled = sample(number, main.draw, self._crew_of(number), main.phase)
            reward = self.judge.state()  # before it is asked about the next step
            if self.plan.overlap and number < self.end:
                self._ahead = Ahead(self._crew_of(number + 1), self._book(number + 1, book.position))
            rate = self.knobs.settings.optimizer.rate(number, self.end)
            outcome = learn(number, sampled, rate, main.phase, lambda: self._rest_engines(main))
        except BaseException:
            self.rest()
            self.knobs.give_back(number)
            self.judge.load_state(self._reward)  # what it was asked in vain doesn't count
            raise
        if outcome.sync is not None:
            self.log.emit(outcome.sync, role="rollout", phase="sync")
        record = outcome.record(number, rate, time.monotonic() - began, main.spent)
        self._reward = reward
        return self._ended(replace(record, data_wait_seconds=book.waited), outcome, book.position)

    def _book(self, number: int, position: int) -> StepBook:
        return StepBook(self.log, self._supply, number, position, self.should_stop)

    def _crew_of(self, number: int) -> Crew:
        """The crew under the rules of a step that begins."""
        settings = self.knobs.take(number)
        self.crew = replace(self._crew, algo=settings.algo, sampling=settings.sampling)
        return self.crew

    def _rest_engines(self, book: StepBook) -> None:
        """Wait for what is sampled ahead: that is time of the rollout which no other work hides."""
        if self._ahead is not None:
            with book.phase("rollout"):
                self._ahead.wait()

    def _wait_for_ahead(self) -> None:
        """Engines and rewards do one thing at a time."""
        if self._ahead is not None:
            self._ahead.wait()

    def rest(self) -> None:
        """Drop what is sampled ahead, where the run comes to rest: it is made again, from the policy of then."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop()
            self.knobs.give_back(ahead.book.number)
            if not self._crew.team.is_broken:
                self.judge.load_state(self._reward)

    def _ended(self, record: Step, outcome: Outcome, position: int) -> Step:
        """The step is made: count it and write it down."""
        team = self._crew.team
        self.done, self.batch, self.position, self._updates = record.step, outcome.batch, position, team.updates
        self.log.emit(record)  # first: where the disk is full, this is what has to be kept for later
        self.log.emit(samples(record.step, outcome.batch))
        for device, peak in team.peak_memory_gib().items():
            self.log.emit(Memory(peak), device=device)
        self._report("steps", record.step, max(self.end, record.step), str(record))
        if self.plan.checkpoint_every and record.step % self.plan.checkpoint_every == 0:
            self.checkpoint()
        return record

    # ------------------------------------------------------------ beside the loop

    @property
    def routes(self) -> Routes:
        """Of the team, or, before there is one, of the map."""
        if self.crew is not None:
            return self.crew.team.routes
        machine = machine_of(self.plan.devices, self.plan.machine)
        inline = choose(self.plan.runtime, self.plan.devices, machine) == "inline"
        return routes(split(self.plan.devices, machine), inline=inline)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left of what was asked for: no step, and no score at its end."""
        return self.done == self.end and (self.done == 0 or not self.plan.held_out or self.evaluated_at == self.done)

    def evaluate(self) -> None:
        """Score the held-out prompts with the policy as it is, once per step, and record it. Leaves a reward's memory as it was."""
        if not self.plan.held_out or self.evaluated_at == self.done:
            return
        self._wait_for_ahead()
        reward = self.judge.state()
        self._catch_up()
        self._report("held_out", 0, 1, "scoring held-out prompts")
        longest = self.knobs.settings.sampling.max_tokens
        prompts = tuple(self._supply.prompt(e, longest) for e in self.plan.task.held_out(self.plan.held_out))
        draw = Draw(("held_out",), self.plan.task.held_out_temperature, longest, seeded=True)
        batch = Batch(prompts, tuple(self._crew.team.rollout([p.ids for p in prompts], 1, draw, self.should_stop)))
        try:
            rewards = score(batch, self._crew)
        finally:
            self.judge.load_state(reward)
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
        self._wait_for_ahead()
        self._catch_up()
        draw = Draw(("talk",), temperature, max_tokens, seeded=True, adapter=adapter)
        return self._crew.team.rollout([prompt.ids], 1, draw, lambda: False)[0]

    def checkpoint(self, *, requested: bool = False) -> Path | None:
        """Write everything that a run goes on from. None where this moment is no such place.

        That is before the first step, after a policy that diverged, and after a step that was broken off between two minibatches.
        """
        team = self._crew.team
        whole = self.done > 0 and team.updates == self._updates and team.is_finite
        if not whole or (self._saved_at == self.done and not requested):
            return None
        state = RunState(
            step=self.done,
            end=self.end,
            position=self.position,
            adapter_version=team.version,
            optimizer_steps=team.updates,
            settings=self.knobs.used,
            reward=self._reward,
        )
        written = Checkpoints(self.folder.make(), self.plan.keep).write(state, team.state(), requested=requested)
        self._saved_at = self.done
        self.log.emit(Checkpoint(self.done, str(written.path.relative_to(self.folder.make())), written.bytes, written.seconds))
        return written.path

    def save(self) -> None:
        """Write the adapter, unless it has diverged (then the one saved before stays), a checkpoint, and ``metrics.json``."""
        if self.folder.path is None:
            return
        if self.crew is not None and self.done and not self.crew.team.is_broken:
            if self.crew.team.is_finite:
                self.folder.write("adapter", self.crew.team.save_adapter)
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
        team = self._crew.team
        if not team.in_sync:
            self.log.emit(team.sync(self.done), role="rollout", phase="sync")

    def _report_or_stop(self, what: str, done: float, total: float, note: str = "") -> None:
        self._report(what, done, total, note)
        if self.should_stop():
            raise Stopped(what)

    def _report(self, what: str, done: float, total: float, note: str = "") -> None:
        self.log.emit(Progress(what, done, total, note))
