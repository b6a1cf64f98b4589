"""The panel of knobs without a browser: what it sends, what it obeys, how it ends. With the real knobs of a run."""

import gc
import importlib
import json
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from workbench import views
from workbench.algos import DAPO, GRPO, Algorithm
from workbench.errors import StateError
from workbench.events import EventLog
from workbench.knobs import Knobs, Settings
from workbench.models.optimizer import Optimizer
from workbench.records import Restored, State
from workbench.rollout.config import Sampling
from workbench.views.knobs import Panel


class Steered:
    """A run without models: real knobs, a state, and a record of what the buttons asked for."""

    def __init__(self, algo: Algorithm | None = None) -> None:
        self.log = EventLog()
        settings = Settings(algo or GRPO(kl=0.01, group_size=16), Sampling(), Optimizer(learning_rate=1e-4))
        self.knobs = Knobs(settings, self.log)
        self.state = "new"
        self.asked: list[tuple[str, str]] = []  # call, thread
        self.released = threading.Event()  # stop returns
        self.released.set()

    def to(self, state: str) -> None:
        """Come to another state, and say so."""
        self.state = state
        self.log.emit(State(state))

    def pause(self, *, wait: bool = True) -> None:
        assert not wait, "the kernel must not wait"
        self.asked.append(("pause", threading.current_thread().name))

    def resume(self) -> None:
        self.asked.append(("resume", threading.current_thread().name))
        raise StateError("run.resume", "no thread of this run rests", "train(n) or start(n)")

    def stop(self) -> None:
        self.asked.append(("stop", threading.current_thread().name))
        self.released.wait(5)
        self.to("stopped")

    def close(self) -> None:
        """As a run does: first the state, then the knobs."""
        self.to("closed")
        self.knobs.close()


@pytest.fixture(name="run")
def run_fixture() -> Steered:
    """A run that trains."""
    run = Steered()
    run.to("running")
    return run


def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for what a timer or a thread does."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def turn(panel: Panel, key: str, value: object) -> str:
    """What a front end sends when a slider is let go. The error that it is answered with, if any."""
    return say(panel, {"turn": key, "to": value})


def press(panel: Panel, call: str) -> str:
    """What a front end sends for a button."""
    return say(panel, {"call": call})


def say(panel: Panel, content: dict[str, Any]) -> str:
    count = panel.answer["count"]
    panel._handle_custom_msg(json.loads(json.dumps(content)), [])
    assert panel.answer["count"] == count + 1
    return str(panel.answer["error"])


def row(panel: Panel, key: str) -> dict[str, Any]:
    """What is shown of one knob."""
    return next(row for row in panel.rows if row["key"] == key)


def test_every_knob_of_the_run_has_a_row(run: Steered) -> None:
    panel = Panel(run, run.log)
    assert [row["key"] for row in panel.rows] == ["learning_rate", "temperature", "prompts", "max_tokens", "group_size", "kl", "clip"]
    assert [row["text"] for row in panel.rows] == ["1e-4", "1", "32", "32", "16", "0.01", "0.2"]
    assert all(row["unit"] and row["note"] == "in use" for row in panel.rows)
    json.dumps(panel.rows, allow_nan=False)


def test_a_clip_of_two_sides_has_two_rows() -> None:
    run = Steered(DAPO())
    panel = Panel(run, run.log)
    assert turn(panel, "clip.1", 0.35) == ""
    low, high = run.knobs.clip
    assert (low, high) == (row(panel, "clip.0")["value"], 0.35)
    assert (row(panel, "clip.0")["mark"], row(panel, "clip.1")["note"]) == (None, "at the next step; now 0.28")


def test_a_turned_slider_acts_at_the_next_step(run: Steered) -> None:
    run.knobs.take(4)
    panel = Panel(run, run.log)
    assert turn(panel, "learning_rate", 3e-4) == ""
    assert run.knobs.learning_rate == 3e-4
    assert row(panel, "learning_rate")["note"] == "at the next step; now 1e-4"
    run.knobs.take(5)
    panel.update()
    assert row(panel, "learning_rate")["note"] == "in use since step 5"
    assert row(panel, "learning_rate")["mark"] is None


