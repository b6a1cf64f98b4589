"""The live view of the samples without a browser: whose it sends, and its static twin."""

from typing import Any

import pytest

from workbench.records import Restored, Samples
from workbench.views.samples_live import LONGEST, SamplesView, at_step, signed, watch_samples

from . import made
from .pages import logic


def sampled(log: made.EventLog, step: int, completion: str = "35", **more: Any) -> None:
    log.emit(Samples(step, ["12 + 30 - 7 =", "2 + 2 ="], [completion, "5"], ["35", "4"], [1.0, 0.0], more.get("advantages", [0.5, -0.25])))


def run_of(*steps: int) -> made.EventLog:
    log = made.begun(made.SMALL)
    for step in steps:
        sampled(log, step, f"said in step {step}")
    return log


def ask(view: SamplesView, content: Any) -> None:
    view._handle_custom_msg(content, [])


def test_before_the_first_step_there_is_nothing_to_read() -> None:
    view = SamplesView(made.begun(made.SMALL))
    assert view.page == {"step": 0, "first": 0, "last": 0, "follows": True, "rows": [], "answer": 0}
    assert view.twin()["text/plain"].endswith("no samples yet")


def test_the_newest_is_followed() -> None:
    log = run_of(1)
    view = SamplesView(log)
    sampled(log, 2, "two\tnow")
    view.update()
    assert (view.page["step"], view.page["first"], view.page["last"], view.page["follows"]) == (2, 1, 2, True)
    assert view.page["rows"] == [
        {"prompt": "12 + 30 - 7 =", "completion": "two⇥now", "answer": "35", "reward": "1", "advantage": "+0.50", "share": 1.0},
        {"prompt": "2 + 2 =", "completion": "5", "answer": "4", "reward": "0", "advantage": "−0.25", "share": -0.5},
    ]


def test_another_step_is_shown_until_the_newest_is_asked_for() -> None:
    log = run_of(1, 2, 4)
    view = SamplesView(log)
    ask(view, {"step": 2})
    assert (view.page["step"], view.page["follows"], view.page["answer"]) == (2, False, 1)
    sampled(log, 5)
    view.update()
    assert (view.page["step"], view.page["last"]) == (2, 5)
    ask(view, {"step": None})
    assert (view.page["step"], view.page["follows"]) == (5, True)


@pytest.mark.parametrize("content", [{"step": "2"}, {}, None])
def test_what_is_no_step_is_passed_over(content: Any) -> None:
    view = SamplesView(run_of(1, 2))
    ask(view, content)
    assert (view.page["step"], view.page["answer"]) == (2, 0)


def test_a_step_without_samples_shows_those_of_the_last_before_it() -> None:
    events = run_of(2, 5).events
    assert [samples.step for step in (1, 2, 4, 5, 9) if (samples := at_step(events, step))] == [2, 2, 2, 5, 5]
    assert at_step(made.begun(made.SMALL).events, 1) is None


def test_what_a_restore_left_behind_is_not_shown() -> None:
    log = run_of(1, 2, 3)
    log.emit(Restored(1, "step-000001", {}))
    sampled(log, 2, "again")
    found = at_step(log.events, 3)
    assert found is not None
    assert (found.step, found.completions[0]) == (2, "again")


def test_line_ends_stay_and_a_text_has_an_end() -> None:
    log = made.begun(made.SMALL)
    sampled(log, 1, "a\nb\u202e" + "x" * 9000)
    text = SamplesView(log).page["rows"][0]["completion"]
    assert text.startswith("a\nb\\u202ex")
    assert len(text) < LONGEST + 10


def test_without_an_advantage_every_bar_is_empty() -> None:
    log = made.begun(made.SMALL)
    sampled(log, 1, advantages=[0.0, 0.0])
    assert [(row["advantage"], row["share"]) for row in SamplesView(log).page["rows"]] == [("0", 0), ("0", 0)]
    assert [signed(value) for value in (1.5, -1.5, 0.0)] == ["+1.50", "−1.50", "0"]


def test_the_static_twin_is_a_table() -> None:
    log = made.begun(made.SMALL)
    sampled(log, 7, "<b>35</b>")
    twin = SamplesView(log).twin()
    assert twin["text/plain"].splitlines()[0] == "a run · running · step 1 of 50 · samples of step 7"
    assert twin["text/plain"].splitlines()[2].split() == ["12", "+", "30", "-", "7", "=", "<b>35</b>", "1", "+0.50"]
    assert "&lt;b&gt;35&lt;/b&gt;" in twin["text/html"]
    assert "<b>35" not in twin["text/html"]


def test_asked_again_it_is_the_same_view() -> None:
    log = run_of(1)
    assert watch_samples(log) is watch_samples(log)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[0, 3, 7.6, 9, 12, NaN].map((step) => wanted(step, { first: 2, last: 9 }))", [2, 3, 8, None, None, None]),
        ("[0.5, -0.5, 0].map(sign)", ["▲", "▼", "·"]),
    ],
)
def test_steps_and_signs(expression: str, value: Any) -> None:
    assert logic(["asking.js", "samples.js"], expression) == value
