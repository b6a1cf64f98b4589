"""Rewards of completions that are done while others still generate, and a run that waits for a reward that is down."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.test_run import make, until
from workbench.batch import Prompt
from workbench.early import EarlyScores
from workbench.errors import RewardError, RewardServiceError, StateError, Stopped
from workbench.judge import EARLY_SECONDS, JudgeHere
from workbench.run import Run


def prompts(count: int) -> tuple[Prompt, ...]:
    return tuple(Prompt(f"p{n}", (n,), n, 10 + n, f"p{n}") for n in range(count))


@pytest.fixture
def judges() -> Iterator[Callable[..., JudgeHere]]:
    made: list[JudgeHere] = []

    def make_one(reward: Any) -> JudgeHere:
        made.append(JudgeHere(reward))
        return made[-1]

    yield make_one
    for judge in made:
        judge.close()


def by_answer(prompt: str, completion: str, answer: int) -> float:
    return 10.0 * answer + len(completion)


def test_each_row_is_scored_once_with_its_own_prompt(judges: Callable[..., JudgeHere]) -> None:
    early = EarlyScores(judges(by_answer), prompts(3), 2, nullcontext, lambda: False)
    early.told(5, "ab")
    early.told(0, "a")
    early.told(5, "ab")
    until(lambda: len(early.scores) == 2)
    assert early.end() == {5: 22.0, 0: 1.0}


def test_what_a_reward_raises_is_raised_at_the_end(judges: Callable[..., JudgeHere]) -> None:
    def broken(prompt: str, completion: str, answer: int) -> float:
        raise ValueError("no")

    early = EarlyScores(judges(broken), prompts(1), 1, nullcontext, lambda: False)
    early.told(0, "a")
    until(lambda: early._error)
    with pytest.raises(RewardError, match="prompt 10"):
        early.end()
    again = EarlyScores(judges(broken), prompts(1), 1, nullcontext, lambda: False)
    again.told(0, "a")
    assert again.end(drop=True) == {}


def test_rows_of_a_service_that_is_down_are_simply_not_there(judges: Callable[..., JudgeHere]) -> None:
    def down(prompt: str, completion: str, answer: int) -> float:
        raise RewardServiceError("http://h:1", "it is down", "start it")

    early = EarlyScores(judges(down), prompts(1), 1, nullcontext, lambda: False)
    early.told(0, "a")
    assert early.end() == {}


def test_only_a_slow_reward_without_a_memory_is_asked_early(judges: Callable[..., JudgeHere]) -> None:
    def slow(prompt: str, completion: str, answer: int) -> float:
        time.sleep(2 * EARLY_SECONDS)
        return 1.0

    class Remembers:
        def __call__(self, *row: Any) -> float:
            return slow(*row)

        def state_dict(self) -> dict[str, int]:
            return {}

        def load_state_dict(self, state: dict[str, int]) -> None: ...

    for reward, early in ((by_answer, False), (slow, True), (Remembers(), False)):
        judge = judges(reward)
        assert not judge.scores_early  # nothing is known before the first step
        judge.score([("p", "c", 1)], [0], lambda: False)
        judge.numbers()
        assert judge.scores_early == early


def test_who_is_dropped_does_not_wait_for_a_call_that_is_under_way(judges: Callable[..., JudgeHere]) -> None:
    began, over = threading.Event(), threading.Event()

    def slow(prompt: str, completion: str, answer: int) -> float:
        began.set()
        over.wait(10)
        return 1.0

    judge = judges(slow)
    early = EarlyScores(judge, prompts(1), 1, nullcontext, lambda: False)
    early.told(0, "a")
    began.wait()
    start = time.monotonic()
    assert early.end(drop=True) == {}
    assert time.monotonic() - start < 5
    over.set()
    assert judge.score([("p", "c", 1)], [0], lambda: False) == [1.0]  # nobody else asks it any more


def test_an_interrupt_leaves_nobody_behind_who_scores(judges: Callable[..., JudgeHere]) -> None:
    began = threading.Event()

    def slow(prompt: str, completion: str, answer: int) -> float:
        if completion == "slow":
            began.set()
            time.sleep(2)
        return 1.0

    judge = judges(slow)
    early = EarlyScores(judge, prompts(1), 1, nullcontext, lambda: False)
    early.told(0, "slow")
    began.wait()
    threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT]).start()
    with pytest.raises(KeyboardInterrupt):
        early.end()
    assert judge.score([("p", "c", 1)], [0], lambda: False) == [1.0]


# ---------------------------------------------------------------- on a run


class Outage:
    """A reward that may be down, and tells how often it was asked."""

    def __init__(self) -> None:
        self.down, self.tries, self.seconds = threading.Event(), 0, 0.0

    def __call__(self, prompt: str, completion: str, answer: Any) -> float:
        self.tries += 1
        time.sleep(self.seconds)
        if self.down.is_set():
            raise RewardServiceError("reward service http://h:1", "it does not answer", "start it again")
        return float(completion.count("a"))


@pytest.fixture(scope="module")
def run(free_process: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("runs")
    run = make(small_model, folder, name="early", reward=Outage(), held_out=0, trackers=(), sampling=wb.Sampling(prompts=8, max_tokens=48))
    list(run.train(1))
    yield run
    run.close()


def test_a_slow_reward_is_computed_while_others_generate(run: Run) -> None:
    run.plan.reward.seconds = 0.004
    _, second = run.train(2)  # the first tells how long it takes
    run.plan.reward.seconds = 0.0
    assert second.scored_early > 0
    spans = [event for event in run.events if event.kind == "phase" and event.phase == "reward" and event.data["step"] == second.step]
    assert len(spans) > 1  # a timeline shows them all; the step pays for the last one alone
    assert second.phase_seconds["reward"] == pytest.approx(spans[-1].data["seconds"], abs=1e-6)
    batch = run._training.batch
    assert list(batch.rewards) == [float(completion.text.count("a")) for completion in batch.completions]


def test_a_reward_that_is_down_pauses_the_run_with_its_name_and_loses_nothing(run: Run) -> None:
    reward, done = run.plan.reward, len(run.steps)
    reward.down.set()
    run.start(2)
    until(lambda: run.state == "paused")
    sampled = [event for event in run.events if event.kind == "phase" and event.phase == "rollout" and event.data["step"] == done + 1]
    assert len(sampled) == 1
    run.pause()  # returns: the run rests already
    with pytest.raises(StateError, match=r"run\.generate: the step in progress holds the models, and waits.*\n.*stop\(\)"):
        run.generate("sort am=")
    run.resume()
    until(lambda: run.state == "paused")
    notices = [event.data["text"] for event in run.events if event.kind == "notice"]
    assert any("rests until the reward answers again: reward service http://h:1" in text for text in notices)
    states = [event.data for event in run.events if event.kind == "state"]
    assert "http://h:1" in states[-1]["error"]
    reward.down.clear()
    run.resume()  # ask it now, and not in five seconds
    run.wait()
    assert len(run.steps) == done + 2
    again = [event for event in run.events if event.kind == "phase" and event.phase == "rollout" and event.data["step"] == done + 1]
    assert len(again) == 1  # nothing was sampled anew


def test_a_run_that_waits_for_its_reward_can_be_stopped(run: Run) -> None:
    run.plan.reward.down.set()
    done = len(run.steps)
    run.start(2)
    until(lambda: run.state == "paused")
    began = time.monotonic()
    run.stop()
    assert time.monotonic() - began < 2
    assert run.state == "stopped"
    run.plan.reward.down.clear()
    (step,) = run.train(1)
    assert step.step == done + 1


def test_an_evaluation_at_rest_that_waits_leaves_the_state_as_it_is(run: Run) -> None:
    object.__setattr__(run.plan, "held_out", 2)
    run.plan.reward.down.set()
    asking = threading.Thread(target=run.evaluate)
    asking.start()
    tries = run.plan.reward.tries
    until(lambda: run.plan.reward.tries > tries)
    run.plan.reward.down.clear()
    run._training.waiting.nudge.set()
    asking.join()
    assert run.state == "finished"
    assert wb.Run.load(run.path).error == ""  # waiting is no failure
    object.__setattr__(run.plan, "held_out", 0)


def test_stopped_is_what_a_stop_raises_there(run: Run) -> None:
    def down() -> list[float]:
        raise RewardServiceError("h", "down", "up")

    run._stop.set()
    with pytest.raises(Stopped):
        run._training.waiting(down)
    run._stop.clear()