def test_a_whole_number_for_a_real_one_stays_real(run: Steered) -> None:
    panel = Panel(run, run.log)
    assert turn(panel, "temperature", 2) == ""  # 2.0, as a browser writes it
    assert type(run.knobs.temperature) is float


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("learning_rate", -1, "the rate has to be above 0"),
        ("learning_rate", "fast", "that is a str"),
        ("prompts", 8.5, "that is a float"),
        ("group_size", 1, "against itself alone"),
        ("clip", 1.5, "between 0 and 1"),
        ("temprature", 1, "write run.knobs.temperature"),
    ],
)
def test_a_refused_value_is_answered_and_changes_nothing(run: Steered, key: str, value: object, error: str) -> None:
    panel = Panel(run, run.log)
    before = panel.rows
    assert error in turn(panel, key, value)
    assert panel.rows == before
    assert run.knobs.pending == {}
    assert turn(panel, "prompts", 64) == ""  # an error goes with the next value that is taken


def test_an_algorithm_of_ones_own_may_refuse_with_any_error(run: Steered) -> None:
    panel = Panel(run, run.log)

    def refuse(settings: Settings) -> None:
        raise ValueError("not on a Monday")

    run.knobs._check = refuse
    assert turn(panel, "kl", 0.1) == "not on a Monday"


def test_changes_by_code_move_the_sliders_from_any_thread(run: Steered) -> None:
    panel = Panel(run, run.log)
    ladder = row(panel, "temperature")["ladder"]
    thread = threading.Thread(target=lambda: run.knobs.set(temperature=0.7, prompts=8), daemon=True)
    thread.start()
    until(lambda: row(panel, "temperature")["text"] == "0.7" and row(panel, "prompts")["value"] == 8)
    assert row(panel, "temperature")["ladder"] == ladder


def test_the_ends_move_only_for_a_value_outside(run: Steered) -> None:
    panel = Panel(run, run.log)
    ladder = row(panel, "learning_rate")["ladder"]
    turn(panel, "learning_rate", 2e-3)
    assert row(panel, "learning_rate")["ladder"] == ladder
    turn(panel, "learning_rate", 0.1)
    assert row(panel, "learning_rate")["ladder"][-1] == 3.0


def test_two_panels_stay_in_step(run: Steered) -> None:
    one, two = Panel(run, run.log), Panel(run, run.log)
    turn(one, "group_size", 24)
    until(lambda: row(two, "group_size")["value"] == 24)
    assert (one.rows, one.answer["count"], two.answer["count"]) == (two.rows, 1, 0)


