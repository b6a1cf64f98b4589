"""The timeline of a run, from events with times that can be added in the head."""

import json
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest

import workbench as wb
from workbench.errors import ConfigError, StateError
from workbench.events import EventLog
from workbench.past import load
from workbench.records import Phase, Restored, RunStarted, Step
from workbench.topology.drawing.scene import Rect, Text
from workbench.views.timeline import Bar, Row, Timeline, timeline

APART = {"actor": ["local:0", "local:1"], "rollout": ["local:2"], "reference": ["local:0", "local:1"], "reward": ["cpu:0"]}
TOGETHER = {"actor": ["local:0"], "rollout": ["local:0"], "reference": ["local:0"], "reward": ["cpu:0"]}
A_STEP = (("rollout", 0.0, 4.0), ("reward", 4.0, 1.0), ("reference", 5.0, 1.0), ("update_actor", 6.0, 2.0), ("sync", 8.0, 1.0))


def log_of(placement: dict[str, list[str]], log: EventLog | None = None) -> EventLog:
    log = log or EventLog()
    log.emit(RunStarted("a run", "tiny", {"name": "GRPO"}, {}, placement, {}, 0))
    return log


def tell(log: EventLog, step: int, phases: Sequence[tuple[str, float, float]], offset: float = 0.0) -> None:
    """The phases of a step, in their order; then its end."""
    for phase, begin, seconds in phases:
        log.emit(Phase(step, offset + begin, seconds), phase=phase)
    zeros = {name: 0 for name in Step.__dataclass_fields__ if name not in ("step", "phase_seconds", "reward_numbers")}
    log.emit(Step(step=step, **zeros))


def turns(steps: int, placement: dict[str, list[str]] = APART) -> EventLog:
    """Steps of 10 s, the last second of which is between phases."""
    log = log_of(placement)
    for step in range(1, steps + 1):
        tell(log, step, A_STEP, 100 + 10 * step)
    return log


def ahead() -> EventLog:
    """Three steps; from the second on sampled while the one before is learnt from. Step 2 waits for 1 s of its sampling."""
    log = log_of(APART)
    tell(log, 1, [*A_STEP[:3], ("rollout", 5.0, 2.0), ("update_actor", 6.0, 2.0), ("rollout", 8.0, 3.0), ("sync", 11.0, 1.0)])
    return log


def bars(row: Row) -> list[tuple[str, int, float, float]]:
    return [(bar.phase, bar.step, bar.begin, bar.end) for bar in row.bars]


def test_a_row_for_each_device_with_what_its_roles_did() -> None:
    shown = timeline(turns(4).events, 2, 2)
    assert (shown.name, shown.first, shown.last) == ("a run", 2, 2)
    assert shown.seconds == 10  # from the end of step 1, which is a second before step 2 begins
    assert [(row.device, row.roles) for row in shown.rows] == [
        ("local:0", ("actor", "reference")),
        ("local:1", ("actor", "reference")),
        ("local:2", ("rollout",)),
        ("cpu:0", ("reward",)),
    ]
    learner, _, engine, driver = shown.rows
    assert bars(learner) == [("reference", 2, 6, 7), ("update_actor", 2, 7, 9), ("sync", 2, 9, 10)]
    assert bars(engine) == [("rollout", 2, 1, 5), ("sync", 2, 9, 10)]
    assert bars(driver) == [("reward", 2, 5, 6)]
    assert shown.busy_fraction == {"local:0": 0.4, "local:1": 0.4, "local:2": 0.5, "cpu:0": 0.1}
    assert shown.phase_seconds("update_actor") == 2  # once, on however many devices


def test_a_critic_on_its_own_devices_has_a_row_with_its_work() -> None:
    log = log_of({"actor": ["local:0"], "critic": ["local:1"], "rollout": ["local:2"], "reference": ["local:0"], "reward": ["cpu:0"]})
    phases = [("rollout", 0.0, 4.0), ("reference", 4.0, 1.0), ("values", 5.0, 1.0), ("advantages", 6.0, 0.5), ("update_critic", 6.5, 1.5)]
    tell(log, 1, [*phases, ("update_actor", 8.0, 1.0), ("sync", 9.0, 1.0)])
    shown = timeline(log.events)
    actor, critic, engine, _ = shown.rows
    assert bars(critic) == [("values", 1, 5, 6), ("update_critic", 1, 6.5, 8)]
    assert bars(actor) == [("reference", 1, 4, 5), ("update_actor", 1, 8, 9), ("sync", 1, 9, 10)]
    assert bars(engine) == [("rollout", 1, 0, 4), ("sync", 1, 9, 10)]
    assert shown.busy_fraction["local:1"] == 0.25
    assert [box.hint for box in boxes(shown, "values")] == ["values of step 1: 1.00 s"]


