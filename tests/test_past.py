"""Runs of before: opened from their folders, alive, dead and damaged; and listed."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.test_metrics import a_step
from workbench.errors import ConfigError, StateError
from workbench.events import EventLog
from workbench.listing import RunLine, as_text, list_runs, read_line
from workbench.metrics import metrics
from workbench.past import PastRun, compare, load, state_now
from workbench.records import HeldOut, Knob, Restored, RunStarted, Samples, State, Step

Write = Callable[..., Path]
STARTED = RunStarted("quick", "/models/tiny-llama", {"name": "GRPO", "kl": 0.0}, {"held_out": 64}, {"actor": ["cpu:0"]}, {}, 0)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a run's folder: three steps between two evaluations, in the states given."""

    def make(name: str = "quick-20261130-120000", *, end: tuple[str, ...] = ("finished", "closed"), error: str = "") -> Path:
        path = tmp_path / "runs" / name
        path.mkdir(parents=True)
        log = EventLog(path / "events.jsonl")
        for record in (STARTED, State("starting"), State("running"), HeldOut(0, 0.25, 0.03, 64)):
            log.emit(record)
        for step in (1, 2, 3):
            log.emit(a_step(step, reward_mean=step / 10))
        log.emit(Knob(3, "learning_rate", 1e-3, 5e-4))
        log.emit(HeldOut(3, 0.75, 0.04, 64))
        for state in end:
            log.emit(State(state, error if state == "failed" else ""))
        log.close()
        return path

    return make


# ---------------------------------------------------------------- load


def test_a_finished_run_says_it_all(write: Write) -> None:
    run = load(write())
    assert (run.name, run.state, run.error) == ("quick", "finished", "")
    assert [step.reward_mean for step in run.steps] == [0.1, 0.2, 0.3]
    assert [point.reward_mean for point in run.held_out] == [0.25, 0.75]
    assert run.turned == [Knob(3, "learning_rate", 1e-3, 5e-4)]
    assert len(run.events) == 11
    assert run.metrics == metrics(run.events)
    assert repr(run) == f"PastRun('quick', finished, 3 steps, held-out reward 0.25 -> 0.75, {run.path})"


def test_a_link_a_file_and_a_folder_are_the_same_run(write: Write) -> None:
    path = write()
    link = path.parent / "quick"
    link.symlink_to(path.name)
    assert load(link).path == load(str(path / "events.jsonl")).path == load(path).path == path.resolve()


def test_the_views_are_those_of_a_live_run(write: Write) -> None:
    run = load(write())
    assert run.watch().state == "closed"
    assert run.watch() is run.watch()
    assert all(run.watch(view).twin()["text/html"] for view in ("topology", "load", "timeline", "samples", "all"))
    with pytest.raises(StateError, match="this run is over"):
        run.watch("knobs")
    with pytest.raises(ConfigError, match=r"run.watch\('gpu'\): the views are curves, knobs, topology"):
        run.watch("gpu")
    assert "  gain    +0.500    ± 0.050" in run.summary().text


def test_a_failed_run_names_its_error(write: Write) -> None:
    run = load(write(end=("failed", "closed"), error="EngineError: it died\n  fix: restart"))
    assert (run.state, run.error) == ("failed", "EngineError: it died\n  fix: restart")
    assert ", EngineError: it died, " in repr(run)


def test_what_a_restored_run_left_behind_does_not_count(write: Write) -> None:
    path = write(end=())
    log = EventLog()
    log.go_on(path / "events.jsonl")
    log.write_to(path / "events.jsonl")
    log.emit(Restored(1, "checkpoints/step-000001", {}))
    log.emit(a_step(2, reward_mean=0.9))
    log.close()
    run = load(path)
    assert [step.reward_mean for step in run.steps] == [0.1, 0.9]
    assert [point.step for point in run.held_out] == [0]
    assert run.turned == []
    line = read_line(path)
    assert (line.steps, line.reward, line.held_out_before, line.held_out_after) == (2, 0.9, 0.25, None)


def test_steps_of_a_version_that_sampled_nothing_ahead_are_read(write: Write) -> None:
    path = write()
    events = (path / "events.jsonl").read_text()
    older = events.replace(', "staleness": 0', "").replace(', "ahead_seconds": 0.0', "")
    assert len(older) < len(events)
    (path / "events.jsonl").write_text(older)
    assert {(step.staleness, step.ahead_seconds) for step in load(path).steps} == {(0, 0.0)}


def test_what_was_sampled_ahead_is_in_the_records(write: Write) -> None:
    path = write(end=())
    log = EventLog()
    log.go_on(path / "events.jsonl")
    log.write_to(path / "events.jsonl")
    log.emit(a_step(4, staleness=1, ahead_seconds=0.75))
    log.close()
    assert [(step.staleness, step.ahead_seconds) for step in load(path).steps] == [(0, 0.0)] * 3 + [(1, 0.75)]


