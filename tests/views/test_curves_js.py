"""``curves.js`` in a real chromium, on a page as small as can be. Screenshots: set WORKBENCH_SCREENSHOTS to a folder."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from workbench.events import EventLog
from workbench.records import Knob, Restored, Samples, State
from workbench.views.curves import Watch

pytestmark = pytest.mark.browser
Play = Callable[..., EventLog]

# What a widget manager gives to a view: a model with get, on and off; two views of it in one page.
HOST = """async ([esm, css, state, background]) => {
  document.head.insertAdjacentHTML("beforeend", `<style>body { margin: 16px; background: ${background} }${css}</style>`);
  document.body.innerHTML = "<div id=one></div><div id=two></div>";
  const hooks = {};
  const model = {
    get: (name) => state[name],
    on: (name, hook) => (hooks[name] ??= []).push(hook),
    off: (name, hook) => (hooks[name] = hooks[name].filter((other) => other !== hook)),
    set: (name, value) => { state[name] = value; hooks[`change:${name}`].forEach((hook) => hook()); },
  };
  const module = await import(URL.createObjectURL(new Blob([esm], { type: "text/javascript" })));
  const stops = ["one", "two"].map((id) => module.default.render({ model, el: document.getElementById(id) }));
  window.host = { model, hooks, stop: () => stops.forEach((stop) => stop()) };
}"""


def state_of(log: EventLog) -> dict[str, Any]:
    widget = Watch(log)
    return {"head": widget.head, "chart": widget.chart, "palette": widget.palette}


@pytest.fixture(name="show")
def show_fixture(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens a page with two views of a run; fails on any error in the page."""
    errors: list[str] = []
    pages = []

    def show(log: EventLog, *, dark: bool = False, width: int = 980, name: str = "", background: str = "") -> Any:
        page = browser.new_page(viewport={"width": width, "height": 760}, color_scheme="dark" if dark else "light")
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.set_content("<!doctype html><html lang=en><body></body></html>")
        widget = Watch(log)
        page.evaluate(HOST, [widget._esm, widget._css, state_of(log), background or ("#111" if dark else "#fff")])
        page.wait_for_selector('#two [data-wb-view="curves"][data-ready="1"]')
        if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
            page.locator("#one").screenshot(path=Path(folder) / f"curves-{name or 'run'}-{'dark' if dark else 'light'}-{width}.png")
        return page

    yield show
    for page in pages:
        page.close()
    assert errors == []


def send(page: Any, log: EventLog) -> None:
    state = state_of(log)
    page.evaluate("(state) => ['head', 'chart'].forEach((name) => host.model.set(name, state[name]))", state)


def texts(page: Any, panel: int) -> list[str]:
    """The labels to the right of a panel, each with its value."""
    return page.locator("#one .wb-panels svg").nth(panel).locator(".wb-read text").all_text_contents()  # type: ignore[no-any-return]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_finished_run_is_drawn_in_the_theme_of_the_page(show: Callable[..., Any], play: Play, dark: bool) -> None:
    page = show(play(60, finish=True), dark=dark, name="finished")
    root = page.locator("#one .wb-curves")
    assert root.get_attribute("data-theme") == ("dark" if dark else "light")
    assert page.locator("#one .wb-state").text_content() == "finished"
    assert page.locator("#one .wb-count").text_content() == "step 60 of 60"
    assert page.locator("#one .wb-panels svg").count() == 4
    assert page.locator("#one .wb-held").count() == 2 * 2 + 1  # circle and error bar of each, and the key
    assert texts(page, 0) == ["batch mean", "0.84", "held out", "0.79"]
    assert page.locator("#one .wb-row").count() == 5


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_without_a_background_the_system_decides(show: Callable[..., Any], play: Play, dark: bool) -> None:
    page = show(play(2), dark=dark, background="transparent")
    assert page.locator("#one .wb-curves").get_attribute("data-theme") == ("dark" if dark else "light")


def test_a_theme_that_changes_later_is_followed(show: Callable[..., Any], play: Play) -> None:
    page = show(play(2))
    page.evaluate("document.body.style.background = '#111'")
    page.wait_for_selector('#one [data-theme="dark"]', timeout=5000)
    assert page.locator("#one .wb-curves").get_attribute("data-theme") == "dark"


def test_the_words_of_a_panel_are_there_for_a_screen_reader(show: Callable[..., Any], play: Play) -> None:
    page = show(play(60, finish=True))
    words = page.locator("#one svg").first.get_attribute("aria-label")
    assert words == "Reward, steps 1 to 60: batch mean from 0.26 to 0.84; held out 0.27 at step 0; held out 0.79 at step 60"
    assert page.locator("#one [role=progressbar]").get_attribute("aria-valuenow") == "100"