def test_a_critic_that_shares_with_the_actor_works_on_its_row() -> None:
    log = log_of({"actor": ["local:0"], "critic": ["local:0"], "rollout": ["local:1"]})
    tell(log, 1, [("rollout", 0.0, 1.0), ("values", 1.0, 1.0), ("update_critic", 2.0, 1.0), ("update_actor", 3.0, 1.0)])
    assert [bar.phase for bar in timeline(log.events).rows[0].bars] == ["values", "update_critic", "update_actor"]


def test_where_no_time_has_passed_nobody_was_busy() -> None:
    assert Timeline("a run", 1, 1, 0.0, (Row("cpu:0", ("actor",), ()),), {1: 0.0}, 0.0).busy_fraction == {"cpu:0": 0.0}


def test_the_first_step_begins_with_its_own_work() -> None:
    shown = timeline(turns(4, TOGETHER).events, 1, 2)
    assert (shown.seconds, dict(shown.ends)) == (19, {1: 9, 2: 19})
    assert shown.busy_fraction["local:0"] == pytest.approx(16 / 19)


def test_the_last_three_unless_said_otherwise() -> None:
    assert (timeline(turns(5).events).first, timeline(turns(5).events).last) == (3, 5)
    assert timeline(turns(2).events).first == 1
    assert (timeline(turns(5).events, last=3).first, timeline(turns(5).events, first=4).last) == (1, 5)


def test_waiting_for_what_is_sampled_ahead_is_no_work() -> None:
    """The step's own events of "rollout" after its scoring are the driver's waits; what the next step samples meanwhile is work."""
    log = log_of(APART)
    first = [("rollout", 0.0, 4.0), ("reward", 4.0, 1.0), ("rollout", 5.0, 4.0), ("reference", 5.0, 1.0), ("update_actor", 6.0, 2.0)]
    for phase, begin, seconds in first:
        log.emit(Phase(2 if (phase, begin) == ("rollout", 5.0) else 1, begin, seconds), phase=phase)
    log.emit(Phase(2, 9.0, 0.5), phase="reward")
    tell(log, 1, [("rollout", 8.0, 1.5), ("sync", 9.5, 0.5)])  # the engines have to be at rest before they are written to
    tell(log, 2, [("rollout", 10.0, 0.25), ("reference", 10.25, 0.75), ("update_actor", 11.0, 2.0), ("sync", 13.0, 1.0)])
    both = timeline(log.events, 1, 2)
    learner, _, engine, driver = both.rows
    assert bars(engine) == [("rollout", 1, 0, 4), ("rollout", 2, 5, 9), ("sync", 1, 9.5, 10), ("sync", 2, 13, 14)]
    assert bars(driver) == [("reward", 1, 4, 5), ("reward", 2, 9, 9.5)]
    assert sum(bar.seconds for bar in learner.bars) == 1 + 2 + 0.5 + 0.75 + 2 + 1
    assert [bar.step for bar in timeline(log.events, 1, 1).rows[2].bars] == [1, 2, 1]  # the next step's sampling is seen beside this one


def test_rounds_of_sampling_are_all_work() -> None:
    log = log_of(APART)
    tell(log, 1, [("rollout", 0.0, 1.0), ("reward", 1.0, 1.0), ("rollout", 2.0, 1.0), ("reward", 3.0, 1.0), ("update_actor", 4.0, 1.0)])
    assert bars(timeline(log.events).rows[2]) == [("rollout", 1, 0, 1), ("rollout", 1, 2, 3)]


def test_what_is_done_at_the_same_time_counts_once() -> None:
    row = Row("cpu:0", ("actor",), (Bar("reference", 1, 0, 4), Bar("rollout", 2, 1, 2), Bar("sync", 1, 3, 3)))
    assert row.busy_seconds == 6


