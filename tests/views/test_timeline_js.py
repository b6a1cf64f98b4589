"""``timeline.js`` in a real chromium."""

from collections.abc import Callable

import pytest

from workbench.views.timeline_live import TimelineView

from . import made
from .pages import Shown
from .test_timeline_live import run_of

pytestmark = pytest.mark.browser
Open = Callable[..., Shown]


def seen(shown: Shown) -> list[str]:
    """The labels of the axis."""
    return [text for text in shown.words("svg text") if text.endswith(" s")]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_row_for_each_device_with_what_it_did(open_view: Open, dark: bool) -> None:
    shown = open_view(TimelineView(run_of(12)), dark=dark)
    assert shown.words(".wb-device") == ["local:0", "local:1", "local:2", "local:3", "cpu:0"]
    assert shown.words(".wb-share") == ["44%", "44%", "56%", "56%", "11%"]
    assert shown.words(".wb-legend span") == ["rollout", "reward", "reference", "update_actor", "sync", "nothing to do"]
    assert shown.one(".wb-steps").text_content() == "steps 3–12"
    assert shown.one("svg").get_attribute("aria-label").startswith("Steps 3 to 12, 90 s: local:0 (actor, reference) busy 44%")
    shown.shoot(f"timeline-{'dark' if dark else 'light'}")


def test_keys_zoom_and_move(open_view: Open) -> None:
    shown = open_view(TimelineView(run_of(12)))
    whole = seen(shown)
    shown.one("svg").focus()
    for key in ("+", "+", "+"):
        shown.page.keyboard.press(key)
    shown.page.wait_for_timeout(100)  # frames
    zoomed = seen(shown)
    assert float(zoomed[-1][:-2]) - float(zoomed[0][:-2]) < 90 * 0.6**3 + 1e-6
    assert "rollout 7" in shown.words(".wb-bar")  # now there is room for the name
    for _ in range(3):
        shown.page.keyboard.press("ArrowRight")
    shown.page.wait_for_function(f"![...document.querySelectorAll('svg text')].some((text) => text.textContent === '{zoomed[0]}')")
    shown.page.keyboard.press("0")
    shown.page.wait_for_function("document.querySelectorAll('.wb-end').length >= 10")
    assert seen(shown) == whole


def test_the_wheel_is_the_pages_until_the_view_has_the_focus(open_view: Open) -> None:
    shown = open_view(TimelineView(run_of(12)))
    whole = seen(shown)
    box = shown.one("svg").bounding_box()
    shown.page.mouse.move(box["x"] + 400, box["y"] + 60)
    shown.page.mouse.wheel(0, -300)
    shown.page.wait_for_timeout(100)
    assert seen(shown) == whole
    shown.one("svg").focus()
    shown.page.mouse.wheel(0, -300)
    shown.page.wait_for_function("document.querySelectorAll('.wb-end').length < 10")
    assert seen(shown) != whole


def test_a_pointer_is_told_what_ran_and_what_was_waited_for(open_view: Open) -> None:
    shown = open_view(TimelineView(run_of(1)))
    box = shown.one("svg").bounding_box()
    second = (box["width"] - 210) / 9
    shown.page.mouse.move(box["x"] + 150 + 2 * second, box["y"] + 22 + 10)
    assert shown.one(".wb-foot").text_content() == "local:0: nothing to do for 5.00 s, while elsewhere: rollout, reward"
    shown.page.mouse.move(box["x"] + 150 + 7 * second, box["y"] + 22 + 10)
    assert shown.one(".wb-foot").text_content() == "local:0: update_actor of step 1, 2.00 s"


def test_earlier_steps_come_from_the_kernel(open_view: Open) -> None:
    shown = open_view(TimelineView(run_of(30)))
    assert shown.page.get_by_label("Later steps").is_disabled()
    shown.page.get_by_label("Earlier steps").click()
    shown.page.wait_for_timeout(700)
    assert shown.one(".wb-foot").text_content() == "The kernel is busy with a cell; the answer comes when that ends."
    assert shown.pass_on() == [{"last": 20}]
    assert shown.one(".wb-steps").text_content() == "steps 11–20"
    assert "busy" not in shown.one(".wb-foot").text_content()
    shown.page.get_by_label("Later steps").click()
    assert shown.pass_on() == [{"last": None}]
    assert shown.one(".wb-steps").text_content() == "steps 21–30"


def test_before_a_phase_has_ended_nothing_is_drawn(open_view: Open) -> None:
    shown = open_view(TimelineView(made.EventLog()))
    assert shown.one("svg").is_hidden()
    assert shown.one(".wb-tools").is_hidden()
    assert shown.one(".wb-foot").text_content() == "no phase has ended yet"


def test_the_first_phase_that_ends_is_drawn(open_view: Open) -> None:
    log = made.begun(made.SMALL)
    shown = open_view(TimelineView(log))
    made.whole(log, 1)
    shown.pass_on()
    assert shown.one("svg").is_visible()
    assert shown.one(".wb-foot").text_content().startswith("Zoom:")


def test_sixteen_devices_and_ten_steps_are_drawn_within_two_frames(open_view: Open) -> None:
    _, placement = made.large()
    log, begin = made.begun({role: devices for role, devices in placement.items() if role != "reward"}), 0.0
    for step in range(1, 13):
        begin = made.whole(log, step, begin)
    shown = open_view(TimelineView(log))
    assert len(shown.words(".wb-device")) == 16
    spent = shown.page.evaluate(
        """() => { const data = host.model.get("window"), begin = performance.now();
        for (let i = 0; i < 20; i++) host.model.set("window", { ...data, newest: 100 + i });
        return (performance.now() - begin) / 20; }"""
    )
    assert spent < 34
