"""``load.js`` in a real chromium."""

from collections.abc import Callable

import pytest

from workbench.views.load import LoadView

from . import made
from .pages import Shown
from .test_load import TWO, phases_of, sampled

pytestmark = pytest.mark.browser
Open = Callable[..., Shown]


def view_of(seconds: float = 180) -> LoadView:
    view = LoadView(made.begun(TWO))
    for event in phases_of(20):
        view.take(event)
    sampled(view, seconds).update()
    return view


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_track_for_each_device_and_role(open_view: Open, dark: bool) -> None:
    shown = open_view(view_of(), dark=dark)
    assert shown.words(".wb-who b") == ["local:0", "local:1", "actor", "rollout"]
    assert shown.words(".wb-busy-now") == ["100%", "0%", "100%", "0%"]
    assert shown.words(".wb-full-now") == ["20.0 of 80 GiB", "60.0 of 80 GiB", "", ""]
    assert shown.words(".wb-legend span") == ["actor", "rollout", "no role alone", "memory"]
    assert shown.words(".wb-axis span") == ["3 min ago", "", "now"]
    assert shown.one(".wb-load").get_attribute("data-theme") == ("dark" if dark else "light")
    shown.shoot(f"load-{'dark' if dark else 'light'}")


def test_keys_and_pointer_read_all_tracks_at_one_time(open_view: Open) -> None:
    shown = open_view(view_of())
    shown.one(".wb-tracks").first.focus()
    for _ in range(6):
        shown.page.keyboard.press("ArrowLeft")
    assert shown.words(".wb-busy-now") == ["0%", "100%", "0%", "100%"]  # nine seconds before the end a step begins
    assert shown.words(".wb-full-now")[:2] == ["memory 25%", "memory 75%"]
    assert shown.words(".wb-who span")[:2] == ["no role alone", "rollout at work"]
    assert shown.words(".wb-axis span")[1] == "8 s ago"
    shown.page.keyboard.press("Escape")
    assert shown.words(".wb-axis span")[1] == ""
    box = shown.one(".wb-track-row svg").nth(1).bounding_box()
    shown.page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 5)
    assert shown.words(".wb-axis span")[1] == "now"


def test_what_comes_is_drawn(open_view: Open) -> None:
    shown = open_view(LoadView(made.begun(TWO)))
    assert shown.one(".wb-between").text_content() == "no load was sampled yet"
    sampled(shown.view, 9)
    shown.pass_on()
    assert shown.words(".wb-busy-now")[:2] == ["100%", "0%"]
    assert shown.one(".wb-track-row svg").first.get_attribute("aria-label") == "local:0, actor: busy 100%, 20.0 of 80 GiB"


def test_sixteen_gpus_are_drawn_within_two_frames(open_view: Open) -> None:
    topology, placement = made.large()
    view = LoadView(made.begun(placement))
    for at in range(360):
        for device in topology.ids:
            view.take(made.load(device, at / 2, (at % 18) / 18, 61.0))
    view.update()
    shown = open_view(view)
    spent = shown.page.evaluate(
        """() => { const chart = host.model.get("chart"), begin = performance.now();
        for (let i = 0; i < 20; i++) host.model.set("chart", { ...chart, seconds: 1.5 + i / 1000 });
        return (performance.now() - begin) / 20; }"""
    )
    assert spent < 34
