"""The view of the load without a browser: what it sends, and its static twin."""

import json
from typing import Any

import pytest

from workbench.events import Event, EventLog
from workbench.topology.drawing.scene import Line, Rect, Text
from workbench.views.load import Course, Courses, LoadView, RoleCourse, text, watch_load
from workbench.views.load_figure import draw
from workbench.views.loads import POINTS

from . import made
from .pages import logic

TWO = {"actor": ["local:0"], "rollout": ["local:1"]}


def phases_of(steps: int) -> list[Event]:
    """``phase`` events of steps of nine seconds, from 0 on."""
    log, begin = made.begun(TWO), 0.0
    for step in range(1, steps + 1):
        begin = made.whole(log, step, begin)
    return [event for event in log.events if event.kind == "phase"]


def sampled(view: LoadView, seconds: float, every: float = 0.5) -> LoadView:
    """Samples of two devices: the engine's is busy for 4 s of 9, the actor's for 3 s from the sixth on."""
    for at in (n * every for n in range(int(seconds / every))):
        view.take(made.load("local:0", at, float(at % 9 >= 6), 20.0))
        view.take(made.load("local:1", at, float(at % 9 < 4), 60.0))
    return view


def test_a_device_has_its_course_and_the_role_that_kept_it_busy() -> None:
    view = LoadView(made.begun(TWO))
    for event in phases_of(1):
        view.take(event)
    shown = sampled(view, 9).courses
    actor, engine = shown.devices
    assert actor.busy[-6:] == (0, 0, 0, 0, 100, 100)
    assert actor.who[-6:] == ("", "", "", "", "actor", "actor")
    assert engine.busy[-6:] == (100, 100, 67, 0, 0, 0)  # two of three samples in the third stretch
    assert engine.who[-6:] == ("rollout", "rollout", "rollout", "", "", "rollout")  # that of the sync too
    assert actor.full[-1] == 25
    assert (actor.roles, actor.now, engine.now) == (("actor",), ("100%", "20.0 of 80 GiB"), ("0%", "60.0 of 80 GiB"))
    assert [(role.role, role.busy[-6:]) for role in shown.roles] == [
        ("actor", (0, 0, 0, 0, 100, 100)),
        ("rollout", (100, 100, 44, 0, 0, 0)),  # 67 % for 1 s of 1.5
    ]


def test_the_courses_are_sent_when_a_stretch_has_passed_and_not_before() -> None:
    view = sampled(LoadView(made.begun(TWO)), 3.0)
    view.update()
    changed: list[str] = []
    view.observe(lambda change: changed.append(change["name"]), ["chart", "now"])
    view.take(made.load("local:0", 2.75, 0.25))
    view.update()
    assert changed == ["now"]
    view.take(made.load("local:0", 3.25, 0.5))
    view.update()
    assert changed == ["now", "chart", "now"]


def test_what_is_sent_does_not_grow_with_the_run() -> None:
    topology, placement = made.large()
    view = LoadView(made.begun(placement))
    sizes = []
    for minutes in (4, 8):
        for at in range(60 * minutes):
            for device in topology.ids:
                view.take(made.load(device, float(at), 0.9, 61.0))
        view.update()
        sizes.append(len(json.dumps(view.chart, separators=(",", ":"))))
    assert sizes[0] == sizes[1] < 30_000
    assert {len(row["busy"]) for row in view.chart["devices"]} == {POINTS}


def test_before_a_sample_it_says_so() -> None:
    view = LoadView(EventLog())
    assert view.twin()["text/plain"] == "run · new · not started yet\nno load was sampled yet"
    assert view.chart["devices"] == []


def test_a_role_that_was_never_sampled_has_no_track() -> None:
    view = sampled(LoadView(made.begun({**TWO, "reward": ["cpu:0"]})), 3)
    view.update()
    assert [role["role"] for role in view.chart["roles"]] == ["actor", "rollout"]


def test_the_static_twin() -> None:
    twin = sampled(LoadView(made.begun(TWO)), 9).twin()
    assert set(twin) == {"text/plain", "text/html", "image/png"}
    lines = [line.split() for line in twin["text/plain"].splitlines()]
    assert lines[2][:5] == ["local:0", "100%", "20.0", "of", "80"]
    assert lines[3][:2] == ["local:1", "0%"]


def test_the_drawing_is_to_scale_and_takes_what_is_alike_as_one() -> None:
    row = Course("local:0", ("actor",), (0, 50, 50, 100), (25, 25, 25, 25), ("", "actor", "actor", ""), ("100%", "20.0 of 80 GiB"))
    scene = draw(Courses("a run", (row,), (RoleCourse("actor", (None, 50, 50, 0)),)))
    bars = [item for item in scene.items if isinstance(item, Rect) and item.hint.endswith(("actor", "%"))]
    assert [(bar.fill, bar.width, bar.height) for bar in bars] == [
        ("update_actor", 285, 14),
        ("wire", 142.5, 28),
        ("update_actor", 285, 14),
    ]
    (line,) = [item for item in scene.items if isinstance(item, Line) and item.x1 == 170]
    assert (line.x2, line.y1) == (740, 66 + 21)
    for item in scene.items:
        if isinstance(item, Text):
            assert item.box[0] >= 0
            assert item.box[2] <= scene.width


def test_a_terminal_has_a_line_a_role_too() -> None:
    shown = Courses(
        "a run", (Course("cpu:0", ("actor",), (0, 100), (None, None), ("", ""), ("n/a", "n/a")),), (RoleCourse("actor", (0, 50)),)
    )
    assert text(shown).splitlines()[-1].split() == ["actor", "25%", "▁█"]


def test_asked_again_it_is_the_same_view() -> None:
    log = made.begun(TWO)
    assert watch_load(log) is watch_load(log)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("barPaths([50, null, 0, 100], [1, -1, 1, 1], 40)", [[1, "M0 28v-14h9.4v14zM30 28v-28h9.4v28z"]]),
        ("barPaths([50, 50], [-1, 2], 20).map(([who]) => who)", [-1, 2]),
        ("linePath([0, 50, null, 100], 40)", "M5 28L15 14M35 0"),
        ("ago(119, 120, 1.5)", "now"),
        ("ago(109, 120, 1.5)", "15 s ago"),
        ("ago(0, 120, 1.5)", "2 min 59 s ago"),
        ("worker({ who: [2, -1, -1], busy: [9, 9, null] }, ['a', 'b', 'c'], 0)", "c at work"),
        ("worker({ who: [2, -1, -1], busy: [9, 9, null] }, ['a', 'b', 'c'], 1)", "no role alone"),
        ("worker({ who: [2, -1, -1], busy: [9, 9, null] }, ['a', 'b', 'c'], 2)", "no sample"),
        ("latest([3, 7, null])", 7),
    ],
)
def test_geometry_and_words(expression: str, value: Any) -> None:
    assert logic(["machine.js", "load.js"], expression) == value
