"""The lesson on resharding: its checks and its film without a kernel, and the whole of it with sixteen processes."""

from pathlib import Path
from typing import Any

import nbformat
import pytest

from tests.test_lessons_maps import cell_with, drawings, execute, printed, value
from workbench.reshard.lying import Engine, Fsdp
from workbench.reshard.volumes import hybrid
from workbench.topology.drawing.scene import Rect

LESSON = Path(__file__).parent.parent / "notebooks" / "07_where_do_the_bytes_go.ipynb"
RIGHT = {"key_bytes": "128", "moved_gb": "1.75", "idle_ranks": "4", "added_up": "1", "mode": "merged"}


@pytest.fixture(scope="module")
def scope() -> dict[str, Any]:
    """What the lesson's cells define."""
    found: dict[str, Any] = dict.fromkeys(RIGHT)
    cells = [cell.source for cell in nbformat.read(LESSON, 4).cells if cell.cell_type == "code"]
    for text in (
        "class Film",
        "q = Par",
        "def wrong_keys",
        "def wrong_moved",
        "def idle",
        "import torch\n\n",
        "def merge",
        "def wrong_sum",
    ):
        exec(next(source for source in cells if text in source), found)
    exec(next(source for source in cells if "def wrong_mode" in source), found)
    return found


@pytest.mark.parametrize(
    ("check", "answer", "why"),
    [
        ("wrong_keys", 128, ""),
        ("wrong_keys", "32", "that is one rank's"),
        ("wrong_keys", 256, "half is there already"),
        ("wrong_keys", "many", "what each rank lacks, times four ranks"),
        ("wrong_moved", "1.75", ""),
        ("wrong_moved", 3.5, "that is all it needs; an eighth of the model is there"),
        ("wrong_moved", "5.25", "that is t_g = 2"),
        ("wrong_moved", "0", "a GPU needs 14 / 4 GB, and has 14 / 8"),
        ("wrong_idle", "4", ""),
        ("wrong_idle", 2, "that is with four ranks"),
        ("wrong_idle", "6", "even ranks want the first half"),
        ("wrong_sum", 1, ""),
        ("wrong_sum", "1.296875", "that is from the frozen weight"),
        ("wrong_sum", "1.3", "that is what is meant"),
        ("wrong_sum", "2", "what is 1.003 rounded to"),
        ("wrong_mode", "merged", ""),
        ("wrong_mode", "full", "all weights would have to move"),
        ("wrong_mode", "gather", "one of adapter, zero_copy, full, merged"),
    ],
)
def test_an_answer_and_what_is_wrong_with_it(scope: dict[str, Any], check: str, answer: object, why: str) -> None:
    said = scope[check](answer)
    assert said.startswith(why) if why else said == ""


def test_right_answers_are_those_of_the_package(scope: dict[str, Any]) -> None:
    grid = scope["Generation"](scope["Training"](1, 8, 2), 1, 4)
    assert float(hybrid(grid, 14 * 10**9).moved) / 1e9 == float(RIGHT["moved_gb"])
    assert scope["idle"](8) == [1, 3, 4, 6]  # even ranks want eighths 0 to 3, odd ones 4 to 7
    assert scope["idle"](4) == [1, 2]


def test_the_film_ends_with_what_the_engine_needs(scope: dict[str, Any]) -> None:
    """Elements in the last frame: of q 32 a rank, of o 16 that stayed and 16 that came, of norm 4 and 4."""
    film, cell = scope["Film"]([scope["q"], scope["o"], scope["norm"]], Fsdp(2), Engine(2)), scope["CELL"]
    boxes = [item for item in film.scene().items if isinstance(item, Rect) and item.y >= scope["TOP"]]
    edge = max(box.x for box in boxes) - 120  # a frame is 118 wide
    last = [box for box in boxes if box.x > edge]
    drawn = {fill: sum(box.width * box.height for box in last if box.fill == fill) / cell**2 for fill in {box.fill for box in last}}
    assert drawn["update_actor"] == 2 * (32 + 16 + 4)
    assert drawn["rollout"] == 2 * (16 + 4)
    assert "update_actor-soft" not in drawn
    assert not any(box.dashed for box in last)


def test_the_film_begins_with_what_is_lacking(scope: dict[str, Any]) -> None:
    film = scope["Film"]([scope["o"]], Fsdp(2), Engine(2))
    first = [item for item in film.scene().items if isinstance(item, Rect) and scope["TOP"] <= item.y and item.x < scope["LEFT"] + 48]
    dashed = [(box.x, box.y) for box in first if box.dashed]
    top, below = scope["TOP"], scope["TOP"] + scope["PITCH"]
    assert dashed == [(scope["LEFT"], top + 24), (scope["LEFT"] + 24, below)]  # lower left of rank 0, upper right of rank 1


@pytest.mark.long
def test_the_lesson_with_right_answers(tmp_path: Path) -> None:
    cells = execute(LESSON, tmp_path, RIGHT)
    assert value(cell_with(cells, "questions = ")) == "'5 of 5 right'"
    assert drawings(cells) == 2
    moved = cell_with(cells, "SOURCE = ")
    assert printed(moved).count("16 of 16 ranks have every bit right") == 3
    assert value(moved).splitlines() == [
        "hybrid: 5.25 MB moved, 7 MB at the peak",
        "vanilla: 12.25 MB moved, 14 MB at the peak",
        "full gather: 13.125 MB moved, 14 MB at the peak",
    ]
    assert "fsdp 2 -> an engine of tp 2:  80 of 272 B move" in printed(cell_with(cells, "lora_parameters"))


@pytest.mark.long
def test_the_lesson_without_answers(tmp_path: Path) -> None:
    cells = execute(LESSON, tmp_path, {})
    assert value(cell_with(cells, "questions = ")) == "'0 of 5 right'"
    assert printed(cell_with(cells, "questions = ")).count("not answered yet") == 5
