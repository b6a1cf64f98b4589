"""Knobs on a live run, and going on with a run that was closed or lost. One engine at a time, random weights."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

import workbench as wb
from tests.test_run import PROMPTS, likes_a, make
from workbench.errors import ConfigError, StateError, StorageError
from workbench.records import Knob, Restored
from workbench.run import Run

TASK = wb.tasks.from_list(PROMPTS, scorer=likes_a)
TIMED = ("seconds", "phase_seconds", "data_wait_seconds", "ahead_seconds", "scored_early", "rested_seconds")


def upper(prompt: str, completion: str, answer: object) -> float:
    return float(completion.isupper())


def numbers(run: Run) -> list[dict[str, object]]:
    return [{name: value for name, value in asdict(step).items() if name not in TIMED} for step in run.steps]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def whole(free_process: None, small_model: Path, folder: Path) -> Iterator[Run]:
    """Nine steps, undisturbed, with knobs turned on the way."""
    run = make(small_model, folder, name="whole", optimizer=wb.Optimizer(learning_rate=2e-3), checkpoint_every=3, trackers=())
    for step in run.train(9):
        if step.step == 2:
            run.knobs.set(temperature=0.9, group_size=6)
            with pytest.raises(ConfigError, match="above 0"):
                run.knobs.learning_rate = -1
        if step.step == 6:
            run.knobs.prompts = 5
    yield run
    run.close()


def test_knobs_act_at_the_next_step_and_a_refused_one_leaves_the_run_alone(whole: Run) -> None:
    assert [step.groups for step in whole.steps] == [8] * 6 + [5] * 3
    assert [step.tokens_prompt // step.groups for step in whole.steps] == [8 * 8] * 2 + [6 * 8] * 7  # completions times tokens of a prompt
    changes = [(k.step, k.name, k.old, k.new) for event in whole.events if isinstance(k := event.record, Knob)]
    assert changes == [(3, "temperature", 1.0, 0.9), (3, "group_size", 8, 6), (7, "prompts", 8, 5)]


def test_a_limit_on_completions_that_the_window_cannot_hold_is_refused(whole: Run) -> None:
    with pytest.raises(ConfigError, match=r"max_tokens=510: .*window holds 512 tokens[\s\S]*write 504 or less"):
        whole.knobs.max_tokens = 510


def test_a_run_that_is_open_elsewhere_is_refused(whole: Run) -> None:
    code = f"from workbench.run import Run; Run.restore({str(whole.path)!r}, task=__import__('tests.test_restore').test_restore.TASK)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent.parent, check=False)
    assert "the run is open already, in process" in done.stderr
    assert len(whole.steps) == 9  # and this one goes on as if nothing had been


def test_a_folder_that_cannot_be_written_stops_with_the_reason_and_nothing_is_lost(whole: Run) -> None:
    place, aside = whole.path / "checkpoints", whole.path / "elsewhere"
    place.rename(aside)
    place.write_text("in the way")
    with pytest.raises(StorageError, match="checkpoint of step 10 in"):
        whole.checkpoint() if len(whole.steps) == 10 else list(whole.train(1))
    assert whole.state == "failed"
    place.unlink()
    aside.rename(place)
    (step,) = whole.train(1)
    assert step.step == 11
    assert whole.state == "finished"


def test_another_life_goes_on_to_the_same_numbers(whole: Run, small_model: Path, folder: Path) -> None:
    expected = numbers(whole)[:9]
    whole.close()
    lost = make(small_model, folder, name="lost", optimizer=wb.Optimizer(learning_rate=2e-3), checkpoint_every=3, trackers=())
    for step in lost.train(9):
        if step.step == 2:
            lost.knobs.set(temperature=0.9, group_size=6)
        if step.step == 6:
            lost.knobs.prompts = 5
        if step.step == 8:
            break
    path = lost.path
    lost.close()
    run = Run.restore(path / "checkpoints" / "step-000006", task=TASK)
    assert run.state == "paused"
    assert run.knobs.prompts == 5  # turned after step 6, so not in its checkpoint
    assert [step.step for step in run.train()] == [7, 8, 9]
    assert numbers(run) == expected
    assert len([1 for event in run.events if isinstance(event.record, Restored)]) == 1
    kept = run.checkpoint()
    assert kept.name == "kept-000009"
    with pytest.raises(ConfigError, match=r"all steps that were asked for are made \(9\)"):
        run.start()
    run.close()
    again = Run.restore(kept, task=TASK)
    again.start(1).wait()
    assert len(again.steps) == 10
    again.close()
    assert Run.load(path).state == "finished"


def test_what_was_written_as_code_has_to_be_handed_in(whole: Run, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"its task 'list' was made from data[\s\S]*Run.restore\(path, task=\.\.\.\)"):
        Run.restore(folder / "lost")
    other = wb.tasks.from_list([(f"sort {n}=", "") for n in range(99)], scorer=likes_a)
    with pytest.raises(ConfigError, match="other prompts than the run was trained on"):
        Run.restore(folder / "lost", task=other)
    with pytest.raises(ConfigError, match=r"Run.restore\(algo=RLOO\(.*the run was made with GRPO\(group_size=8"):
        Run.restore(folder / "lost", task=TASK, algo=wb.algos.RLOO())


@pytest.mark.parametrize("text", ["[]", "{}", "{", '{"name": 1}'])
def test_a_damaged_plan_is_named(whole: Run, folder: Path, tmp_path: Path, text: str) -> None:
    shutil.copytree(folder / "lost", tmp_path / "copy")
    (tmp_path / "copy" / "plan.json").write_text(text)
    with pytest.raises(ConfigError, match=r"plan.json (can't be read|is damaged)"):
        Run.restore(tmp_path / "copy", task=TASK)


def test_damaged_events_and_files_of_ones_own(whole: Run, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "lost", tmp_path / "copy")
    events = tmp_path / "copy" / "events.jsonl"
    (tmp_path / "copy" / ".notes.2").write_text("mine")
    (tmp_path / "copy" / ".metrics.json.77").write_text("{")
    content = events.read_bytes()
    events.write_bytes(content.replace(b"run_started", b"run_st\xffrted", 1))
    with pytest.raises(ConfigError, match=r"line 1 is no event"):
        Run.restore(tmp_path / "copy", task=TASK)
    assert sorted(path.name for path in (tmp_path / "copy").glob(".*")) == [".notes.2"]
    events.unlink()
    with pytest.raises(ConfigError, match="there is no such file"):
        Run.restore(tmp_path / "copy", task=TASK)


def test_another_reward_is_refused(whole: Run, folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"Run.restore\(reward=upper\): the run was made with the task's scorer"):
        Run.restore(folder / "lost", task=TASK, reward=upper)


def test_a_run_that_lacks_only_its_last_score_gets_it_once(whole: Run, small_model: Path, folder: Path) -> None:
    run = make(small_model, folder, name="unscored", checkpoint_every=2, trackers=())
    steps = run.train(2)
    next(steps), next(steps)
    run.close()  # between the last step and the score
    again = Run.restore(run.path, task=TASK)
    assert list(again.train()) == []
    assert [score.step for score in again.held_out] == [0, 2]
    again.close()
    with pytest.raises(ConfigError, match="all steps that were asked for are made"):
        Run.restore(run.path, task=TASK).train()


def test_a_reward_that_calls_the_run_is_told_so(whole: Run, small_model: Path, folder: Path) -> None:
    called = []

    def calls(prompt: str, completion: str, answer: object) -> float:
        for call in (run.checkpoint, run.evaluate, run.pause, run.stop, run.close):
            with pytest.raises(StateError, match="in a reward"):
                call()
        called.append(prompt)
        return float(len(completion))

    run = make(small_model, folder, name="calls", reward=calls, held_out=0, trackers=())
    assert len(list(run.train(1))) == 1
    assert called
    run.close()


def test_prompts_without_end_can_be_stopped(whole: Run, small_model: Path, folder: Path) -> None:
    run = make(small_model, folder, name="greedy", held_out=0, trackers=())
    run.knobs.prompts = 10**9
    run.start(1)
    while run.state != "running":
        time.sleep(0.01)
    time.sleep(0.5)
    began = time.monotonic()
    run.stop()
    assert time.monotonic() - began < 2
    assert run.state == "stopped"
    run.close()


def test_a_folder_that_holds_no_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no plan.json in it"):
        Run.restore(tmp_path)
    with pytest.raises(ConfigError, match=r"there is no such folder"):
        Run.restore(tmp_path / "nothing")


def test_a_restore_that_starts_nothing_leaves_the_folder_as_it_was(whole: Run, folder: Path) -> None:
    events, files = (folder / "lost" / "events.jsonl").read_bytes(), sorted((folder / "lost" / "checkpoints").iterdir())
    state = Run.load(folder / "lost").state
    Run.restore(next(file for file in files if file.name.startswith("step-")), task=TASK).close()
    assert (folder / "lost" / "events.jsonl").read_bytes() == events
    assert sorted((folder / "lost" / "checkpoints").iterdir()) == files
    assert Run.load(folder / "lost").state == state


def test_a_restore_of_what_is_open_here_goes_on_from_where_that_was_closed(whole: Run, small_model: Path, folder: Path) -> None:
    run = make(small_model, folder, name="open", checkpoint_every=2, keep=1, trackers=(), held_out=0)
    steps = run.train(20)
    for _ in range(3):
        next(steps)
    again = Run.restore(run.path, task=TASK)
    assert (run.state, again._training.done) == ("closed", 3)
    again.close()


def test_a_limit_turned_up_before_the_window_is_known_is_taken_back(whole: Run, small_model: Path, folder: Path) -> None:
    run = make(small_model, folder, name="eager", trackers=())
    run.knobs.max_tokens = 100_000
    assert len(list(run.train(1))) == 1
    assert run.knobs.max_tokens == 8
    assert any("max_tokens is taken back to 8" in event.data.get("text", "") for event in run.events)
    run.close()


def test_a_checkpoint_before_the_first_step_is_refused(whole: Run, folder: Path) -> None:
    run = Run.restore(folder / "lost", task=TASK)
    run.close()
    with pytest.raises(StateError, match="the run is closed"):
        run.checkpoint()
