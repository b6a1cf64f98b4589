"""The mark of what is not live, in text, HTML and drawings."""

import pytest

from workbench import views
from workbench.topology.drawing.scene import Rect, Scene, Text
from workbench.views.badge import in_html, in_text, on_scene

from . import made
from .conftest import play
from .test_knobs import Steered


def test_text_has_it_in_its_first_line() -> None:
    assert in_text("a run · step 3\nmore", "replayed") == "a run · step 3 · replayed\nmore"
    assert in_text("a run", "replayed") == "a run · replayed"
    assert in_text("a run\nmore", "") == "a run\nmore"
    assert (in_html(""), ">a &lt; b<" in in_html("a < b")) == ("", True)


def scene(*texts: Text, width: float = 900.0) -> Scene:
    return Scene(width, 100, (Rect(0, 0, width, 100, "paper"), *texts), "title", "words")


def test_a_drawing_has_it_behind_its_heading() -> None:
    found = on_scene(scene(Text(16, 24, "a run", 13, bold=True), Text(16, 60, "below")), "replayed")
    *_, pill, word = found.items
    assert isinstance(pill, Rect)
    assert isinstance(word, Text)
    assert (word.text, found.description) == ("replayed", "replayed; words")
    assert 16 < pill.x < 100
    assert pill.y < 24 - 4 < pill.y + pill.height  # the middle of the letters


def test_where_there_is_no_room_the_heading_is_cut() -> None:
    right = Text(884, 24, "16 GPUs, 2 nodes", 11, anchor="end")
    found = on_scene(scene(Text(16, 24, "long " * 60, 13, bold=True), right), "simulated")
    heading = next(item for item in found.items if isinstance(item, Text))
    pill = found.items[-2]
    assert heading.text.endswith("…")
    assert isinstance(pill, Rect)
    assert heading.box[2] <= pill.x
    assert pill.x + pill.width <= right.box[0]
    assert on_scene(found, "") is found


@pytest.mark.parametrize("name", ["curves", "knobs", "topology", "load", "timeline", "samples"])
def test_every_view_has_it_in_every_form(name: str) -> None:
    run = Steered()
    log = play(3, log=run.log)
    for device in ("cpu:0", "cpu:1"):
        log.emit(made.load(device, 1.0, 0.5).record)
    view = views.view(name, log, run=run, badge="simulated")
    head = view.head if name in ("curves", "knobs") else view.now
    assert head["badge"] == "simulated"
    twin = view.twin()
    assert twin["text/plain"].splitlines()[0].endswith(" · simulated")
    assert "simulated" in twin["text/html"]


def test_a_live_view_has_none() -> None:
    shown = views.board(play(3))
    assert "replayed" not in shown.twin()["text/html"]
    assert shown.views["curves"].head["badge"] == ""