def test_a_listener_and_a_turning_thread_never_wait_for_each_other(run: Steered) -> None:
    panel = Panel(run, run.log)

    def emit() -> None:
        for _ in range(300):
            run.log.emit(State("running"))

    def change() -> None:
        for at in range(300):
            run.knobs.prompts = 8 + at

    threads = [threading.Thread(target=work, daemon=True) for work in (emit, change, panel.update)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    until(lambda: row(panel, "prompts")["value"] == 307)


@pytest.mark.parametrize(
    ("state", "buttons"),
    [
        ("new", ""),
        ("starting", "pause stop"),
        ("running", "pause stop"),
        ("paused", "resume stop"),
        ("stopped", ""),
        ("finished", ""),
        ("failed", ""),
        ("closed", ""),
    ],
)
def test_the_state_says_which_buttons_are_there(run: Steered, state: str, buttons: str) -> None:
    panel = Panel(run, run.log)
    run.to(state)
    until(lambda: panel.head["state"] == state)
    assert " ".join(name for name, on in panel.head["buttons"].items() if on) == buttons


def test_a_pause_is_said_until_the_run_rests(run: Steered) -> None:
    panel = Panel(run, run.log)
    press(panel, "pause")
    assert panel.head["status"] == "rests after this step"
    assert panel.head["buttons"] == {"pause": False, "resume": True, "stop": True}
    run.to("paused")
    until(lambda: panel.head["state"] == "paused")
    assert panel.head["status"] == ""
    run.to("running")
    until(lambda: panel.head["buttons"]["pause"])
    assert panel.head["status"] == ""


def test_stop_does_not_hold_the_kernel(run: Steered) -> None:
    panel = Panel(run, run.log)
    run.released.clear()
    press(panel, "stop")
    assert (panel.head["status"], panel.head["buttons"]["stop"]) == ("drops this step", False)
    run.released.set()
    until(lambda: panel.head["state"] == "stopped")
    ((call, thread),) = run.asked
    assert (call, thread) == ("stop", "workbench-stop")


def test_a_button_that_is_refused_says_why(run: Steered) -> None:
    panel = Panel(run, run.log)
    run.to("paused")
    assert "no thread of this run rests" in press(panel, "resume")


def test_a_closed_run_is_heard_no_more_and_takes_nothing(run: Steered) -> None:
    panel = Panel(run, run.log)
    run.close()
    until(lambda: panel.head["state"] == "closed")
    assert run.log._listeners == []
    assert panel.head["status"] == "a closed run keeps what it was"
    assert "the run is closed" in turn(panel, "prompts", 8)
    assert Panel(run, run.log).head["state"] == "closed"
    assert run.log._listeners == []


def test_a_run_is_not_kept_by_its_panel() -> None:
    run = Steered()
    panel = Panel(run, run.log)
    gone = weakref.ref(run)
    del run
    gc.collect()
    assert gone() is None
    panel.update()
    assert panel.head["state"] == "closed"
    assert len(panel.rows) == 7
    assert press(panel, "pause") == ""


def test_knobs_that_a_restored_run_got_later_are_followed(run: Steered) -> None:
    panel = Panel(run, run.log)
    run.knobs = Knobs(Settings(GRPO(), Sampling(prompts=64), Optimizer()), run.log)
    panel.update()
    assert row(panel, "prompts")["value"] == 64
    turn(panel, "prompts", 96)
    assert run.knobs.prompts == 96


def test_asked_again_it_is_the_same_panel(run: Steered) -> None:
    panel = views.panel(run, run.log)
    assert views.panel(run, run.log) is panel
    importlib.import_module("workbench.views.knobs")
    assert len(run.log._listeners) == 1
    other = Steered()
    assert views.panel(other, other.log) is not panel
    panel.close()
    assert run.log._listeners == []
    assert views.panel(run, run.log) is not panel


def test_only_what_changed_is_sent(run: Steered) -> None:
    panel = Panel(run, run.log)
    sent: list[str] = []
    panel.observe(lambda change: sent.append(change["name"]), ["head", "rows", "answer"])
    for _ in range(50):
        panel.update()
    assert sent == []
    run.knobs.prompts = 48
    panel.update()
    assert sent == ["rows"]


def test_what_is_saved_in_the_notebook_does_not_grow(run: Steered) -> None:
    panel = Panel(run, run.log)

    def saved() -> int:
        state = panel.get_state()
        return len(json.dumps({name: state[name] for name in ("head", "rows", "answer")}, allow_nan=False))

    for at in range(200):
        turn(panel, "prompts", 8 + at)
    assert saved() < 6000
    state = panel.get_state()
    assert len(state["_esm"]) + len(state["_css"]) < 16_000


def test_the_output_has_the_panel_and_its_static_twin(run: Steered) -> None:
    panel = Panel(run, run.log)
    turn(panel, "learning_rate", 3e-4)
    bundle = panel._repr_mimebundle_()
    assert bundle is not None
    data, _ = bundle
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.model_id
    assert data["text/plain"].splitlines()[0] == "Knobs · run running"
    assert data["text/plain"].splitlines()[2].split()[:5] == ["learning_rate", "1e-4", "3e-4", "step", "1"]
    assert "3e-4</td>" in data["text/html"]
    assert "<script" not in data["text/html"]


def test_what_a_restore_undid_was_never_turned(run: Steered) -> None:
    run.knobs.take(4)
    run.knobs.temperature = 0.9
    run.knobs.take(5)
    panel = Panel(run, run.log)
    assert row(panel, "temperature")["note"] == "in use since step 5"
    run.log.emit(Restored(4, "step-000004", {}))
    until(lambda: row(panel, "temperature")["note"] == "in use")
