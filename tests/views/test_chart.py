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
def test_the_description_with_everything_is_small(play_ppo: Play, steps: int) -> None:
    text = json.dumps(asdict(chart(History(play_ppo(steps, steps, finish=True).events))), allow_nan=False)
    assert len(text) < 35_000


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


CRITIC = ["value_loss", "explained_variance"]


def test_a_run_with_a_critic_has_two_panels_more(play: Play, play_ppo: Play) -> None:
    found = chart(History(play_ppo(4).events))
    assert [p.key for p in found.panels][4:] == CRITIC
    assert panel(found, "value_loss").lines[0].values == (0.5, 0.25, 0.1667, 0.125)
    assert panel(found, "value_loss").axis.low == 0
    assert panel(found, "explained_variance").lines[0].values == (-2, -0.5, 0, 0.25)
    assert [label.text for label in panel(found, "explained_variance").labels] == ["0.25"]
    assert [p.key for p in chart(History(play_ppo(0).events)).panels][4:] == CRITIC  # there before the first step: nothing moves


def test_a_critic_far_off_at_first_does_not_press_the_rest_flat(play_ppo: Play) -> None:
    explained = panel(chart(History(play_ppo(4).events)), "explained_variance")
    assert (explained.axis.low, explained.note) == (-1, "below -1 is cut")
    explained = panel(chart(History(altered(play_ppo(4), explained_variance=-5.0).events)), "explained_variance")
    assert (explained.axis.low, explained.axis.high) == (-1, 0)
    explained = panel(chart(History(altered(play_ppo(4), explained_variance=0.5).events)), "explained_variance")
    assert (explained.axis.low, explained.note) == (0, "")


def test_what_else_a_run_tells_is_folded_away(play_ppo: Play) -> None:
    found = chart(History(play_ppo(2).events))
    told = {p.title: p.lines[0].values for p in found.more}
    assert told == {
        "Reward: right": (0.1, 0.2),
        "Reward: style/cut_rows": (1.0, 1.0),
        "Critic's gradient": (2.0, 1.5),
        "Weight of the KL": (0.01, 0.02),
        "Repetition": (0.02, 0.04),
    }
    assert found.fold == f"More curves: {', '.join(told)}"
    assert all(p.labels for p in found.more)


def test_a_long_name_of_a_part_is_cut_and_visible(play_ppo: Play) -> None:
    found = chart(History(altered(play_ppo(2), reward_numbers={"a\n" + 40 * "b": 1.0}).events))
    assert found.more[0].title == "Reward: a↵" + 25 * "b" + "…"


def test_phases_at_the_same_time_are_said(play: Play) -> None:
    apart = {"rollout": 1.0, "update_critic": 1.5, "update_actor": 2.0}
    found = chart(History(altered(play(2), seconds=3.0, phase_seconds=apart).events))
    assert panel(found, "seconds").note == "some at once: 3.00 s a step"
    found = chart(History(altered(play(2), seconds=4.45, phase_seconds=apart).events))
    assert panel(found, "seconds").note == ""


def test_what_does_not_move_has_no_curve(play: Play) -> None:
    still = altered(play(3), kl_weight=0.01, repetition=0.0)
    assert (chart(History(still.events)).more, chart(History(still.events)).fold) == ((), "")


def test_steps_without_a_number_leave_a_gap(play_ppo: Play) -> None:
    log = play_ppo(2)
    (first, _) = (event.record for event in log.events if event.kind == "step")
    assert isinstance(first, Step)
    log.emit(replace(first, step=3, value_loss=None, explained_variance=float("nan"), reward_numbers={}))
    found = chart(History(log.events))
    assert panel(found, "value_loss").lines[0].values == (0.5, 0.25, None)
    assert panel(found, "explained_variance").lines[0].values == (-2, -0.5, None)
    assert found.more[0].lines[0].values == (0.1, 0.2, None)


def test_marks_are_drawn(play: Play) -> None:
    log = play(20)
    before = png(chart(History(log.events)))
    log.emit(Knob(5, "temperature", 1.0, 0.7))
    assert png(chart(History(log.events))) != before
