"""The live view without a browser: what it sends, how often, how it ends."""

import gc
import json
import threading
import time
import weakref
from collections.abc import Callable

import anywidget
import pytest

from workbench import views
from workbench.events import EventLog
from workbench.records import Knob, Notice, Progress, Restored, State
from workbench.views import live
from workbench.views.curves import Watch
from workbench.views.live import SECONDS_BETWEEN_UPDATES

Play = Callable[..., EventLog]
OneStep = Callable[[EventLog, int, int], None]


def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for what a timer does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def changes(widget: Watch, name: str) -> list[float]:
    """Grows by the time of every update of a trait."""
    seen: list[float] = []
    widget.observe(lambda _: seen.append(time.monotonic()), name)
    return seen


def test_a_view_made_late_shows_all_that_happened(play: Play) -> None:
    widget = Watch(play(60, finish=True))
    assert widget.head["state"] == "finished"
    assert widget.head["count"] == "step 60 of 60"
    assert len(widget.chart["first"]) == 60
    assert widget.head["samples"][0]["prompt"] == "sort 52817="


def test_a_view_made_first_follows(play: Play) -> None:
    log = EventLog()
    widget = Watch(log)
    assert widget.head["state"] == "new"
    play(5, 60, log=log)
    until(lambda: widget.head["count"] == "step 5 of 60")
    assert len(widget.chart["first"]) == 5


def test_many_events_become_few_updates(play: Play, one_step: OneStep) -> None:
    log = play(1, 100_000)
    widget = Watch(log)
    heads, charts = changes(widget, "head"), changes(widget, "chart")
    begin = time.monotonic()
    step = 1
    while time.monotonic() < begin + 1.1:
        step += 1
        one_step(log, step, 100_000)
    until(lambda: widget.head["count"] == f"step {step} of 100000")
    spent = time.monotonic() - begin
    assert step > 50
    assert 2 <= len(heads) <= spent / SECONDS_BETWEEN_UPDATES + 2
    assert len(charts) <= len(heads)


@pytest.mark.parametrize("steps", [30, 900], ids=["a point a step", "several steps a point"])
def test_what_a_restore_undid_is_gone_live_and_replayed(play: Play, one_step: OneStep, steps: int) -> None:
    plain, log = EventLog(), EventLog()
    widget = Watch(log)
    for stream in (plain, log):
        play(steps, 1000, log=stream)
    log.emit(Knob(steps + 1, "temperature", 1.0, 0.7))
    for step in range(steps + 1, steps + 9):
        one_step(log, step, 1000)
    log.emit(State("failed", "the machine is gone"))
    for stream in (plain, log):
        stream.emit(Restored(steps, f"step-{steps:06d}", {}))
        stream.emit(State("running"))
        one_step(stream, steps + 1, 1000)
    until(lambda: widget.head["count"] == f"step {steps + 1} of 1000")
    widget.update()
    undisturbed = Watch(plain)
    for other in (Watch(log), undisturbed):
        assert widget.chart == other.chart
        assert {**widget.head, "waited": None} == {**other.head, "waited": None}
    assert [mark["texts"] for mark in widget.chart["marks"]] == [("restored",)]


def test_the_curves_are_sent_only_when_they_change(play: Play) -> None:
    log = play(3)
    widget = Watch(log)
    charts = changes(widget, "chart")
    log.emit(Progress("held_out", 1, 200))
    until(lambda: widget.head["status"].startswith("scoring"))
    assert charts == []


def test_what_is_saved_in_the_notebook_does_not_grow_with_the_run(play: Play) -> None:
    def saved(widget: Watch) -> int:
        state = widget.get_state()
        return len(json.dumps({name: state[name] for name in ("head", "chart")}, allow_nan=False))

    assert saved(Watch(play(2000, 2000))) < 20_000
    assert saved(Watch(play(4000, 4000))) < 20_000
    state = Watch(EventLog()).get_state()
    assert len(state["_esm"]) + len(state["_css"]) < 24_000


