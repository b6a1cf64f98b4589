"""Runs beside each other: numbers by hand, the cases at the edge, and that it reads well in all its forms."""

from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from workbench.events import EventLog, read_events
from workbench.metrics import PhaseSeconds, metrics, records_of
from workbench.palette import PAPER
from workbench.records import Answers, HeldOut, Knob, Restored, RunStarted, State, Step
from workbench.views.answers import Said
from workbench.views.compare import RunComparison, Told, compare_runs
from workbench.views.figure import DPI, WIDTH_IN
from workbench.views.runs_palette import run_colour, run_dash
from workbench.views.settings import Setting, plain

Play = Callable[..., EventLog]


def told(log: EventLog, name: str = "a", state: str = "finished") -> Told:
    return Told(name, state, log.events)


def begun(**changed: object) -> EventLog:
    """A run that has only begun."""
    log = EventLog()
    values = {"name": "a", "model": "tiny", "algo": {"name": "GRPO", "kl": 0.0}, "settings": {"sampling": {"prompts": 32}}}
    log.emit(RunStarted(**{**values, "placement": {"actor": ["cpu:0"]}, "versions": {}, "seed": 0, **changed}))  # type: ignore[arg-type]
    return log


def answers(log: EventLog, step: int, said: dict[str, str]) -> None:
    right = ["".join(sorted(prompt)) for prompt in said]
    rewards = [float(text == answer) for text, answer in zip(said.values(), right, strict=True)]
    log.emit(Answers(step, list(said), list(said.values()), right, rewards))


def test_a_row_holds_the_numbers_of_metrics_json(play: Play) -> None:
    log = play(20, 20, finish=True)
    (row,) = compare_runs([told(log)]).table
    numbers = metrics(log.events)
    assert (row.name, row.state, row.model, row.algo, row.steps) == ("a", "finished", "tiny-llama-1.7m", "GRPO", 20)
    assert (row.held_out_before, row.held_out_after) == (0.27, 0.785)
    assert row.held_out_gain == pytest.approx(0.515)
    assert row.held_out_gain_stderr == numbers.held_out_reward.stderr
    assert row.phase_seconds == numbers.phase_seconds
    assert (row.rollout_tokens_per_second, row.train_tokens_per_second) == (
        numbers.tokens_per_second.rollout,
        numbers.tokens_per_second.train,
    )
    assert row.peak_memory_gib == 1.4
    steps = records_of(log.events, Step)[-10:]
    assert row.reward == pytest.approx(sum(step.reward_mean for step in steps) / 10)
    assert row.kl == pytest.approx(sum(step.kl for step in steps) / 10)


def test_a_critic_and_parts_of_the_reward_where_a_run_has_them(play: Play, play_ppo: Play) -> None:
    found = compare_runs([told(play_ppo(20)), told(play(20), "b")])
    ppo, grpo = found.table
    assert ppo.critic == metrics(play_ppo(20).events).critic
    assert (grpo.critic, grpo.reward_numbers, grpo.curve.value_loss, grpo.curve.explained_variance) == (None, {}, (), ())
    assert ppo.reward_numbers == {"right": pytest.approx(1.55), "style/cut_rows": 1.0}  # the mean of 1.1 to 2.0
    assert ppo.curve.value_loss[:2] == (0.5, 0.25)
    assert ppo.curve.explained_variance[:3] == (-2, -0.5, 0)
    rows = [line.split() for line in found.text.splitlines()]
    assert ["value", "loss", "0.033", "—"] in rows
    assert ["right", "1.55", "—"] in rows
    words = [text.get_text() for axes in found.figure().axes for text in axes.texts]
    assert {"Value loss", "Explained variance"} <= set(words)
    assert [len(axes.lines) for axes in found.figure().axes[-2:]] == [1, 1]


def test_without_a_critic_nothing_is_said_of_one(play: Play) -> None:
    found = compare_runs([told(play(5))])
    assert len(found.figure().axes) == 4
    assert "Critic" not in found.text
    assert "Parts of the reward" not in found.text


def test_percentiles_of_whole_steps(play: Play) -> None:
    log = begun()
    (first,) = records_of(play(1).events, Step)
    for step, seconds in enumerate((1.0, 2.0, 3.0), 1):
        log.emit(replace(first, step=step, seconds=seconds, phase_seconds={"rollout": seconds / 2}))
    (row,) = compare_runs([told(log)]).table
    assert row.step_seconds == PhaseSeconds(2.0, pytest.approx(2.9), pytest.approx(2.98))  # type: ignore[arg-type]
    assert row.phase_seconds == {"rollout": PhaseSeconds(1.0, pytest.approx(1.45), pytest.approx(1.49))}  # type: ignore[arg-type]