def test_hovering_reads_all_panels_at_one_step(show: Callable[..., Any], play: Play) -> None:
    page = show(play(60, finish=True))
    before = texts(page, 3)
    box = page.locator("#one svg").nth(1).bounding_box()
    page.mouse.move(box["x"] + 180, box["y"] + 90)
    (step,) = set(page.locator("#one .wb-here").all_text_contents())
    state = state_of(play(60, finish=True))
    reward = state["chart"]["panels"][0]["lines"][0]["values"][int(step) - 1]
    assert float(texts(page, 0)[1]) == pytest.approx(reward, abs=0.006)
    assert page.locator("#two .wb-here").count() == 0
    page.mouse.move(5, 5)
    assert page.locator("#one .wb-here").count() == 0
    assert texts(page, 3) == before


def test_arrow_keys_read_too(show: Callable[..., Any], play: Play) -> None:
    page = show(play(60, finish=True))
    page.locator("#one svg").first.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert set(page.locator("#one .wb-here").all_text_contents()) == {"59"}


def test_keys_stay_with_the_view(show: Callable[..., Any], play: Play) -> None:
    page = show(play(5))
    page.evaluate("document.body.addEventListener('keydown', () => (document.body.dataset.heard = '1'))")
    page.locator("#one svg").first.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    assert page.locator("#one .wb-here").count() == 4
    assert page.locator("body").get_attribute("data-heard") is None


