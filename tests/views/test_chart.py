"""The panels as data: values, scales, labels."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace

import pytest

from workbench.events import EventLog
from workbench.records import HeldOut, Knob, Restored, Step
from workbench.views.chart import EMPTY, Chart, Panel, chart
from workbench.views.figure import png
from workbench.views.history import History
from workbench.views.marks import Mark

Play = Callable[..., EventLog]


def panel(found: Chart, key: str) -> Panel:
    return next(panel for panel in found.panels if panel.key == key)


def altered(log: EventLog, **changed: object) -> EventLog:
    """The same run with other values in every step."""
    other = EventLog()
    for event in log.events:
        record = event.record
        other.emit(replace(record, **changed) if isinstance(record, Step) else record, phase=event.phase)  # type: ignore[arg-type]
    return other


def test_every_panel_has_a_value_for_every_step(play: Play) -> None:
    found = chart(History(play(60, finish=True).events))
    assert [p.key for p in found.panels] == ["reward", "kl", "length", "seconds"]
    assert found.first == found.last == tuple(range(1, 61))
    assert {len(line.values) for p in found.panels for line in p.lines} == {60}
    assert [line.name for line in panel(found, "seconds").lines] == ["rollout", "reward", "reference", "advantages", "update_actor", "sync"]


def test_held_out_points_stand_before_and_after(play: Play) -> None:
    points = panel(chart(History(play(60, finish=True).events)), "reward").points
    assert [(point.step, point.mean, point.stderr) for point in points] == [(0, 0.27, 0.031), (60, 0.785, 0.029)]


def test_rewards_between_0_and_1_have_that_axis_and_others_their_own(play: Play) -> None:
    log = play(3)
    assert panel(chart(History(log.events)), "reward").axis.ticks == ((0.0, "0"), (0.5, "0.5"), (1.0, "1"))
    log.emit(HeldOut(3, 12.0, 1.0, 10))
    axis = panel(chart(History(log.events)), "reward").axis
    assert axis.low <= 0
    assert axis.high >= 13


def test_one_slow_step_does_not_press_the_others_flat(play: Play) -> None:
    seconds = panel(chart(History(play(60).events)), "seconds")
    assert sum(line.values[0] or 0 for line in seconds.lines) > seconds.axis.high
    assert seconds.axis.high == 3.0


def test_steps_of_one_length_fit_whole(play: Play) -> None:
    seconds = panel(chart(History(altered(play(5), phase_seconds={"rollout": 8.0, "sync": 1.0}).events)), "seconds")
    assert seconds.axis.high >= 9


def test_labels_carry_the_last_values_and_the_sum(play: Play) -> None:
    found = chart(History(altered(play(2), phase_seconds={"rollout": 1.0, "update_actor": 2.0, "sync": 0.005}).events))
    labels = panel(found, "seconds").labels
    assert [(label.name, label.text) for label in labels] == [("rollout", "1"), ("update_actor", "2"), ("sync", "0.005"), ("total", "3.00")]
    places = [label.place for label in labels]
    assert places == sorted(places)
    assert [label.name for label in panel(found, "reward").labels] == ["batch mean", "held out"]


def test_a_kl_of_nothing_but_zeros_says_that_the_reference_is_off(play: Play) -> None:
    assert panel(chart(History(altered(play(5), kl=0.0).events)), "kl").note == "reference is off"
    assert panel(chart(History(play(5).events)), "kl").note == ""


def test_truncated_completions_are_noted(play: Play) -> None:
    assert panel(chart(History(altered(play(2), truncated_fraction=0.25).events)), "length").note == "25% cut at the limit"
    assert panel(chart(History(altered(play(2), truncated_fraction=0.0).events)), "length").note == ""


def test_before_the_first_step_there_are_empty_panels_without_labels() -> None:
    found = chart(History())
    assert [p.labels for p in found.panels] == [(), (), (), ()]
    assert panel(found, "kl").axis == EMPTY


@pytest.mark.parametrize("steps", [60, 2000])
def test_the_description_is_small_and_plain_json(play: Play, steps: int) -> None:
    text = json.dumps(asdict(chart(History(play(steps, steps, finish=True).events))), allow_nan=False)
    assert len(text) < 20_000


def test_turned_knobs_are_marks_one_a_step(play: Play) -> None:
    log = play(20)
    log.emit(Knob(5, "temperature", 1.0, 0.7))
    log.emit(Knob(5, "clip", 0.2, [0.1, 0.3]))
    log.emit(Knob(21, "kl", 0.0, 0.1))  # at a step that is still to come
    assert chart(History(log.events)).marks == (Mark(5, 5, ("temperature 1 → 0.7", "clip 0.2 → 0.1, 0.3")),)
    log.emit(Restored(3, "step-000003", {}))
    assert chart(History(log.events)).marks == (Mark(3.5, 3.5, ("restored",)),)


def test_marks_are_drawn(play: Play) -> None:
    log = play(20)
    before = png(chart(History(log.events)))
    log.emit(Knob(5, "temperature", 1.0, 0.7))
    assert png(chart(History(log.events))) != before