@pytest.fixture(name="slow_updates")
def slow_updates_fixture(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ordinary updates come so seldom that a test never sees a second one."""
    monkeypatch.setattr(live, "SECONDS_BETWEEN_UPDATES", 60.0)


@pytest.mark.usefixtures("slow_updates")
def test_a_failure_is_shown_at_once_with_its_whole_text(play: Play) -> None:
    log = play(3)
    widget = Watch(log)
    log.emit(Progress("steps", 3, 90))
    until(lambda: widget.head["count"] == "step 3 of 90")
    log.emit(Progress("steps", 3, 91))  # waits for its turn
    log.emit(State("failed", "SyncError: stale adapter\n  fix: restart the engine"))
    until(lambda: widget.head["state"] == "failed")
    assert widget.head["count"] == "step 3 of 91"
    assert widget.head["error"] == "SyncError: stale adapter\n  fix: restart the engine"


def test_a_closed_run_is_heard_no_more(play: Play) -> None:
    log = play(3, finish=True)
    widget = Watch(log)
    log.emit(State("closed"))
    until(lambda: widget.state == "closed")
    assert log._listeners == []
    assert widget.comm is not None  # the picture stays
    assert Watch(log).head["state"] == "finished"  # people are told how training ended
    assert log._listeners == []


def test_asked_again_it_is_the_same_view(play: Play) -> None:
    log = play(2)
    widget = views.watch(log)
    assert all(views.watch(log) is widget for _ in range(50))
    assert len(log._listeners) == 1
    assert views.watch(play(2)) is not widget
    widget.close()
    assert views.watch(log) is not widget


def test_many_views_leave_nothing_behind(play: Play) -> None:
    log = play(3)
    threads = threading.active_count()
    made = [Watch(log) for _ in range(100)]
    log.emit(Notice("one event for all of them"))
    for widget in made:
        widget.close()
    until(lambda: threading.active_count() <= threads)
    gone = [weakref.ref(widget) for widget in made]
    del made, widget
    gc.collect()
    assert log._listeners == []
    assert [ref for ref in gone if ref() is not None] == []


def test_a_view_that_is_collected_unsubscribes(play: Play) -> None:
    log = play(3)
    widget = Watch(log)
    anywidget.AnyWidget.close(widget)  # the front end's side alone; what is left to do happens when the object goes
    gone = weakref.ref(widget)
    del widget
    gc.collect()
    log.emit(Notice("the next event finds nobody"))
    assert gone() is None
    assert log._listeners == []


def test_a_run_is_not_kept_by_the_memory_of_its_view() -> None:
    log = EventLog()
    views.watch(log).close()
    gone = weakref.ref(log)
    del log
    gc.collect()
    assert gone() is None


def test_the_writer_does_not_wait_for_drawing(play: Play, one_step: OneStep) -> None:
    plain, watched = play(1, 300), play(1, 300)
    widget = Watch(watched)
    spent = {}
    for log in (plain, watched):
        begin = time.process_time()
        for step in range(2, 301):
            one_step(log, step, 300)
        spent[log] = time.process_time() - begin
    assert spent[watched] - spent[plain] < 0.3  # of 299 steps: under 1 ms a step
    widget.close()


def test_the_output_has_the_view_and_its_static_twin(play: Play) -> None:
    widget = Watch(play(5))
    bundle = widget._repr_mimebundle_()
    assert bundle is not None
    data, _ = bundle
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == widget.model_id
    assert data["image/png"].startswith("iVBOR")
    assert "step 5 of 60" in data["text/html"]
    assert "run.summary() shows the end" in data["text/html"]
    assert data["text/plain"].startswith("quickstart · GRPO · tiny-llama-1.7m · running · step 5 of 60")


def test_the_twin_of_a_finished_run_is_the_end(play: Play) -> None:
    bundle = Watch(play(5, 5, finish=True))._repr_mimebundle_()
    assert bundle is not None
    assert "run.summary() shows the end" not in bundle[0]["text/html"]


def test_a_view_of_nothing_yet_draws_no_figure() -> None:
    bundle = Watch(EventLog())._repr_mimebundle_()
    assert bundle is not None
    assert "image/png" not in bundle[0]
    assert "not started yet" in bundle[0]["text/html"]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_colour_that_is_named_is_in_the_palette(play: Play, theme: str) -> None:
    widget = Watch(play(3))
    named = {line["colour"] for panel in widget.chart["panels"] for line in panel["lines"]}
    assert named <= set(widget.palette[theme])