@pytest.mark.parametrize(
    ("states", "alive", "shown"),
    [
        (["starting", "running"], True, "running"),
        (["starting", "running"], False, "interrupted"),
        (["running", "paused"], False, "interrupted"),
        (["running", "paused"], True, "paused"),
        (["running", "finished"], False, "finished"),
        (["running", "finished", "closed"], False, "finished"),
        (["running", "failed", "closed"], False, "failed"),
        (["paused", "closed"], False, "closed"),
        (["finished", "starting", "running"], False, "interrupted"),
        ([], True, "new"),
        ([], False, "interrupted"),
    ],
)
def test_the_state_shown(states: list[str], alive: bool, shown: str) -> None:
    assert state_now(states, alive) == shown


WRITER = """
import sys, time
from pathlib import Path
from workbench.folder import RunFolder
from workbench.events import EventLog
from workbench.records import RunStarted, State
folder = RunFolder(Path(sys.argv[1]), "quick")
log = EventLog(folder.make() / "events.jsonl")
log.emit(RunStarted("quick", "tiny", {}, {}, {}, {}, 0))
log.emit(State("running"))
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that trains, or seems to."""
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "runs")], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.wait()


def test_a_run_of_another_process_lives_until_that_is_killed(writer: subprocess.Popen[str]) -> None:
    assert writer.stdout is not None
    path = Path(writer.stdout.readline().strip())
    assert (load(path).state, read_line(path).state) == ("running", "running")
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    run = load(path)
    assert (run.state, read_line(path).state) == ("interrupted", "interrupted")
    assert run.events[-1].data["state"] == "running"  # the file is shown as it is
    assert "· interrupted ·" in run.summary().text
    assert run.watch().state == "interrupted"


def test_a_run_that_is_written_is_loaded_again(write: Write) -> None:
    path = write(end=())
    log = EventLog()
    log.go_on(path / "events.jsonl")
    log.write_to(path / "events.jsonl")
    log.emit(a_step(4))
    with open(path / "events.jsonl", "a") as file:
        file.write('{"seq": 10, "ti')  # a line of which half is written
    assert len(load(path).steps) == len(load(path).steps) == 4
    assert read_line(path).steps == 4


def test_loading_writes_nothing(write: Write) -> None:
    path = write()
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    load(path).summary()
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before


# ---------------------------------------------------------------- what is no run


def test_a_run_that_is_not_there(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(write().parent.parent)
    with pytest.raises(ConfigError, match=r"no such folder or file\n  fix: write 'runs/quick-20261130-120000'"):
        load("quick-20261130-120000")
    with pytest.raises(ConfigError, match=r"fix: the runs in 'runs' are quick-20261130-120000"):
        load("runs/slow")
    with pytest.raises(ConfigError, match=r"a folder of runs: quick-20261130-120000\n  fix: give one of them: 'runs/quick-"):
        load("runs")
    Path("other").mkdir()
    with pytest.raises(ConfigError, match=r"run 'other': that folder holds no events\.jsonl"):
        load("other")


def broken(path: Path, line: int, text: bytes) -> None:
    """Put ``text`` in the place of one line."""
    lines = (path / "events.jsonl").read_bytes().splitlines(keepends=True)
    lines[line - 1] = text
    (path / "events.jsonl").write_bytes(b"".join(lines))


WHERE = b'"time": 1, "mono": 1, "node": "local", "device": null, "role": null, "phase": null'
STEP_OF_NOTHING = b'{"seq": 4, %s, "kind": "step", "data": {}}\n' % WHERE
PROGRESS = b'{"seq": 4, %s, "kind": "progress", "data": {"what": "steps", "done": 1, "total": %%s}}\n' % WHERE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"\0\0\0\n", "line 5 is no event"),
        (b"[1, 2]\n", "line 5 is no event"),
        (b"\xff\xfe\n", "line 5 is damaged|can't decode"),
        (STEP_OF_NOTHING, "line 5 is damaged, or written by another version"),
        (STEP_OF_NOTHING.replace(b'"step"', b'"dance"'), "event of kind 'dance': this version knows run_started"),
        (STEP_OF_NOTHING.replace(b'"mono": 1', b'"mono": NaN'), r"line 5 is no event \(mono is nan\)"),
        (STEP_OF_NOTHING.replace(b'"data": {}', b'"data": []'), r"line 5 is no event \(data is \[\]\)"),
        (STEP_OF_NOTHING.replace(b'"node": "local"', b'"node": 3'), r"line 5 is no event \(node is 3\)"),
        (PROGRESS % b'"x"', r"line 5 is damaged, or written by another version \(total is 'x'\)"),
        (PROGRESS % b"NaN", r"line 5 is damaged, or written by another version \(total is nan\)"),
        (PROGRESS % b"null", r"line 5 is damaged, or written by another version \(total is None\)"),
    ],
)
def test_a_damaged_line_is_named(write: Write, text: bytes, message: str) -> None:
    path = write()
    broken(path, 5, text)
    with pytest.raises(ConfigError, match=message):
        load(path)