def test_settings_that_differ_and_no_others() -> None:
    one = begun(algo={"name": "GRPO", "kl": 0.0, "clip": 0.2}, seed=1)
    other = begun(algo={"name": "DrGRPO", "kl": 0.0}, seed=1, placement={"actor": ["local:0", "local:1"]})
    found = compare_runs([told(one), told(other)])
    assert found.settings == (
        Setting("algo.name", ("GRPO", "DrGRPO")),
        Setting("algo.clip", (0.2, "—")),
        Setting("devices.actor", (["cpu:0"], ["local:0", "local:1"])),
    )
    assert "devices.actor" in found.text
    assert "local:0, local:1" in found.html


def test_a_live_run_and_its_file_have_the_same_settings(tmp_path: Path) -> None:
    log = begun(settings={"optimizer": {"betas": (0.9, 0.95)}})
    log.write_to(tmp_path / "events.jsonl")
    assert compare_runs([told(log), Told("a", "new", list(read_events(tmp_path / "events.jsonl")))]).settings == ()


@pytest.mark.parametrize(
    ("value", "text"), [(True, "on"), (False, "off"), (None, "none"), (2e-3, "0.002"), (16, "16"), ([0.2, 0.28], "0.2, 0.28"), ([], "none")]
)
def test_a_setting_as_a_person_writes_it(value: object, text: str) -> None:
    assert plain(value) == text


def test_the_same_run_twice_is_numbered_and_said_to_be_the_same(play: Play) -> None:
    log = play(5, 5, finish=True)
    found = compare_runs([told(log), told(log), told(log, "b")])
    assert [row.name for row in found.table] == ["a (1)", "a (2)", "b"]
    assert found.settings == ()
    assert "All settings are the same." in found.text
    assert "All settings are the same." in found.html
    assert "All settings" not in compare_runs([told(log)]).text


def test_knobs_stand_with_their_steps() -> None:
    log = begun()
    log.emit(Knob(20, "learning_rate", 1e-3, 5e-4))
    log.emit(Knob(30, "learning_rate", 5e-4, 2.5e-4))
    log.emit(Knob(30, "clip", 0.2, [0.2, 0.28]))
    found = compare_runs([told(begun()), told(log)])
    assert [len(row.knobs) for row in found.table] == [0, 3]
    (line,) = [line for line in found.text.splitlines() if "learning_rate" in line]
    assert line.split(maxsplit=2) == ["learning_rate", "—", "step 20: 0.001 → 0.0005; step 30: 0.0005 → 0.00025"]
    assert "step 30: 0.2 → 0.2, 0.28" in found.html


def test_what_a_restored_run_left_behind_does_not_count(play: Play) -> None:
    log = play(5, 5)
    log.emit(Knob(5, "kl", 0.0, 0.1))
    log.emit(Restored(3, "step-000003", {}))
    (row,) = compare_runs([told(log)]).table
    assert (row.steps, row.knobs, len(row.curve.reward)) == (3, (), 3)


# ---------------------------------------------------------------- answers


def test_answers_to_the_prompts_that_all_runs_share() -> None:
    one, other = begun(), begun()
    answers(one, 0, {"21": "21", "43": "43", "65": "?"})
    answers(one, 5, {"21": "12", "43": "43", "65": "56"})
    answers(other, 0, {"43": "34", "21": "x"})
    rows = compare_runs([told(one), told(other), told(begun())]).answers
    assert [row.prompt for row in rows] == ["21", "43"]
    assert rows[0].answer == "12"
    assert rows[0].before == (Said("21", 0.0, 0), Said("x", 0.0, 0), None)
    assert rows[0].after == (Said("12", 1.0, 5), None, None)
    assert rows[1].before[1] == Said("34", 1.0, 0)


def test_answers_are_escaped_and_side_by_side() -> None:
    one = begun()
    answers(one, 0, {"<b>": "<script>"})
    answers(one, 5, {"<b>": "a\n"})
    found = compare_runs([told(one)])
    assert "<script" not in found.html
    assert "&lt;script&gt;" in found.html
    assert "before  <script>  (0)" in found.text
    assert "after   a↵  (0)" in found.text


def test_runs_asked_different_prompts_share_no_answers() -> None:
    one, other = begun(), begun()
    answers(one, 0, {"21": "21"})
    answers(other, 0, {"65": "56"})
    found = compare_runs([told(one), told(other)])
    assert found.answers == ()
    assert "held-out prompts" not in found.html


