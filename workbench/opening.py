"""What a run is made of while it lives: its team, its judge, its prompts, its records; opened, made anew after a loss, and closed."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import checkpoint
from workbench.ahead import Ahead
from workbench.batch import Batch
from workbench.checkpoint import Checkpoints, Past, RunState
from workbench.errors import ConfigError, StateError, Stopped
from workbench.events import EventLog, standing
from workbench.folder import RunFolder
from workbench.following import Following
from workbench.judge import Judge, JudgeHere, JudgeThere
from workbench.knobs import Knobs, Settings, turned_after
from workbench.models.resolve import resolve_model
from workbench.models.tokenizer import Tokenizer
from workbench.plan import FILE, RunPlan
from workbench.records import Notice, Progress, Restored
from workbench.rewards import Service
from workbench.roles import Role
from workbench.runtime.assemble import assemble, choose
from workbench.runtime.pools import homes, machine_of, split
from workbench.runtime.routes import Routes, routes
from workbench.runtime.team import Team
from workbench.stages import Crew
from workbench.supply import Supply
from workbench.telling import driver_seats, resolved, started, versions
from workbench.topology import Topology
from workbench.waiting import Waiting

if TYPE_CHECKING:
    from torch import Tensor

_OPENING = threading.Lock()


class Opening:
    """One run's models, data and records, opened and closed. Everything here is called by one thread at a time."""

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
        self.following = Following(plan, self.log)
        self.evaluated_at: int | None = None  # the step of the last held-out score
        self._saved_at = 0  # the step of the last checkpoint
        self._reward: Any = None  # the reward's memory at the end of the last whole step
        self._unasked = self.judge.state()  # the reward's memory before the run
        self.waiting = Waiting(self.log, should_stop)
        self._kl: tuple[float, float] | None = None  # the weight of a KL that adapts: as it was set, and as it is now
        self._made = (0, 0)  # optimizer steps of actor and critic at the end of the last whole step
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
            found, placed = past.checkpoint.name if past.checkpoint else "", homes(self.plan.devices, self.plan.machine)
            self.log.emit(Restored(self.done, found, versions(), placed))
            self.knobs.resume(self.done, later)
        except BaseException:
            self.folder.release()
            raise

    def _take_over(self, state: RunState) -> None:
        self.knobs = Knobs(self.plan.settings.turned(state.settings), self.log, self._check_room)
        self.done, self.end, self.position = state.step, state.end, state.position
        self._saved_at = state.step
        self._reward = state.reward
        self._kl = _pair(state.kl)
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
        self.following.begin(self.folder.make())
        if isinstance(plan.reward, Service) and (silence := plan.reward.greet()):
            self.log.emit(Notice(f"{silence}: the run will wait for it when it has something to score"))
        path = resolve_model(plan.model, plan.task.name, plan.task.demonstrations, self._report_or_stop)
        critic = self._critic_model(path)
        team = assemble(plan.devices, plan.machine, plan.runtime, plan.name, lambda device: plan.worker(path, device, critic))
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
        self._made, self._waking = team.made, None
        if Role.REWARD in team.home:
            self.judge = JudgeThere(team)
            self.judge.load_state(self._reward)
        self._reward = self.judge.state()
        self.crew = Crew(team, self.judge, settings.algo, settings.sampling, self.should_stop, self.waiting)

    def _critic_model(self, actor: Path) -> Path | None:
        """Of a critic that has its own: the folder. Raises ConfigError where it reads other tokens than the actor writes."""
        plan = self.plan
        if Role.CRITIC not in plan.devices.places or plan.critic_shares:
            return None
        if plan.critic.model is None:
            return actor
        path = resolve_model(plan.critic.model, plan.task.name, plan.task.demonstrations, self._report_or_stop)
        if Tokenizer(path).raw.get_vocab() != Tokenizer(actor).raw.get_vocab():
            found = "its tokenizer is another than the actor's, and a critic reads the tokens that the actor writes"
            raise ConfigError(f"Critic(model={plan.critic.model!r})", found, "use a model of the same family, or leave it out")
        return path

    def _settle(self, team: Team) -> None:
        """Write down where every role is, as each process says itself; and who shares or waits for what."""
        seats = [*team.seats, *driver_seats(self.plan.devices, team)]
        self.folder.write_json("placement.json", [asdict(seat) for seat in seats])
        self.log.emit(Notice(resolved(seats, f"{self.plan.mode}: {self.plan.why_mode}", self.plan.devices.places[Role.REWARD].url)))
        for text in team.notices:
            self.log.emit(Notice(text))

    def close(self) -> None:
        """End the workers, free the memory, close the files. The records stay readable."""
        self.closed = True
        self._disband()
        self.following.close()
        self.judge.close()
        self.knobs.close()

    def _disband(self) -> None:
        """End the workers, and what works ahead of them."""
        self.rest()
        self.following.disband()
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
        state = self._waking[0] if self._waking else RunState(0, self.end, 0, 0, 0, {}, self._unasked)
        self.done, self.position, self._saved_at, self._reward = state.step, state.position, state.step, state.reward
        self._kl = _pair(state.kl)
        self.judge = JudgeHere(self.plan.reward)  # the workers of another one have ended
        self.judge.load_state(self._reward)
        self.evaluated_at = None
        self.log.emit(Restored(self.done, found[-1].name if found else "", versions()))
        self.knobs.resume(self.done, [])
        self.open()

    def sample_load(self) -> None:
        """Sample the load of the devices from now on, until the run rests."""
        self.following.sample(self._crew.team)

    def rest(self) -> None:
        """Drop what is sampled ahead, where the run comes to rest: it is made again, from the policy of then. Sample no load meanwhile."""
        self.following.rest()
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.drop()
            self.knobs.give_back(ahead.book.number)
            if not self._crew.team.is_broken:
                self.judge.load_state(self._reward)

    @cached_property
    def machine(self) -> Topology | None:
        """What the run's devices are and what lies between them: CPU slots, or the GPUs of this machine, looked at once; None: its CPU."""
        slots = machine_of(self.plan.devices, self.plan.machine)
        return Topology.detect() if slots is None and self.plan.devices.device == "cuda" else slots

    @property
    def routes(self) -> Routes:
        """Of the team, or, before there is one, of the map; and to a reward service."""
        url = self.plan.devices.places[Role.REWARD].url
        return self._routes.asking(url) if url else self._routes

    @property
    def _routes(self) -> Routes:
        if self.crew is not None:
            return self.crew.team.routes
        machine = machine_of(self.plan.devices, self.plan.machine)
        inline = choose(self.plan.runtime, self.plan.devices, machine) == "inline"
        return routes(split(self.plan.devices, machine), inline=inline, mode=self.plan.mode)

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

    def _report_or_stop(self, what: str, done: float, total: float, note: str = "") -> None:
        self._report(what, done, total, note)
        if self.should_stop():
            raise Stopped(what)

    def _report(self, what: str, done: float, total: float, note: str = "") -> None:
        self.log.emit(Progress(what, done, total, note))


def _pair(kl: Sequence[float] | None) -> tuple[float, float] | None:
    """JSON knows no tuples."""
    return None if kl is None else (kl[0], kl[1])