def test_of_a_restored_run_what_came_since() -> None:
    log = turns(3)
    log.emit(Restored(2, "step-000002", {}))
    tell(log, 3, A_STEP, 7000.0)
    shown = timeline(log.events)
    assert (shown.first, shown.last, shown.seconds) == (3, 3, 9)


def test_a_restore_may_have_put_the_roles_elsewhere() -> None:
    log = turns(3)
    log.emit(Restored(2, "step-000002", {}, {role: ["cpu:0"] for role in APART}))
    tell(log, 3, A_STEP, 7000.0)
    assert [row.device for row in timeline(log.events).rows] == ["cpu:0"]


def test_devices_with_the_same_roles_share_a_row_where_there_are_many() -> None:
    many = {"actor": [f"node1:{n}" for n in range(8)], "rollout": [f"node2:{n}" for n in range(8)], "reward": ["cpu:0"]}
    assert [row.device for row in timeline(turns(1, many).events).rows] == ["node1:0-7", "node2:0-7", "cpu:0"]


def test_what_is_not_there() -> None:
    with pytest.raises(StateError, match="no step has been made yet"):
        timeline(log_of(APART).events)
    with pytest.raises(ConfigError, match="there are steps 1 to 4"):
        timeline(turns(4).events, 3, 9)
    with pytest.raises(ConfigError, match="there are steps 1 to 4"):
        timeline(turns(4).events, 3, 2)
    with pytest.raises(ConfigError, match="give the number of a step"):
        timeline(turns(4).events, "3")
    with pytest.raises(ConfigError, match="a picture is some seconds wide"):
        timeline(turns(4).events, seconds=0)


def boxes(shown: Timeline, phase: str) -> list[Rect]:
    return [item for item in shown.scene.items if isinstance(item, Rect) and item.hint.startswith(phase)]


def test_the_drawing_is_to_scale_and_as_wide_as_asked() -> None:
    shown = timeline(turns(4).events, 2, 2, seconds=20)
    (rollout,), (track, *_) = boxes(shown, "rollout"), boxes(shown, "local:0")
    assert track.width == pytest.approx((832 - 150) / 2)  # 10 s of 20
    assert rollout.x == pytest.approx(150.5 + 682 / 20)
    assert rollout.width == pytest.approx(4 * 682 / 20 - 1)
    assert rollout.hint == "rollout of step 2: 4.00 s"
    words = {item.text for item in shown.scene.items if isinstance(item, Text)}
    assert {"rollout 2", "step 2", "local:2", "actor, reference", "40%", "0 s", "20"} <= words


def test_the_words_stay_in_the_picture() -> None:
    long = {"actor": ["a-node-with-quite-a-long-name:0"], "rollout": ["b:0"], "reference": ["b:0"], "reward": ["b:0"]}
    for shown in (timeline(turns(3, long).events), timeline(turns(60, long).events, 1, 60)):
        for item in shown.scene.items:
            if isinstance(item, Text):
                left, _, right, bottom = item.box
                assert left >= 0
                assert right <= shown.scene.width + 1
                assert bottom <= shown.scene.height


def test_a_notebook_shows_it_as_svg_and_as_an_image(tmp_path: Path) -> None:
    shown = timeline(turns(4).events)
    made = shown._repr_mimebundle_()
    assert set(made) == {"text/plain", "text/html", "image/png"}
    assert made["text/plain"].splitlines()[0] == "a run · steps 2 to 4 in 30 s, 10 s each"
    assert made["text/plain"].splitlines()[2].split() == ["local:0", "40%", "actor,", "reference"]
    root = ElementTree.parse(shown.save(tmp_path / "a.svg")).getroot()
    assert "local:2 (rollout) busy 50%" in "".join(root.itertext())
    assert shown.save(tmp_path / "a.png", "dark").read_bytes().startswith(b"\x89PNG")


def test_a_past_run_has_it_too(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log_of(APART, log)
    tell(log, 1, A_STEP)
    log.close()
    past = load(tmp_path)
    assert past.timeline() == timeline(log.events)
    assert wb.Run.load(tmp_path).timeline(1, 1).busy_fraction["local:2"] == pytest.approx(5 / 9)
    assert json.loads((tmp_path / "events.jsonl").read_text().splitlines()[1])["data"]["begin_mono"] == 0
