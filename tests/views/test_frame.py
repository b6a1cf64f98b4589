"""The state of a run in words."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from workbench.events import EventLog
from workbench.records import Phase, Progress, Restored, RunStarted, Samples, State, Step
from workbench.views.frame import Fact, Frame, frame
from workbench.views.history import History

Play = Callable[..., EventLog]


def after(log: EventLog) -> Frame:
    return frame(History(log.events))


def test_a_finished_run(play: Play) -> None:
    found = after(play(60, finish=True))
    assert (found.state, found.title, found.subtitle, found.count) == ("finished", "quickstart", "GRPO · tiny-llama-1.7m", "step 60 of 60")
    assert found.fraction == 1.0
    assert found.status == "60 syncs, every checksum matched"
    held_out, speed, difference, weights = found.facts
    assert (held_out.value, held_out.note) == ("0.27 → 0.79", "+0.52 ± 0.04")
    assert speed.label == "Rollout, tokens/s now"
    assert difference.note == "largest |Δ log p|, mean 6e-7"
    assert weights.value == "version 60"
    assert weights.note.startswith("f9ace5c155, 768 KiB in ")


def test_in_the_middle_of_a_step_its_finished_phases_are_named(play: Play) -> None:
    log = play(23)
    log.emit(Phase(24, 0.0, 0.48), phase="rollout")
    log.emit(Phase(24, 0.0, 0.03), phase="reward")
    found = after(log)
    assert found.status == "step 24: rollout 0.48 s, reward 30 ms"
    assert found.fraction == pytest.approx(23 / 60)
    assert found.clock.endswith("s left")


def test_the_time_left_leaves_out_the_warm_up_of_the_first_step(play: Play) -> None:
    assert "left" not in after(play(1)).clock
    assert "about 1 min 3" in after(play(2)).clock  # 58 steps of 1.6 s, not of 4


@pytest.mark.parametrize(
    ("progress", "status", "fraction"),
    [
        (Progress("model", 0, 1, "loading tiny"), "loading the model: loading tiny", None),
        (Progress("engine", 0, 3, "starting vLLM"), "starting the engine, 0 of 3: starting vLLM", None),
        (Progress("engine", 2, 3, "warming up"), "starting the engine, 2 of 3: warming up", 2 / 3),
        (Progress("held_out", 128, 256), "scoring held-out prompts, 128 of 256", 0.5),
        (Progress("held_out", 0, 1, "scoring held-out prompts"), "scoring held-out prompts", None),
    ],
)
def test_every_long_wait_has_its_words_and_bar(progress: Progress, status: str, fraction: float | None) -> None:
    log = EventLog()
    log.emit(State("starting"))
    log.emit(progress)
    found = after(log)
    assert (found.status, found.fraction) == (status, fraction)
    assert found.waited == 0.0


def test_a_failure_shows_its_first_line_and_keeps_the_whole(play: Play) -> None:
    log = play(3)
    log.emit(State("failed", "SyncError: stale adapter\n  fix: restart"))
    found = after(log)
    assert (found.state, found.status, found.error) == ("failed", "SyncError: stale adapter", "SyncError: stale adapter\n  fix: restart")


def test_paused_and_new_say_what_they_mean(play: Play) -> None:
    assert after(EventLog()).status == "not started yet"
    log = play(3)
    log.emit(State("paused"))
    assert "run.resume()" in after(log).status


def test_a_restored_run_says_so(play: Play, one_step: Callable[..., None]) -> None:
    log = play(5)
    log.emit(Restored(3, "step-000003", {}))
    log.emit(State("paused"))
    assert after(log).status == "restored after step 3; run.start() goes on"
    assert after(log).count == "step 3 of 60"
    log.emit(State("running"))
    one_step(log, 4, 60)
    log.emit(State("paused"))
    assert after(log).status == "between two steps; run.resume() goes on · restored after step 3"
    log.emit(Restored(4, "step-000004", {}))
    log.emit(State("finished"))
    assert after(log).status == "4 syncs, every checksum matched · restored after steps 3 and 4"


def test_an_interrupted_run_says_how_to_go_on(play: Play) -> None:
    log = play(3)
    log.emit(State("interrupted"))
    assert (after(log).state, after(log).error) == ("interrupted", "")
    assert "Run.restore(path) goes on" in after(log).status


def test_rounds_and_starvation_are_facts_where_there_are_any(play: Play) -> None:
    log = play(2)
    step = next(event.record for event in log.events if event.kind == "step")
    assert isinstance(step, Step)
    log = EventLog()
    log.emit(replace(step, rounds=1, seconds=2.0, data_wait_seconds=0.1))
    assert len(after(log).facts) == 4  # exactly 5 %
    log.emit(replace(step, step=2, rounds=2, seconds=2.0, data_wait_seconds=0.3))
    assert after(log).facts[4:] == (
        Fact("Rounds of sampling", "1.50", "a step, on average"),
        Fact("Waiting for prompts", "10%", "of the time in steps"),
    )


def test_samples_are_few_visible_and_short() -> None:
    log = EventLog()
    texts = ["a\n" + "x" * 900] * 9
    log.emit(Samples(7, texts, texts, texts, [1.0] * 9, [0.0] * 9))
    found = after(log)
    assert found.samples_step == 7
    assert len(found.samples) == 4
    assert found.samples[0].completion.startswith("a↵xxx")
    assert len(found.samples[0].completion) == 300


def test_a_model_in_a_folder_is_called_by_its_name() -> None:
    log = EventLog()
    log.emit(RunStarted("run", "/home/me/.cache/models/tiny", {"name": "GRPO"}, {}, {}, {}, 0))
    assert after(log).subtitle == "GRPO · tiny"


def test_a_number_that_is_not_finite_is_a_dash_and_not_nan(play: Play) -> None:
    log = EventLog()
    log.emit(Samples(1, ["p"], ["c"], ["a"], [float("nan")], [0.0]))
    assert after(log).samples[0].reward == "—"
