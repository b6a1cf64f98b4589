"""``knobs.js`` in a real chromium, on a page as small as can be. Screenshots: set WORKBENCH_SCREENSHOTS to a folder."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.views.knobs import Panel

from .pages import HOST
from .test_knobs import Steered

pytestmark = pytest.mark.browser

TRAITS = ("head", "rows", "answer", "palette")


class Page:
    """A page with the panel of ``run``; ``pass_on`` plays the kernel."""

    def __init__(self, page: Any, run: Steered, background: str) -> None:
        self.page, self.run, self.panel = page, run, Panel(run, run.log)
        page.evaluate(HOST, [self.panel._esm, self.panel._css, self.state, background])
        page.wait_for_selector('[data-wb-view="knobs"][data-ready="1"]')

    @property
    def state(self) -> dict[str, Any]:
        return {name: getattr(self.panel, name) for name in TRAITS}

    def pass_on(self) -> list[dict[str, Any]]:
        """Give what was sent to the panel, and its traits to the page. Returns what was sent."""
        sent = self.page.evaluate("host.sent.splice(0)")
        for content in sent:
            self.panel._handle_custom_msg(content, [])
        self.panel.update()
        self.page.evaluate("(state) => Object.entries(state).forEach(([name, value]) => host.model.set(name, value))", self.state)
        return sent  # type: ignore[no-any-return]

    def slider(self, key: str) -> Any:
        return self.page.locator(f'[data-knob="{key}"] input[type=range]')

    def box(self, key: str) -> Any:
        return self.page.locator(f'[data-knob="{key}"] input[type=text]')

    def note(self, key: str) -> str:
        return self.page.locator(f'[data-knob="{key}"] .wb-note').text_content()  # type: ignore[no-any-return]

    @property
    def foot(self) -> Any:
        return self.page.locator(".wb-foot")

    def shoot(self, name: str) -> None:
        if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
            self.page.locator("#one").screenshot(path=Path(folder) / f"knobs-{name}.png")


@pytest.fixture(name="show")
def show_fixture(browser: Any) -> Iterator[Callable[..., Page]]:
    """Opens a page with the panel of a run that trains; fails on any error in the page."""
    errors: list[str] = []
    pages = []

    def show(*, dark: bool = False, width: int = 1000) -> Page:
        page = browser.new_page(viewport={"width": width, "height": 620}, color_scheme="dark" if dark else "light")
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_content("<!doctype html><html lang=en><body></body></html>")
        run = Steered()
        run.to("running")
        return Page(page, run, "#111" if dark else "#fff")

    yield show
    for page in pages:
        page.close()
    assert errors == []


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_slider_that_is_let_go_sends_one_tidy_value(show: Callable[..., Page], dark: bool) -> None:
    shown = show(dark=dark)
    shown.slider("learning_rate").focus()
    for _ in range(3):
        shown.page.keyboard.press("ArrowRight")
    assert shown.page.evaluate("host.sent.map((content) => content.to)") == [1.2e-4, 1.5e-4, 2e-4]  # each key is a change
    shown.pass_on()
    assert shown.run.knobs.learning_rate == 2e-4
    assert shown.box("learning_rate").input_value() == "2e-4"
    assert shown.slider("learning_rate").get_attribute("aria-valuetext") == "2e-4"
    assert shown.note("learning_rate") == "at the next step; now 1e-4"
    assert shown.page.locator('[data-knob="learning_rate"] i').is_visible()
    assert shown.page.locator(".wb-knobs").get_attribute("data-theme") == ("dark" if dark else "light")
    shown.shoot(f"pending-{'dark' if dark else 'light'}")


def test_a_drag_sends_nothing_before_it_ends(show: Callable[..., Page]) -> None:
    shown = show()
    box = shown.slider("temperature").bounding_box()
    middle = box["y"] + box["height"] / 2
    shown.page.mouse.move(box["x"] + box["width"] / 2, middle)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + box["width"] * 0.8, middle, steps=5)
    assert shown.page.evaluate("host.sent") == []
    held = shown.box("temperature").input_value()
    shown.run.knobs.prompts = 48  # meanwhile by code: that row follows, the held one stays
    shown.pass_on()
    assert (shown.box("prompts").input_value(), shown.box("temperature").input_value()) == ("48", held)
    shown.page.mouse.up()
    assert shown.pass_on() == [{"turn": "temperature", "to": float(held)}]
    assert shown.run.knobs.temperature == float(held)


def test_any_number_can_be_typed(show: Callable[..., Page]) -> None:
    shown = show()
    shown.box("learning_rate").fill("3.3e-4")
    shown.box("learning_rate").press("Enter")
    shown.box("prompts").fill("10")
    shown.box("prompts").press("Tab")
    assert shown.pass_on() == [{"turn": "learning_rate", "to": 3.3e-4}, {"turn": "prompts", "to": 10}]
    assert (shown.run.knobs.learning_rate, shown.run.knobs.prompts) == (3.3e-4, 10)


def test_what_is_refused_goes_back_and_says_why(show: Callable[..., Page]) -> None:
    shown = show()
    height = shown.page.locator(".wb-knobs").bounding_box()["height"]
    for key, text, reason in [("clip", "1.5", "between 0 and 1"), ("group_size", "1", "against itself"), ("kl", "lots", "finite number")]:
        before = shown.box(key).input_value()
        shown.box(key).fill(text)
        shown.box(key).press("Enter")
        assert len(shown.pass_on()) == 1
        assert reason in shown.foot.text_content()
        assert shown.box(key).input_value() == before
    shown.shoot("refused")
    assert shown.page.locator(".wb-knobs").bounding_box()["height"] == height
    shown.box("kl").fill("0.02")
    shown.box("kl").press("Enter")
    shown.pass_on()
    assert shown.foot.get_attribute("data-kind") == "hint"


def test_escape_and_an_empty_box_change_nothing(show: Callable[..., Page]) -> None:
    shown = show()
    shown.box("prompts").fill("99")
    shown.box("prompts").press("Escape")
    assert shown.box("prompts").input_value() == "32"
    shown.box("prompts").fill("")
    shown.box("prompts").press("Tab")
    assert shown.box("prompts").input_value() == "32"
    assert shown.page.evaluate("host.sent") == []


def test_a_busy_kernel_is_spoken_of(show: Callable[..., Page]) -> None:
    shown = show()
    shown.slider("kl").press("ArrowRight")
    shown.page.wait_for_selector('.wb-foot[data-kind="busy"]', timeout=3000)
    shown.shoot("busy")
    shown.pass_on()
    assert shown.foot.get_attribute("data-kind") == "hint"


def test_buttons_follow_the_state(show: Callable[..., Page]) -> None:
    shown = show()
    button = {name: shown.page.get_by_role("button", name=name) for name in ("Pause", "Resume", "Stop")}
    assert [button[name].is_enabled() for name in button] == [True, False, True]
    button["Pause"].click()
    assert shown.pass_on() == [{"call": "pause"}]
    assert shown.page.locator(".wb-status").text_content() == "rests after this step"
    shown.run.to("paused")
    shown.pass_on()
    assert [button[name].is_enabled() for name in button] == [False, True, True]
    assert shown.page.locator(".wb-state").text_content() == "paused"


def test_a_closed_run_is_disabled(show: Callable[..., Page]) -> None:
    shown = show()
    shown.run.close()
    shown.pass_on()
    assert shown.page.locator("input:enabled, button:enabled").count() == 0
    shown.shoot("closed")


def test_every_control_has_a_name_for_a_screen_reader(show: Callable[..., Page]) -> None:
    shown = show()
    for control, name in [("slider", "learning_rate, before warm-up and decay"), ("textbox", "prompts, a step, as a number")]:
        assert shown.page.get_by_role(control, name=name, exact=True).count() == 1
    assert shown.page.get_by_role("slider").count() == shown.page.get_by_role("textbox").count() == 7


def test_a_narrow_page_cuts_nothing(show: Callable[..., Page]) -> None:
    shown = show(width=480)
    shown.slider("learning_rate").press("ArrowRight")
    shown.pass_on()
    shown.shoot("narrow")
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 480


def test_a_view_that_is_removed_leaves_no_hooks(show: Callable[..., Page]) -> None:
    shown = show()
    shown.page.evaluate("host.stop()")
    assert shown.page.evaluate("Object.values(host.hooks).flat().length") == 0


def test_a_page_that_takes_keys_for_itself_leaves_those_of_the_controls(show: Callable[..., Page]) -> None:
    shown = show()
    shown.page.evaluate("document.addEventListener('keydown', (event) => event.preventDefault())")  # as JupyterLab does
    shown.slider("kl").press("ArrowRight")
    shown.box("prompts").fill("40")
    shown.box("prompts").press("Enter")
    assert [content["turn"] for content in shown.pass_on()] == ["kl", "prompts"]
