"""The live view of the phases without a browser: which window it sends, and what its module computes."""

import gc
import json
from typing import Any

import pytest

from workbench.records import Restored
from workbench.views.timeline_live import STEPS, TimelineView, watch_timeline

from . import made
from .pages import logic

FILES = ["phases.js"]
ROWS = "[{ bars: [[0, 1, 0, 4], [4, 1, 8, 1]] }, { bars: [[2, 1, 5, 1], [3, 1, 6, 2], [4, 1, 8, 1]] }]"  # an engine, a trainer
PHASES = "[{ name: 'rollout' }, { name: 'reward' }, { name: 'reference' }, { name: 'update_actor' }, { name: 'sync' }]"


def run_of(steps: int) -> made.EventLog:
    log, begin = made.begun(made.SMALL), 100.0
    for step in range(1, steps + 1):
        begin = made.whole(log, step, begin)
    return log


def ask(view: TimelineView, content: Any) -> None:
    view._handle_custom_msg(content, [])


def test_before_a_phase_has_ended_there_is_no_window() -> None:
    view = TimelineView(made.begun(made.SMALL))
    assert view.window == {}
    assert view.twin()["text/plain"] == "a run · running · step 1 of 50\nno phase has ended yet"


def test_the_window_is_the_last_steps_and_the_one_under_way() -> None:
    log = run_of(12)
    made.phase(log, "rollout", 13, 208.0, 4.0)
    view = TimelineView(log)
    window = view.window
    assert (window["first"], window["last"], window["newest"]) == (4, 13, 12)
    assert (window["origin"], window["seconds"]) == (127.0, 85.0)  # from the end of step 3 on
    assert window["ends"][0] == [4, 9.0]
    assert window["ends"][-1] == [13, 85.0]
    engine = next(row for row in window["rows"] if row["device"] == "local:2")
    assert engine["bars"][:2] == [[0, 4, 0, 4], [7, 4, 8, 1]]  # rollout, sync
    assert engine["bars"][-1] == [0, 13, 81, 4]
    assert engine["busy"] == pytest.approx(49 / 85, abs=0.001)


def test_it_is_sent_as_phases_end() -> None:
    log = run_of(1)
    view = TimelineView(log)
    assert view.window["ends"] == [[1, 9.0]]
    made.phase(log, "rollout", 2, 109.0, 2.0)
    view.update()
    assert view.window["ends"] == [[1, 9.0], [2, 11.0]]


def test_neither_what_it_keeps_nor_what_it_sends_grows_with_the_run() -> None:
    view = TimelineView(run_of(200))
    assert len(view._recent) < 10 * (STEPS + 3)
    assert view.window["first"] == 191
    assert len(json.dumps(view.window)) < 6000


def test_an_earlier_window_stays_until_the_newest_is_asked_for() -> None:
    log = run_of(30)
    view = TimelineView(log)
    ask(view, {"last": 15})
    assert (view.window["first"], view.window["last"], view.window["newest"], view.window["answer"]) == (6, 15, 30, 1)
    made.phase(log, "rollout", 31, 370.0, 2.0)
    view.update()
    assert view.window["last"] == 15
    ask(view, {"last": None})
    assert view.window["last"] == 31


@pytest.mark.parametrize("content", [{"last": "15"}, {"last": -3}, [1]])
def test_what_is_no_step_is_passed_over(content: Any) -> None:
    view = TimelineView(run_of(12))
    before = view.window
    ask(view, content)
    assert view.window == before


def test_of_a_restored_run_what_came_since() -> None:
    log = run_of(5)
    log.emit(Restored(3, "step-000003", {}))
    made.whole(log, 4, 7000.0)
    view = TimelineView(log)
    assert (view.window["first"], view.window["last"], view.window["seconds"]) == (4, 4, 9.0)


def test_the_static_twin_is_the_drawing_of_the_newest_window() -> None:
    twin = TimelineView(run_of(12)).twin()
    assert set(twin) == {"text/plain", "text/html", "image/png"}
    assert twin["text/plain"].splitlines()[0] == "a run · steps 3 to 12 in 1 min 30 s, 9.00 s each"


def test_asked_again_it_is_the_same_view_and_it_is_not_kept() -> None:
    log = run_of(1)
    view = watch_timeline(log)
    assert watch_timeline(log) is view
    view.close()
    del view
    gc.collect()
    assert watch_timeline(log).comm is not None


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("zoomed([0, 10], 0.5, 2, 10)", [1, 6]),  # what is under the pointer stays there
        ("zoomed([1, 6], 4, 2, 10)", [0, 10]),
        ("moved([1, 6], 99, 10)", [5, 10]),
        ("moved([1, 6], -99, 10)", [0, 5]),
        ("gaps([[0, 1, 4, 2], [0, 1, 1, 1], [0, 1, 1.5, 1]], 8)", [[0, 1], [2.5, 4], [6, 8]]),
        ("gaps([[0, 1, 0, 8]], 8)", []),
        (f"waits([4, 8], {ROWS}, {PHASES})", ["update_actor", "reference"]),
        (f"waits([0, 5], {ROWS}, {PHASES})", ["rollout"]),
        ("ticks([0, 9], 5)", [[0, "0"], [2, "2"], [4, "4"], [6, "6"], [8, "8"]]),
        ("ticks([1.02, 1.11], 3).map(([, label]) => label)", ["1.05", "1.10"]),
        ("['actor, reference', 'actor, critic, rollout, ref'].map((text) => cut(text, 12))", ["actor, ref", "actor, crit…"]),
        ("[0, 0.0042, 0.48, 52].map(duration)", ["0 s", "4.2 ms", "0.48 s", "52 s"]),
    ],
)
def test_ranges_gaps_and_ticks(expression: str, value: Any) -> None:
    assert logic(FILES, expression) == value
