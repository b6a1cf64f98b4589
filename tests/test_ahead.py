"""Sampling ahead, with a real engine and trainer: the same experience as in turn, dropped soon, and learnt from one version late."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.runtime.conftest import fresh  # noqa: F401 - the shared team, its adapter put back afterwards
from tests.test_run import PROMPTS, likes_a
from workbench.ahead import Ahead
from workbench.errors import ConfigError, RewardError, Stopped
from workbench.events import EventLog
from workbench.judge import JudgeHere
from workbench.loop import learn, sample
from workbench.mapping import DeviceMap
from workbench.plan import RunPlan
from workbench.records import Phase
from workbench.runtime.team import Team
from workbench.stages import Crew, Sampled
from workbench.supply import Supply
from workbench.telling import StepBook

TASK = wb.tasks.from_list(PROMPTS, scorer=likes_a)
Books = Callable[[int], StepBook]


@pytest.fixture
def log() -> EventLog:
    return EventLog()


@pytest.fixture
def books(fresh: Team, log: EventLog, tmp_path: Path) -> Iterator[Books]:  # noqa: F811
    """The book of a step, at the first prompt of the run's order."""
    plan = RunPlan(
        devices=DeviceMap(),
        task=TASK,
        model=str(fresh.plan.model),
        algo=wb.GRPO(group_size=4),
        reward=likes_a,
        lora=fresh.plan.lora,
        sampling=wb.Sampling(prompts=4, max_tokens=8),
        optimizer=fresh.plan.optimizer,
        engine=fresh.plan.engine,
        held_out=0,
        name="ahead",
        seed=0,
        folder=tmp_path,
    )
    supply = Supply(plan, fresh.plan.model, fresh.window)
    yield lambda number: StepBook(log, supply, number, 0, lambda: False)
    supply.close()


@pytest.fixture
def crews(fresh: Team) -> Iterator[Callable[..., Crew]]:  # noqa: F811
    """A crew; ``changes`` of the sampling, and its reward."""
    judges = []

    def make(reward: Any = likes_a, should_stop: Callable[[], bool] = lambda: False, **changes: Any) -> Crew:
        judges.append(JudgeHere(reward))
        sampling = wb.Sampling(**{"prompts": 4, "max_tokens": 8, **changes})
        return Crew(fresh, judges[-1], wb.GRPO(group_size=4), sampling, should_stop, lambda work: work())

    yield make
    for judge in judges:
        judge.close()


def ids(sampled: Sampled) -> list[tuple[int, ...]]:
    return [completion.ids for completion in sampled.batch.completions]


def test_what_is_sampled_ahead_is_what_is_sampled_in_turn(books: Books, crews: Callable[..., Crew], log: EventLog) -> None:
    crew, mine, other = crews(), books(3), books(3)
    in_turn = sample(3, mine.draw, crew, mine.phase)
    ahead = Ahead(crew, 1e-3, other)
    ahead.wait()
    taken = ahead.take()
    assert ids(taken) == ids(in_turn)
    assert taken.batch.rewards == in_turn.batch.rewards
    assert (taken.version, taken.rounds) == (in_turn.version, 1) == (crew.team.version, 1)
    assert taken.crew is crew
    assert in_turn.ahead_seconds == 0 < taken.ahead_seconds
    assert (other.position, mine.position) == (4, 4)  # prompts used up
    assert set(other.spent) == {"rollout", "reward"}
    phases = [event.phase for event in log.events if isinstance(event.record, Phase)]
    assert [phase for phase, _ in groupby(phases)] == ["rollout", "reward"] * 2  # a slow reward is told in several parts


def test_a_long_rollout_that_is_dropped_ends_soon(books: Books, crews: Callable[..., Crew]) -> None:
    ahead = Ahead(crews(prompts=50, max_tokens=200), 1e-3, books(1))
    time.sleep(0.3)
    began = time.monotonic()
    ahead.drop()
    assert time.monotonic() - began < 2
    with pytest.raises(Stopped):
        ahead.take()
    assert len(ids(Ahead(crews(), 1e-3, books(1)).take())) == 16  # the engine is free for another


def test_one_that_is_dropped_after_an_interrupt_of_the_wait_has_ended(books: Books, crews: Callable[..., Crew]) -> None:
    ahead = Ahead(crews(prompts=50, max_tokens=200), 1e-3, books(1))
    threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        ahead.wait()
    ahead.drop()
    with pytest.raises(Stopped):  # and is not still at it
        ahead.take()


def test_a_stop_of_the_run_ends_it_too(books: Books, crews: Callable[..., Crew]) -> None:
    stop = threading.Event()
    ahead = Ahead(crews(should_stop=stop.is_set, prompts=50, max_tokens=200), 1e-3, books(1))
    stop.set()
    ahead.wait()
    with pytest.raises(Stopped):
        ahead.take()


def test_what_goes_wrong_is_raised_when_it_is_taken_and_not_before(books: Books, crews: Callable[..., Crew]) -> None:
    def fails(prompt: str, completion: str, answer: Any) -> float:
        raise LookupError("no such word")

    ahead = Ahead(crews(fails), 1e-3, books(1))
    ahead.wait()
    with pytest.raises(RewardError, match="no such word"):
        ahead.take()
    with pytest.raises(ConfigError, match="window holds 256"):
        Ahead(crews(max_tokens=300), 1e-3, books(1)).take()


def test_the_step_after_is_learnt_one_version_late(fresh: Team, books: Books, crews: Callable[..., Crew]) -> None:  # noqa: F811
    """The order of a run with overlap=1, here with both in turn: a process samples or trains."""
    crew, book = crews(), books(1)
    first = sample(1, book.draw, crew, book.phase)
    second = Ahead(crew, 1e-3, books(2)).take()
    one = learn(1, first, 0.02, lambda name: nullcontext(), lambda: None)
    two = learn(2, second, 0.02, lambda name: nullcontext(), lambda: None)
    assert (one.staleness, two.staleness) == (0, 1)
    assert (one.sync.version, two.sync.version) == (second.version + 1, second.version + 2)
    assert one.update.summary.logprob_diff_max < 1e-3  # the policy that sampled
    assert two.update.summary.logprob_diff_max < 1e-3  # the same policy on both sides, the older one
    assert two.update.summary.importance_max > 1 + 1e-3  # not the one in training, and corrected for that
    step = two.record(2, 0.02, 1.0, {})
    assert (step.staleness, step.adapter_version, step.ahead_seconds) == (1, second.version, second.ahead_seconds)


def test_a_sync_waits_for_engines_at_rest(books: Books, crews: Callable[..., Crew]) -> None:
    """The engine must not change its adapter under a rollout."""
    crew, book, phases = crews(), books(1), []

    def phase(name: str) -> Any:
        phases.append(name)
        return nullcontext()

    learn(1, sample(1, book.draw, crew, phase), 0.02, phase, lambda: phases.append("engines at rest"))
    assert phases == ["rollout", "reward", "reference", "advantages", "update_actor", "engines at rest", "sync"]
