"""``samples.js`` in a real chromium."""

from collections.abc import Callable

import pytest

from workbench.views.samples_live import SamplesView

from . import made
from .pages import Shown
from .test_samples_live import run_of, sampled

pytestmark = pytest.mark.browser
Open = Callable[..., Shown]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_row_for_each_sample(open_view: Open, dark: bool) -> None:
    shown = open_view(SamplesView(run_of(1, 2)), dark=dark)
    assert shown.words("th") == ["prompt", "completion", "answer", "reward", "advantage"]
    assert shown.words("tbody tr:first-child .wb-text") == ["12 + 30 - 7 =", "said in step 2", "35"]
    assert shown.words(".wb-advantage") == ["▲ +0.50", "▼ −0.25"]
    assert shown.words(".wb-of") == ["of 2, the newest"]
    shown.shoot(f"samples-{'dark' if dark else 'light'}")


def test_a_step_is_chosen_by_buttons_keys_and_number(open_view: Open) -> None:
    shown = open_view(SamplesView(run_of(1, 2, 3, 4)))
    assert shown.page.get_by_label("The step after").is_disabled()
    shown.page.get_by_label("The step before").click()
    assert shown.pass_on() == [{"step": 3}]
    shown.page.locator("tbody .wb-text").first.focus()
    shown.page.keyboard.press("PageUp")
    assert shown.pass_on() == [{"step": 2}]
    assert shown.words("tbody tr:first-child .wb-text")[1] == "said in step 2"
    assert shown.words(".wb-of") == ["of 4"]
    shown.page.locator(".wb-step").fill("1")
    shown.page.keyboard.press("Enter")
    assert shown.pass_on() == [{"step": 1}]
    assert shown.page.get_by_label("The step before").is_disabled()
    shown.page.get_by_label("Follow the newest step").click()
    assert shown.pass_on() == [{"step": None}]
    assert shown.words("tbody tr:first-child .wb-text")[1] == "said in step 4"


def test_a_long_text_opens_and_closes_with_another_step(open_view: Open) -> None:
    log = made.begun(made.SMALL)
    sampled(log, 1, "a line\n" * 30)
    shown = open_view(SamplesView(log))
    text = shown.page.locator("tbody .wb-text").nth(1)
    before = text.bounding_box()["height"]
    text.focus()
    shown.page.keyboard.press("Enter")
    assert text.bounding_box()["height"] > 5 * before
    sampled(log, 2, "another\n" * 30)
    shown.pass_on()
    assert text.bounding_box()["height"] == before


def test_before_the_first_step_it_says_so(open_view: Open) -> None:
    shown = open_view(SamplesView(made.EventLog()))
    assert shown.one(".wb-foot").text_content() == "no samples yet"
    assert shown.one("table").is_hidden()
    assert shown.page.get_by_label("The step before").is_hidden()
