"""The lesson on bubbles: its checks against a made-up run, and the whole of it with processes of its own."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest

import workbench as wb
from tests.telemetry.runs import Story
from tests.test_lessons_maps import cell_with, drawings, execute, printed, value
from workbench.telemetry.bubbles import bubbles

LESSON = Path(__file__).parent.parent / "notebooks" / "08_watch_a_run.ipynb"
PLACES = {"actor": ["cpu:0"], "rollout": ["cpu:1"], "reference": ["cpu:0"], "reward": ["driver:0"]}
ANSWERS = ("shared_wait", "idle_percent", "prompts_there", "one_ahead", "change")


def made_up() -> Any:
    """Six steps of 8.5 s: 1 s until the prompts are there, 3 of rollout, 1 of reference, 3 of update, 0.5 of sync."""
    story = Story(PLACES)
    for _ in range(6):
        for phase, seconds in (("rollout", 4.0), ("reference", 1.0), ("update_actor", 3.0), ("sync", 0.5)):
            story.phase(phase, seconds)
        story.end(data_wait_seconds=1.0)
    return SimpleNamespace(bubbles=lambda first, last: bubbles(story.events, first, last))


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    """What the lesson's cells define; its run is made up."""
    found: dict[str, Any] = {"wb": wb, "steps": 6, "milliseconds": 8, "slow": made_up()} | dict.fromkeys(ANSWERS)
    cells = [cell.source for cell in nbformat.read(LESSON, 4).cells if cell.cell_type == "code"]
    for text in (
        "class SlowStore",
        "table = ",
        "def wrong_shared",
        "def wrong_percent",
        "def wrong_without",
        "def wrong_ahead",
        "def wrong_change",
    ):
        exec(next(source for source in cells if text in source), found)
    return found


@pytest.mark.parametrize(
    ("check", "answer", "why"),
    [
        ("wrong_shared", "data", ""),
        ("wrong_shared", "rollout", "only one of them waits for that"),
        ("wrong_shared", "update_actor", "only one of them waits for that"),
        ("wrong_shared", "sync", "one of data"),
        ("wrong_percent", 47, ""),
        ("wrong_percent", "47.06", ""),
        ("wrong_percent", 0.47, "in percent"),
        ("wrong_percent", 11.8, "that is the wait for data alone"),
        ("wrong_percent", 35.3, "that is the wait for the rollout alone"),
        ("wrong_percent", 58.8, "that is cpu:1"),
        ("wrong_percent", 52.9, "that is how long it works"),
        ("wrong_percent", "half", "all its waits, over 25.50 s"),
        ("wrong_without", "7.5", ""),
        ("wrong_without", 22.5, "that is three steps"),
        ("wrong_without", 8.5, "that is as it is now"),
        ("wrong_without", 1, "that is what falls away"),
        ("wrong_without", 5, "the whole time, without `data`"),
        ("wrong_ahead", 4.5, ""),
        ("wrong_ahead", 3.5, "the other one is not done by then"),
        ("wrong_ahead", "8", "that is one after the other"),
        ("wrong_ahead", 13.5, "that is three steps"),
        ("wrong_ahead", None, "what the busier of the two works"),
        ("wrong_change", {"prefetch": 2, "overlap": 1}, ""),
        ("wrong_change", {"prefetch": 1, "overlap": 1}, ""),
        ("wrong_change", {"overlap": 1}, "the store is waited for as before"),
        ("wrong_change", {"prefetch": 2, "overlap": 0}, "they take turns as before"),
        ("wrong_change", {"prefetch": 2, "overlap": 2}, "they take turns as before; a policy may be one step old, no more"),
        ("wrong_change", {"prefetch": 2, "steps": 9}, "the two of them by name"),
        ("wrong_change", "overlap", "the two of them by name"),
    ],
)
def test_an_answer_and_what_is_wrong_with_it(scope: dict[str, Any], check: str, answer: object, why: str) -> None:
    said = scope[check](answer)
    assert said.startswith(why) if why else said == ""


def test_the_table_in_seconds(scope: dict[str, Any]) -> None:
    assert scope["seconds_of"](scope["table"])["cpu:0"] == ({"actor": 10.5, "reference": 3.0}, {"rollout": 9.0, "data": 3.0})


@pytest.mark.long
@pytest.mark.usefixtures("free_process")
def test_the_lesson_as_it_is_run_without_a_front_end(tmp_path: Path) -> None:
    """Two runs of two processes each; what is foretold is measured, so its numbers are not known beforehand."""
    cells = execute(LESSON, tmp_path, {"shared_wait": "data", "one_ahead": "-1", "change": '{"prefetch": 2, "overlap": 1}'})
    assert value(cell_with(cells, "questions = ")) == "'2 of 5 right'"
    assert printed(cell_with(cells, "questions = ")).count("not answered yet") == 2
    assert drawings(cells) == 4  # the live view as it ended, the picture, and both side by side
    runs = {name: wb.Run.load(tmp_path / "runs" / f"watch-{name}") for name in ("slow", "changed")}
    assert all(run.state == "finished" and len(run.steps) == 6 for run in runs.values())
    waits = {name: {one.device: one.idle_seconds for one in run.bubbles(3, 5).devices} for name, run in runs.items()}
    assert waits["slow"]["cpu:1"]["data"] == waits["slow"]["cpu:0"]["data"] > 3 * 48 * 0.008
    assert waits["changed"]["cpu:0"].get("data", 0.0) < 0.5 * waits["slow"]["cpu:0"]["data"]
    idle = {name: run.bubbles(3, 5).idle_fraction for name, run in runs.items()}
    assert sum(idle["changed"][device] for device in ("cpu:0", "cpu:1")) < sum(idle["slow"][device] for device in ("cpu:0", "cpu:1"))
    assert "the largest bubble that is left: cpu:" in printed(cell_with(cells, "the largest bubble"))