def test_a_file_without_a_beginning(write: Write) -> None:
    path = write()
    broken(path, 1, b"")
    with pytest.raises(ConfigError, match=r"begins with 'state', a run with 'run_started'"):
        load(path)
    (path / "events.jsonl").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"holds no event yet\n  fix: load it again"):
        load(path)


def test_what_can_be_compared(write: Write) -> None:
    path = write()
    with pytest.raises(ConfigError, match=r"wb\.compare\(\): there is no run to compare"):
        compare()
    with pytest.raises(ConfigError, match=r"wb\.compare\(3\): that is a int"):
        compare(path, 3)  # type: ignore[arg-type]
    assert [run.name for run in compare(load(path), path).table] == ["quick (1)", "quick (2)"]


# ---------------------------------------------------------------- the list


def test_a_list_has_the_numbers_of_each_run(write: Write) -> None:
    path = write()
    line = read_line(path)
    run = load(path)
    assert line == RunLine(
        folder=path.name, name="quick", state="finished", steps=3, held_out_before=0.25, held_out_after=0.75, reward=0.3,
        model="/models/tiny-llama", algo="GRPO", started=run.events[0].time, seconds=run.events[-2].time - run.events[0].time,
    )  # fmt: skip
    assert as_text([line]).splitlines()[1].split()[:8] == [path.name, "finished", "3", "0.25", "->", "0.75", "0.30", "tiny-llama"]


def test_newest_first_and_no_link_twice(write: Write) -> None:
    paths = [write(f"run-{number}") for number in (3, 1, 2)]  # made in this order
    (paths[0].parent / "run").symlink_to("run-2")
    (paths[0].parent / "run-2.ipynb").write_text("{}")
    lines, total = list_runs(paths[0].parent, newest=2)
    assert ([line.folder for line in lines], total) == (["run-2", "run-1"], 3)


def test_damaged_runs_are_listed_with_the_reason(write: Write) -> None:
    broken(write("torn"), 6, b"\0\0\0\n")
    glued = write("glued")
    events = (glued / "events.jsonl").read_bytes()
    (glued / "events.jsonl").write_bytes(events.replace(b'}\n{"seq": 5', b'}{"seq": 5'))
    (write("empty") / "events.jsonl").write_bytes(b"")
    (glued.parent / "pictures").mkdir()
    lines, total = list_runs(glued.parent)
    problems = {line.folder: line.problem for line in lines}
    assert (total, {line.state for line in lines}) == (4, {"damaged"})
    assert "line 6 is no event" in problems["torn"]
    assert "line 5 is no event" in problems["glued"]
    assert "is empty" in problems["empty"]
    assert "this is no run" in problems["pictures"]
    assert all(f"{name}: {problem}" in as_text(lines) for name, problem in problems.items())


def test_samples_that_look_like_events_are_not_taken_for_them(write: Write) -> None:
    path = write(end=())
    log = EventLog()
    log.go_on(path / "events.jsonl")
    log.write_to(path / "events.jsonl")
    text = json.dumps({"kind": "step", "data": {"step": 99}})
    log.emit(Samples(3, [text], [text], [""], [0.0], [0.0]))
    log.close()
    assert read_line(path).steps == 3


def test_a_run_without_a_step_and_one_evaluation(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.emit(replace(STARTED, settings={"kind": "step"}))
    line = read_line(tmp_path)
    assert (line.steps, line.reward, line.held_out_before, line.state) == (0, None, None, "interrupted")
    log.emit(HeldOut(0, 0.5, 0.1, 64))
    line = read_line(tmp_path)
    assert (line.held_out_before, line.held_out_after) == (0.5, None)


def test_two_hundred_runs_are_listed_in_a_second(write: Write) -> None:
    path = write(end=())
    log = EventLog()
    log.go_on(path / "events.jsonl")
    log.write_to(path / "events.jsonl")
    for step in range(4, 1000):
        log.emit(a_step(step))
    log.close()
    long, root = (path / "events.jsonl").read_bytes(), path.parent  # 0.8 MB each, read and not parsed
    for number in range(200):
        folder = root / f"copy-{number}"
        folder.mkdir()
        (folder / "events.jsonl").write_bytes(long)
    began = time.perf_counter()
    found, total = list_runs(root, newest=None)
    assert (len(found), total) == (201, 201)
    assert {line.problem for line in found} == {""}
    assert time.perf_counter() - began < 2  # 0.2 s where nothing else runs


def test_the_past_is_opened_without_torch() -> None:
    code = "import sys, workbench.past, workbench.listing; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"torch", "matplotlib", "anywidget"} & set(shown) == set()


def test_steps_are_records(write: Write) -> None:
    run = load(write())
    assert isinstance(run, PastRun)
    assert all(isinstance(step, Step) for step in run.steps)
