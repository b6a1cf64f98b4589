"""The lesson on roles on groups of devices: its checks without a kernel, and the whole of it with real runs."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

import workbench as wb
from tests.test_lessons_maps import cell_with, drawings, execute, printed, value
from workbench.events import EventLog
from workbench.records import Phase, RunStarted, Step
from workbench.views import timeline

LESSON = Path(__file__).parent.parent / "notebooks" / "05_roles_on_groups.ipynb"
RIGHT = {"idle_device": "cpu:0", "sampled_beside": "5", "updates_older": "1", "sampling_gpus": "2", "faster": "turns"}
PLACES = {"actor": ["cpu:0"], "rollout": ["cpu:1"], "reference": ["cpu:0"], "reward": ["driver:0"]}
A_STEP = (("rollout", 4.0), ("reward", 1.0), ("reference", 1.0), ("update_actor", 2.0), ("sync", 1.0))


def made_up(phases: Sequence[tuple[str, float]] = A_STEP) -> Any:
    """Six steps on two devices, as a run that is over; the last of them one version off policy."""
    log, now = EventLog(), 0.0
    log.emit(RunStarted("made up", "tiny", {"name": "GRPO"}, {}, PLACES, {}, 0))
    zeros = {name: 0 for name in Step.__dataclass_fields__ if name not in ("step", "phase_seconds")}
    for step in range(1, 7):
        for phase, seconds in phases:
            log.emit(Phase(step, now, seconds), phase=phase)
            now += seconds
        log.emit(Step(step=step, **(zeros | {"staleness": int(step > 1)})))
    steps = [event.record for event in log.events if event.kind == "step"]
    return SimpleNamespace(timeline=lambda first, last: timeline(log.events, first, last), steps=steps)


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    """What the lesson's cells define; its runs are made up."""
    found: dict[str, Any] = {"wb": wb, "cpu_slots": 2, "steps": 6, "apart": made_up(), "overlapped": made_up()} | dict.fromkeys(RIGHT)
    cells = [cell.source for cell in nbformat.read(LESSON, 4).cells if cell.cell_type == "code"]
    for text in ("class Question", "def wrong_device", "def wrong_step", "def wrong_age", "def wrong_split", "def wrong_way"):
        exec(next(source for source in cells if text in source), found)
    return found


@pytest.mark.parametrize(
    ("check", "answer", "why"),
    [
        ("wrong_device", "cpu:0", ""),
        ("wrong_device", 0, ""),
        ("wrong_device", "1", "that one samples"),
        ("wrong_device", "driver:0", "that one never has much to do"),
        ("wrong_device", "cpu:7", "there is no cpu:7; the rows are cpu:0, cpu:1, driver:0"),
        ("wrong_step", 5, ""),
        ("wrong_step", "4", "that batch is learnt from"),
        ("wrong_step", "6", "look at the number"),
        ("wrong_age", 1, ""),
        ("wrong_age", "0", "a step's `staleness` says it"),
        ("wrong_split", 2, ""),
        ("wrong_split", "1", "4.10 s of sampling on 1, 1.00 s of learning on 3: a step takes 4.10 s"),
        ("wrong_split", 3, "1.37 s of sampling on 3, 3.00 s of learning on 1: a step takes 3.00 s"),
        ("wrong_split", "four", "1 to 3 of them can sample"),
        ("wrong_split", 4, "1 to 3 of them can sample"),
        ("wrong_way", "turns", ""),
        ("wrong_way", "split", "turns take (4.1 + 3.0) / 4 = 1.77 s, the best split 2.05 s"),
    ],
)
def test_an_answer_and_what_is_wrong_with_it(scope: dict[str, Any], check: str, answer: object, why: str) -> None:
    said = scope[check](answer)
    assert said.startswith(why) if why else said == ""


def test_a_question_remembers_its_verdict(scope: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    question = scope["Question"](scope["wrong_way"])
    question.check(None)
    question.check("split")
    assert question.verdict.startswith("wrong: turns take")
    question.check("turns")
    assert question.verdict == "right"
    assert [line[0] for line in capsys.readouterr().out.splitlines()] == ["·", "✗", "✓"]


def test_the_numbers_of_the_exercise_are_those_of_the_readme() -> None:
    """4.1 s of rollout; 2.7 s of update, 0.21 s of reference and 0.061 s of sync."""
    readme = (LESSON.parent.parent / "README.md").read_text()
    names = ("rollout", "update_actor", "reference", "sync and proof")
    rows = {name: float(readme.partition(f"| {name} | ")[2].split(" |")[0]) for name in names}
    source = cell_with(nbformat.read(LESSON, 4).cells, "SAMPLING, LEARNING").source
    assert source.startswith(f"SAMPLING, LEARNING, GPUS = {rows.pop('rollout')}, {sum(rows.values()):.1f}, 4")


@pytest.mark.long
@pytest.mark.usefixtures("free_process")
def test_the_lesson_with_right_answers(tmp_path: Path) -> None:
    """Three runs of two processes each."""
    cells = execute(LESSON, tmp_path, RIGHT)
    assert value(cell_with(cells, "questions = ")) == "'5 of 5 right'"
    assert drawings(cells) == 6
    runs = {name: wb.Run.load(tmp_path / "runs" / f"groups-{name}") for name in ("turns", "apart", "ahead")}
    assert all(run.state == "finished" and len(run.steps) == 6 for run in runs.values())
    assert [step.staleness for step in runs["ahead"].steps] == [0, 1, 1, 1, 1, 1]
    assert "sync          actor -> rollout     adapter" in printed(cell_with(cells, "print(apart.routes)"))
    busy = {name: run.timeline(3, 5).busy_fraction for name, run in runs.items()}
    assert min(busy["turns"]["cpu:0"], busy["turns"]["cpu:1"]) > 0.8
    assert sum(busy["ahead"][device] for device in ("cpu:0", "cpu:1")) > sum(busy["apart"][device] for device in ("cpu:0", "cpu:1"))