# ---------------------------------------------------------------- the edges


def empty_and_full(play: Play) -> RunComparison:
    return compare_runs([told(begun(), "empty", "interrupted"), told(play(7, 7), "full", "running"), told(play(1), "one")])


def test_runs_of_different_length_without_steps_and_with_one_evaluation(play: Play) -> None:
    found = empty_and_full(play)
    empty, full, one = found.table
    assert (empty.steps, empty.reward, empty.step_seconds, empty.held_out_before, empty.peak_memory_gib) == (0, None, None, None, None)
    assert (full.steps, full.held_out_before, full.held_out_after, full.held_out_gain) == (7, 0.27, None, None)
    assert one.steps == 1
    assert len(found.png) > 5_000
    assert "interrupted" in found.text


def test_no_step_at_all_has_a_table_and_no_figure() -> None:
    found = compare_runs([told(begun()), told(begun())])
    assert found.png == b""
    assert set(found._repr_mimebundle_()) == {"text/plain", "text/html"}
    assert "Time in a step" not in found.text
    assert found.figure() is not None  # can be asked for all the same


def test_a_run_without_evaluation_has_dashes(play: Play) -> None:
    log = EventLog()
    for event in play(3).events:
        if not isinstance(event.record, HeldOut):
            log.emit(event.record)
    (row,) = compare_runs([told(log)]).table
    assert (row.held_out_before, row.held_out_gain) == (None, None)
    assert compare_runs([told(log)]).png


def test_more_runs_than_colours(play: Play) -> None:
    log = play(2)
    found = compare_runs([told(log) for _ in range(9)])
    assert found.png
    assert len({(run_colour(at), str(run_dash(at))) for at in range(18)}) == 18


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("at", range(6))
def test_a_runs_colour_is_seen_on_a_light_and_on_a_dark_page(at: int) -> None:
    for page in (PAPER, "#111111"):
        light, dark = sorted((luminance(run_colour(at)), luminance(page)), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3


# ---------------------------------------------------------------- its forms


def test_the_bundle_has_table_figure_and_text(play: Play) -> None:
    bundle = compare_runs([told(play(9, 9, finish=True)), told(play(5, 5), "b")])._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    assert bundle["image/png"] in bundle["text/html"]
    assert "<style" not in bundle["text/html"]
    assert "class=" not in bundle["text/html"]
    assert Image.open(BytesIO(b64decode(bundle["image/png"]))).size[0] == round(WIDTH_IN * DPI)


def test_the_text_reads_in_a_terminal(play: Play) -> None:
    text = compare_runs([told(play(60, finish=True), "first"), told(play(30, 60), "second", "running")]).text
    lines = text.splitlines()
    assert lines[0].split() == ["first", "second"]
    assert any(line.split() == ["state", "finished", "running"] for line in lines)
    assert any(line.split() == ["gain", "+0.515", "±", "0.042", "—"] for line in lines)
    assert "Time in a step, p50 / p95 / p99" in text
    assert max(map(len, lines)) <= 100


def test_a_name_is_escaped() -> None:
    log = begun()
    log.emit(State("failed", "<x>"))
    found = compare_runs([told(log, "<img src=x>", "failed")])
    assert "<img src=x>" not in found.html


def test_the_figure_can_be_changed_and_saved(play: Play) -> None:
    figure = compare_runs([told(play(5, 5))]).figure()
    words = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert {"Reward", "KL to reference", "Time per phase", "Speed and memory"} <= words
    figure.axes[0].set_title("mine")
    out = BytesIO()
    figure.savefig(out, format="svg")
    assert out.getvalue().startswith(b"<?xml")


def test_turned_knobs_stand_on_the_curve_of_their_run(play: Play) -> None:
    log = play(10, 10)
    log.emit(Knob(4, "temperature", 1.0, 0.7))
    found = compare_runs([told(play(10, 10)), told(log)])
    assert [row.curve.turned for row in found.table] == [(), (3,)]
    reward = found.figure().axes[0]
    (mark,) = [line for line in reward.lines if line.get_marker() == "D"]
    height = found.table[1].curve.reward[3]
    assert (mark.get_xdata()[0], mark.get_ydata()[0], mark.get_color()) == (4, height, run_colour(1))
    assert any("◆ a knob turned" in text.get_text() for text in reward.texts)
    assert not any("◆" in text.get_text() for text in compare_runs([told(play(2))]).figure().axes[0].texts)