def changed(play: Play, one_step: Callable[..., None], every: int) -> EventLog:
    """A run of 60 steps with a knob turned at every few of them, restored on the way."""
    names = ("temperature", "kl", "learning_rate")
    log = play(0, 60)
    for step in range(1, 61):
        if step % every == 0:
            log.emit(Knob(step, names[step // every % 3], step / 100, step / 50))
        one_step(log, step, 60)
        if step == 40:
            one_step(log, 41, 60)
            log.emit(Restored(40, "step-000040", {}))
    return log


@pytest.mark.parametrize(("every", "width"), [(2, 980), (7, 980), (7, 1400), (13, 480), (25, 980)])
def test_marks_are_in_every_panel_and_their_words_cover_nothing(
    show: Callable[..., Any], play: Play, one_step: Callable[..., None], every: int, width: int
) -> None:
    page = show(changed(play, one_step, every), width=width, name=f"changed-{every}")
    panels = page.locator("#one .wb-panels svg")
    assert [panels.nth(at).locator(".wb-mark").count() for at in range(4)] == [60 // every + 1] * 4
    assert [panels.nth(at).locator(".wb-flag").count() > 0 for at in range(4)] == [True, False, False, False]
    words = panels.first.locator(".wb-flag text, .wb-name, .wb-read text").all()
    boxes = [(node.text_content(), node.bounding_box()) for node in words]
    for (text, one), (other_text, other) in itertools.combinations(boxes, 2):
        beside = one["x"] + one["width"] <= other["x"] + 0.5 or other["x"] + other["width"] <= one["x"] + 0.5
        above = (
            one["y"] + one["height"] <= other["y"] + 3 or other["y"] + other["height"] <= one["y"] + 3
        )  # a line is higher than its letters
        assert beside or above, (text, other_text)
    frame = panels.first.bounding_box()
    assert all(frame["x"] <= box["x"] and box["x"] + box["width"] <= frame["x"] + frame["width"] for _, box in boxes)


def test_a_mark_says_what_it_is_under_the_pointer_and_to_a_screen_reader(
    show: Callable[..., Any], play: Play, one_step: Callable[..., None]
) -> None:
    page = show(changed(play, one_step, 25))
    panel = page.locator("#one svg").nth(1)
    assert panel.locator(".wb-mark title").all_text_contents() == [
        "step 25: kl 0.25 → 0.5",
        "after step 40: restored",
        "step 50: learning_rate 0.5 → 1",
    ]
    line = panel.locator(".wb-mark .wb-hit").first.bounding_box()
    page.mouse.move(line["x"] + line["width"] / 2, line["y"] + line["height"] / 2)
    under = "([x, y]) => document.elementFromPoint(x, y).closest('.wb-mark')?.querySelector('title').textContent"
    assert page.evaluate(under, [line["x"] + line["width"] / 2, line["y"] + line["height"] / 2]) == "step 25: kl 0.25 → 0.5"
    assert page.locator("#one .wb-here").count() == 4  # and the step is read all the same
    assert "kl 0.25 → 0.5, step 25; restored, after step 40" in page.locator("#one svg").first.get_attribute("aria-label")


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_run_with_a_critic_has_a_row_more_and_the_rest_on_a_fold(show: Callable[..., Any], play_ppo: Play, dark: bool) -> None:
    page = show(play_ppo(20, finish=True), dark=dark, name="critic")
    assert page.locator("#one > .wb-view > .wb-panels svg").count() == 6
    assert texts(page, 5) == ["critic", "0.85"]
    fold = page.locator("#one .wb-more")
    assert fold.locator("summary").text_content().startswith("More curves: Reward: right, Reward: style/cut_rows")
    assert fold.locator("svg").first.is_hidden()
    fold.locator("summary").click()
    page.wait_for_function("document.querySelectorAll('#one .wb-more .wb-read text').length > 0")
    assert fold.locator("svg").count() == 5
    assert texts(page, 6) == ["mean", "2"]
    page.locator("#one svg").first.focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#one .wb-here").all_text_contents() == ["19"] * 11  # folded out they are read with the others
    if folder := os.environ.get("WORKBENCH_SCREENSHOTS"):
        page.locator("#one").screenshot(path=Path(folder) / f"curves-more-{'dark' if dark else 'light'}.png")


def test_panels_come_with_what_a_run_tells(show: Callable[..., Any], play: Play, play_ppo: Play) -> None:
    page = show(play(3))
    assert page.locator("#one .wb-more").is_hidden()
    page.locator("#one svg").first.focus()
    page.keyboard.press("ArrowLeft")
    send(page, play_ppo(3))
    assert page.locator("#one > .wb-view > .wb-panels svg").count() == 6
    assert page.locator("#one .wb-more").is_visible()
    assert texts(page, 4) == ["value loss", "0.17", "3"]  # the step under the crosshair
    send(page, play(3))
    assert page.locator("#one svg").count() == 4


def test_an_interrupted_run_is_red(show: Callable[..., Any], play: Play) -> None:
    log = play(31)
    log.emit(State("interrupted"))
    page = show(log, name="interrupted")
    tone = "(node) => getComputedStyle(node, '::before').backgroundColor"
    assert page.locator("#one .wb-state").evaluate(tone) == "rgb(207, 74, 26)"
    assert "Run.restore(path)" in page.locator("#one .wb-status span").text_content()


def test_both_views_follow_and_nothing_moves(show: Callable[..., Any], play: Play) -> None:
    page = show(EventLog(), name="new")
    height = page.locator("#one").bounding_box()["height"]
    for steps in (0, 1, 23, 60):
        send(page, play(steps, 60))
        assert page.locator("#one").bounding_box()["height"] == height
    assert page.locator("#one .wb-count").text_content() == page.locator("#two .wb-count").text_content() == "step 60 of 60"


def test_a_failure_is_red_and_readable(show: Callable[..., Any], play: Play) -> None:
    log = play(31)
    log.emit(State("failed", "SyncError: the engine does not sample from the weights just trained\n  fix: restart the engine"))
    page = show(log, name="failed")
    assert page.locator("#one .wb-error").is_visible()
    assert "fix: restart the engine" in page.locator("#one .wb-error").text_content()
    assert page.locator("#one .wb-status span").text_content().startswith("SyncError")


def test_what_a_model_says_is_text_and_nothing_else(show: Callable[..., Any], play: Play) -> None:
    log = play(3)
    evil = "<img src=x onerror=\"document.body.dataset.hurt = '1'\">"
    log.emit(Samples(3, [evil], [evil], [evil], [1.0], [0.0]))
    log.emit(State("failed", evil))
    page = show(log)
    page.wait_for_timeout(200)
    assert page.locator("body").get_attribute("data-hurt") is None
    assert page.locator("#one code").first.text_content() == evil


def test_a_narrow_page_has_one_column(show: Callable[..., Any], play: Play) -> None:
    page = show(play(23), width=480, name="narrow")
    lefts = {page.locator("#one svg").nth(at).bounding_box()["x"] for at in range(4)}
    assert len(lefts) == 1
    page.set_viewport_size({"width": 1200, "height": 760})
    page.wait_for_timeout(200)
    assert len({page.locator("#one svg").nth(at).bounding_box()["x"] for at in range(4)}) == 2


def test_a_view_that_is_removed_leaves_no_hooks(show: Callable[..., Any], play: Play) -> None:
    page = show(play(3))
    page.evaluate("host.stop()")
    assert page.evaluate("Object.values(host.hooks).flat().length") == 0


def test_text_stands_out_from_the_page(show: Callable[..., Any], play: Play) -> None:
    contrast = """(node) => {
      const light = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
      const lum = (s) => {
        const [r, g, b] = s.match(/[\\d.]+/g).map(Number);
        return 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
      };
      const page = lum(getComputedStyle(node.closest(".wb-curves")).backgroundColor);
      const style = getComputedStyle(node);
      const ink = lum(node.tagName === "text" ? style.fill : style.color);
      return (Math.max(page, ink) + 0.05) / (Math.min(page, ink) + 0.05);
    }"""
    for dark in (False, True):
        page = show(play(23), dark=dark)
        for node in page.locator("#one text, #one .wb-label, #one .wb-note, #one .wb-status span, #one .wb-clock").all():
            assert node.evaluate(contrast) >= 4.5
