"""The fold over the events: bounded, right after a restore, and true about waits and failures."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from workbench.events import EventLog
from workbench.records import HeldOut, Knob, Phase, Progress, Restored, Samples, State, Step, Sync
from workbench.views.history import POINTS, TURNS, History, Series

Play = Callable[..., EventLog]


@pytest.fixture(name="a_step")
def a_step_fixture(play: Play) -> Step:
    (step,) = (event.record for event in play(1).events if event.kind == "step")
    assert isinstance(step, Step)
    return step


def test_a_short_run_keeps_every_step(play: Play) -> None:
    history = History(play(60).events)
    assert [bucket.first for bucket in history.series.buckets] == list(range(1, 61))
    assert history.series.width == 1


def test_a_bucket_has_the_mean_of_its_steps_and_the_maximum_of_maxima(a_step: Step) -> None:
    series = Series(limit=2)
    for number, (reward, longest, rollout) in enumerate([(0.0, 5, 1.0), (1.0, 9, 3.0), (0.5, 2, 2.0)], 1):
        series.add(replace(a_step, step=number, reward_mean=reward, completion_tokens_max=longest, phase_seconds={"rollout": rollout}))
    assert [(bucket.first, bucket.last) for bucket in series.buckets] == [(1, 2), (3, 3)]
    assert series.column("reward_mean") == [0.5, 0.5]
    assert series.column("completion_tokens_max") == [9, 2]
    assert series.column("rollout") == [2.0, 2.0]


def test_what_only_some_steps_tell_is_the_mean_of_those(a_step: Step) -> None:
    series = Series(limit=1)
    series.add(replace(a_step, step=1, value_loss=0.5, reward_numbers={"right": 0.25, "rollout": 9.0}))
    series.add(replace(a_step, step=2, value_loss=None, reward_numbers={"style": 1.0}))
    assert series.column("value_loss") == [0.5]
    assert series.column("explained_variance") == [None]
    assert list(series.parts) == ["right", "rollout", "style"]
    assert [series.column(name) for name in series.parts.values()] == [[0.25], [9.0], [1.0]]  # no phase, whatever its name


def test_a_run_says_at_its_beginning_whether_it_has_a_critic(play: Play, play_ppo: Play) -> None:
    assert (History().has_critic, History(play(0).events).has_critic, History(play_ppo(0).events).has_critic) == (False, False, True)


def test_a_long_run_has_bounded_points_that_cover_every_step(a_step: Step) -> None:
    series = Series()
    for number in range(1, 10_001):
        series.add(replace(a_step, step=number))
    assert POINTS / 2 <= len(series.buckets) <= POINTS
    assert (series.buckets[0].first, series.buckets[-1].last) == (1, 10_000)
    assert all(left.last + 1 == right.first for left, right in zip(series.buckets, series.buckets[1:], strict=False))


def test_what_is_not_finite_leaves_a_gap(a_step: Step) -> None:
    series = Series()
    series.add(replace(a_step, kl=float("nan")))
    assert series.column("kl") == [None]
    assert series.column("values") == [None]


def test_steps_done_again_after_a_restore_replace_the_old_ones(a_step: Step) -> None:
    series = Series()
    for number in (1, 2, 3, 2):
        series.add(replace(a_step, step=number, reward_mean=float(number)))
    assert series.column("reward_mean") == [1.0, 2.0]


def test_a_wait_lasts_until_its_end_and_knows_its_time() -> None:
    log = EventLog()
    log.emit(Progress("engine", 0, 3, "starting"))
    log.emit(Progress("engine", 1, 3, "warming up"))
    wait = History(log.events).wait
    assert wait is not None
    assert wait.progress.note == "warming up"
    assert wait.seconds == log.events[1].mono - log.events[0].mono
    log.emit(Progress("engine", 3, 3))
    assert History(log.events).wait is None


def test_a_wait_that_a_failure_ends_is_over() -> None:
    log = EventLog()
    log.emit(Progress("engine", 0, 3))
    log.emit(State("failed", "EngineError: no room"))
    history = History(log.events)
    assert (history.wait, history.failed_in) == (None, "EngineError: no room")


def test_the_error_outlives_the_closing_but_not_a_new_start() -> None:
    log = EventLog()
    log.emit(State("failed", "boom"))
    log.emit(State("closed"))
    assert History(log.events).failed_in == "boom"
    log.emit(State("starting"))
    assert History(log.events).failed_in == ""


def test_the_phases_of_the_step_under_way(play: Play) -> None:
    log = play(2)
    log.emit(Phase(3, 0.0, 0.5), phase="rollout")
    assert History(log.events).phases == [("rollout", 0.5)]


def test_what_a_restore_undid_is_forgotten(a_step: Step) -> None:
    log = EventLog()
    for number in range(1, 6):
        log.emit(replace(a_step, step=number, reward_mean=number / 10, logprob_diff_max=number / 10))
        log.emit(Sync(number, number, "adapter", 1, 0.1, 0.1, f"{number}"))
    log.emit(HeldOut(0, 0.1, 0.01, 8))
    log.emit(HeldOut(5, 0.5, 0.01, 8))
    log.emit(Samples(5, ["p"], ["c"], ["a"], [1.0], [0.0]))
    log.emit(Knob(6, "kl", 0.0, 0.1))
    log.emit(Phase(6, 0.0, 0.5), phase="rollout")
    log.emit(Progress("held_out", 3, 8))
    log.emit(State("failed", "boom"))
    log.emit(Restored(3, "step-000003", {}))
    log.emit(State("paused"))
    history = History(log.events)
    assert [bucket.last for bucket in history.series.buckets] == [1, 2, 3]
    assert (history.step, sorted(history.held_out), len(history.recent), history.syncs) == (3, [0], 3, 3)
    assert (history.seconds, history.diff_max) == (3 * a_step.seconds, 0.3)
    assert (history.samples, history.turns, history.phases, history.wait, history.failed_in) == (None, [], [], None, "")
    assert [past.step for past in history.restores] == [3]
    log.emit(replace(a_step, step=4, reward_mean=0.9))
    assert History(log.events).series.column("reward_mean") == pytest.approx([0.1, 0.2, 0.3, 0.9])


def test_a_restore_without_a_checkpoint_begins_again(a_step: Step) -> None:
    log = EventLog()
    log.emit(HeldOut(0, 0.1, 0.01, 8))
    log.emit(a_step)
    log.emit(Restored(0, "", {}))
    history = History(log.events)
    assert (history.step, history.held_out, history.series.buckets) == (0, {}, [])


def test_of_many_turns_the_latest_are_kept_and_a_schedule_is_one_of_them() -> None:
    log = EventLog()
    for number in range(1, 1000):
        log.emit(Knob(number, "kl", number, number + 1))
        if number % 3 == 0:
            log.emit(Knob(number, "temperature", number, number + 1))
    turns = History(log.events).turns
    assert len(turns) == TURNS
    assert [(turn.first, turn.last, turn.old, turn.new) for turn in turns if turn.name == "kl"] == [(1, 999, 1, 1000)]
