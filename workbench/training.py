"""What a run does, without threads: step, evaluate, checkpoint, talk. ``Run`` adds its life on top."""

import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench import profiling
from workbench.ahead import Ahead
from workbench.algos import Algorithm
from workbench.batch import Batch, Completion, Prompt
from workbench.checkpoint import Checkpoints, RunState
from workbench.knobs import changed
from workbench.loop import learn, sample, score
from workbench.metrics import metrics
from workbench.opening import Opening
from workbench.records import Checkpoint, HeldOut, Memory, Notice, Step, mean
from workbench.runtime.plans import Draw
from workbench.stages import Crew, Outcome, Sampled
from workbench.tasks import Conversation, Example
from workbench.tasks.messages import Chat, read_prompt
from workbench.telemetry import LoadLookout, Lookout
from workbench.telemetry.stream import Stream
from workbench.telling import StepBook, answers, samples


class Training(Opening):
    """One run's steps, and what is done between them. Everything here is called by one thread at a time."""

    # ------------------------------------------------------------ one step

    def step(self) -> Step:
        """The next step. One that fails or is stopped leaves no record, uses up no prompts, and isn't counted."""
        self._catch_up()
        self._crew.team.count(step_ended=False)
        number, began = self.done + 1, time.monotonic()
        ahead, self._ahead = self._ahead, None
        book = self._book(number, self.position)
        try:
            if number in self.plan.profile:
                profiling.begin(self._crew.team)
            crew, rate = (ahead.crew, ahead.rate) if ahead is not None else self._begin(number)
            sampled = self._sampled(ahead, book, crew)
            reward = self.judge.state()  # before it is asked about the next step
            if self.plan.overlap and number < self.end:
                self._ahead = Ahead(*self._begin(number + 1), self._book(number + 1, book.position))
            outcome = learn(number, sampled, rate, book.phase, lambda: self._rest_engines(book))
            recorded = profiling.end(self._crew.team) if number in self.plan.profile else None
        except BaseException:
            self.rest()
            self.knobs.give_back(number)
            self.judge.load_state(self._reward)  # what it was asked in vain doesn't count
            if number in self.plan.profile:
                profiling.drop(self._crew.team)
            raise
        if outcome.sync is not None:
            self.log.emit(outcome.sync, role="rollout", phase="sync")
        record = outcome.record(number, rate, time.monotonic() - began - book.rested, book.spent)
        self._reward = reward
        made = self._ended(replace(record, data_wait_seconds=book.waited, rested_seconds=book.rested), outcome, book.position, recorded)
        return made

    def _sampled(self, ahead: Ahead | None, book: StepBook, crew: Crew) -> Sampled:
        """The step's experience: sampled now, or waited for."""
        if ahead is None:
            return sample(book.number, book.draw, crew, book.phase)
        with book.phase("rollout", waits=True):
            sampled = ahead.take()
        book.position, book.waited = ahead.book.position, ahead.book.waited
        return sampled

    def _book(self, number: int, position: int) -> StepBook:
        accounts = self._crew.team.accounts
        return StepBook(self.log, self._supply, number, position, self.should_stop, self.waiting.rests, accounts)

    def _begin(self, number: int) -> tuple[Crew, float]:
        """The rules and the learning rate of a step that begins."""
        settings, critic = self.knobs.take(number), self.plan.critic
        if settings.algo.needs_critic and number == self.done + 1 == 1 and self.end <= critic.warmup_steps:
            self.log.emit(Notice(f"only the critic learns: its warm-up is {critic.warmup_steps} steps, and the run has {self.end}"))
        self.crew = replace(
            self._crew,
            algo=self._adapted(settings.algo),
            sampling=settings.sampling,
            critic_rate=(critic.optimizer or settings.optimizer).rate(number, self.end),
            actor_waits=settings.algo.needs_critic and number <= critic.warmup_steps,
        )
        return self.crew, settings.optimizer.rate(number, self.end)

    def _adapted(self, algo: Algorithm) -> Algorithm:
        """``algo`` with the weight of its KL as it has adapted; a person who turns the knob begins anew."""
        if self._kl is None or getattr(algo, "kl", None) != self._kl[0]:
            return algo
        return changed(algo, "kl", self._kl[1])

    def _adapt(self, kl: float, completions: int) -> None:
        """Let the algorithm answer to a step's KL: as it is now, for the next step may have begun, and a knob been turned."""
        algo, asked = self._adapted(self.knobs.settings.algo), getattr(self.knobs.settings.algo, "kl", None)
        adapted = algo.adapted(kl, completions)
        if adapted is not algo and asked is not None:
            self._kl = (asked, getattr(adapted, "kl", asked))

    def _rest_engines(self, book: StepBook) -> None:
        """Wait for what is sampled ahead: that is time of the rollout which no other work hides."""
        if self._ahead is not None:
            with book.phase("rollout", waits=True):
                self._ahead.wait()

    def _wait_for_ahead(self) -> None:
        """Engines and rewards do one thing at a time."""
        if self._ahead is not None:
            self._ahead.wait()

    def _ended(self, record: Step, outcome: Outcome, position: int, recorded: profiling.Recorded | None) -> Step:
        """The step is made: count it and write it down."""
        team = self._crew.team
        team.count(step_ended=True)
        self.done, self.batch, self.position, self._made = record.step, outcome.batch, position, team.made
        if outcome.update is not None:  # a KL that the actor did not learn under says nothing of its weight
            self._adapt(outcome.kl, len(outcome.batch.completions))
        self.log.emit(record)  # first: where the disk is full, this is what has to be kept for later
        self.log.emit(samples(record.step, outcome.batch))
        for device, peak in team.peak_memory_gib().items():
            self.log.emit(Memory(peak), device=device)
        if recorded is not None:
            profiling.keep(recorded, record.step, self.folder.make(), self.log, self.machine)
        for lookout in self._lookouts:
            for seen in lookout.news(self.log.events):
                self.log.emit(seen)
        self._report("steps", record.step, max(self.end, record.step), str(record))
        if self.plan.checkpoint_every and record.step % self.plan.checkpoint_every == 0:
            self.checkpoint()
        return record

    @cached_property
    def _lookouts(self) -> tuple[Stream, ...]:
        """Who looks for findings: on what is learnt, and on the load of the devices. They read in the events what was before."""
        return Lookout(), LoadLookout()

    # ------------------------------------------------------------ beside the loop

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
            self.judge.numbers()  # they are no step's
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
        whole = self.done > 0 and team.made == self._made and team.is_finite
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
            kl=self._kl,
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
                self.folder.write("model" if self.plan.full else "adapter", self.crew.team.save_actor)
                if self.crew.team.has_critic:
                    self.folder.write("critic", self.crew.team.save_critic)
            else:
                self.log.emit(Notice("the actor has weights that are not finite: it is not saved, the one saved before stays"))
            self.checkpoint()
        self.folder.write_json("metrics.json", asdict(metrics(self.log.events)))

    # ------------------------------------------------------------ inside

    def _catch_up(self) -> None:
        """Sync where a step was broken off between its update and its sync."""
        team = self._crew.team
        if not team.in_sync:
            self.log.emit(team.sync(self.done), role="rollout", phase="sync")
