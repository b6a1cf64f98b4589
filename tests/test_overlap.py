"""A run that samples ahead comes to rest, goes on, is evaluated and saved as one that does not."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import workbench as wb
from benchmarks.kills import Rewarding
from tests.test_run import make, until
from workbench.run import Run

COMPLETIONS = 64  # of a step: 8 prompts x 8


@pytest.fixture(scope="module")
def run(free_process: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One process trains and samples at the same time here: a map that overlaps needs several, and the run's life is the same."""
    optimizer = wb.Optimizer(learning_rate=1e-4)
    run = make(small_model, tmp_path_factory.mktemp("runs"), name="overlap", reward=Rewarding(), optimizer=optimizer, trackers=())
    object.__setattr__(run.plan, "overlap", 1)
    list(run.train(3))
    yield run
    run.close()


def test_every_step_but_the_first_is_sampled_ahead(run: Run) -> None:
    assert [step.ahead_seconds > 0 for step in run.steps[:3]] == [False, True, True]
    assert [step.staleness for step in run.steps[:3]] == [0, 1, 1]


def test_a_rewards_memory_is_that_of_the_steps_that_are_made(run: Run) -> None:
    """And not of what was asked ahead: after a restore it would be asked twice."""
    for step in run.train(3):
        assert run._training._reward == {"asked": COMPLETIONS * step.step}
        if step.step == 5:
            break
    assert run._training._ahead is None  # at rest nothing is under way


@pytest.fixture
def alike(run: Run) -> Iterator[None]:
    """Rewards that take their time and are all the same: a step is skipped, and does not wait for what is sampled ahead."""

    class Alike(Rewarding):
        def __call__(self, *row: object) -> float:
            time.sleep(0.003)
            self.asked += 1
            return 0.5

    scorer = run._training.judge.scorer
    kept, scorer.fn = scorer.fn, Alike()
    yield
    run.stop()
    scorer.fn = kept


def test_a_run_that_was_stopped_between_two_steps_goes_on(run: Run, alike: None) -> None:
    done = len(run.steps)
    loop = run.train(50)
    assert next(loop).skipped
    run._stop.set()  # as stop() does from another thread
    assert list(loop) == []
    assert run.state == "stopped"
    assert [step.step for step in run.train(2)] == [done + 2, done + 3]


def test_an_evaluation_between_two_steps_leaves_what_is_asked_ahead_alone(run: Run, alike: None) -> None:
    run.start(2000)
    until(lambda: run.state == "running")
    for _ in range(5):
        run.evaluate()
    assert run.state == "running", run.error
    run.stop()
    assert run.state == "stopped"


def test_a_knob_that_is_turned_at_rest_acts_on_the_next_step(run: Run) -> None:
    for _ in run.train(50):
        break
    run.knobs.prompts = 4
    try:
        assert [step.groups for step in run.train(1)] == [4]
    finally:
        run.knobs.prompts = 8
