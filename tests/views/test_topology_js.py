"""``topology.js`` in a real chromium."""

from collections.abc import Callable

import pytest

import workbench as wb
from workbench.views.topology import TopologyView

from . import made
from .pages import Shown

pytestmark = pytest.mark.browser
Open = Callable[..., Shown]


def sixteen() -> TopologyView:
    topology, placement = made.large()
    log = made.begun(placement)
    made.whole(log, 1)
    made.phase(log, "rollout", 2, 9, 4)
    made.began(log, "reward", 2)
    view = TopologyView(log, topology)
    for device in topology.ids:
        view.take(made.load(device, 9.0, 0.93, 25.0, 80.0, role_memory_gib={"actor": 14.0}))
    view.update()
    return view


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_gpu_has_its_numbers_and_the_roles_at_work_are_marked(open_view: Open, dark: bool) -> None:
    shown = open_view(sixteen(), dark=dark)
    assert shown.one(".wb-topology").get_attribute("data-theme") == ("dark" if dark else "light")
    assert shown.words(".wb-head .wb-ink") == ["93%", "25/80"] * 16
    assert shown.one(".wb-where").text_content() == "step 2 of 50 · reward"
    assert [button.get_attribute("data-role") for button in shown.one("button[data-running]").all()] == ["reward"]
    shown.shoot(f"topology-{'dark' if dark else 'light'}")


def test_numbers_change_in_place_and_what_is_chosen_stays(open_view: Open) -> None:
    shown = open_view(sixteen())
    shown.one("button[data-role=rollout]").focus()
    shown.page.keyboard.press("Enter")
    shown.page.evaluate("window.kept = document.querySelector('.wb-head')")
    shown.view.take(made.load("node1:0", 10.0, 0.07, 25.0, 80.0))
    shown.pass_on()
    assert shown.words(".wb-head .wb-ink")[:2] == ["7%", "25/80"]
    assert shown.page.evaluate("window.kept === document.querySelector('.wb-head')")
    assert shown.one("button[data-role=rollout]").get_attribute("aria-pressed") == "true"


def test_a_role_tells_its_numbers_and_routes(open_view: Open) -> None:
    shown = open_view(sixteen())
    shown.one(".wb-place[data-role=actor]").first.click()
    rows = dict(zip(shown.words("dt"), shown.words("dd"), strict=True))
    assert rows["devices"].startswith("node1:0, node1:1")
    assert rows["memory"] == "112.0 GiB in 8 processes"  # 14 on each of eight
    assert rows["phases"] == "update_actor 2.00 s, sync 1.00 s"
    assert "about 50 GB/s" in rows["weights to rollout"]
    assert shown.one(".wb-place[data-dim]").count() == shown.one(".wb-place:not([data-role=actor])").count()
    shown.page.locator("button[data-role=actor]").focus()
    shown.page.keyboard.press("ArrowRight")
    assert shown.page.evaluate("document.activeElement.dataset.role") == "critic"
    shown.page.keyboard.press("Escape")
    assert shown.one(".wb-about").is_hidden()


def test_a_screen_reader_is_told_of_every_device(open_view: Open) -> None:
    shown = open_view(TopologyView(made.begun(made.SMALL), wb.Topology.preset("l40s-4")))
    heads = shown.one(".wb-head[role=button]")
    assert heads.nth(0).get_attribute("aria-label") == "local:0: no sample yet; actor, reference"
    assert (heads.count(), shown.one(".wb-machine svg").get_attribute("role")) == (4, "group")


def test_tab_comes_to_roles_and_gpus_and_enter_opens(open_view: Open) -> None:
    view = sixteen()
    view.take(made.load("node1:1", 10.0, 0.5, 25.0, 80.0, role_memory_gib={"actor, critic": 14.0}, watts=310.0))
    view.update()
    shown = open_view(view)
    keyboard, focused = shown.page.keyboard, "document.activeElement.dataset.{0}"
    shown.one("button[data-role=reward]").focus()  # the last of the roles
    keyboard.press("Tab")
    assert shown.page.evaluate(focused.format("device")) == "node1:0"
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft"):
        keyboard.press(key)
    assert shown.page.evaluate(focused.format("device")) == "node1:1"
    keyboard.press("Enter")
    assert shown.one(".wb-about").get_attribute("aria-label") == "node1:1"
    assert dict(zip(shown.words("dt"), shown.words("dd"), strict=True)) == {
        "roles": "actor, critic",
        "busy now": "50%",
        "memory": "25.0 of 80 GiB; actor, critic 14.0 GiB; others 11.0 GiB",
        "phases": "update_actor 2.00 s, sync 1.00 s, values —, update_critic —",
        "more": "310 W",
    }
    assert shown.one(".wb-place[data-dim]").count() == 0
    keyboard.press("Escape")
    assert shown.one(".wb-about").is_hidden()
    keyboard.press("Tab")  # one stop for all devices
    assert shown.page.evaluate("document.activeElement.closest('.wb-head')") is None


def test_before_the_run_begins_it_says_so(open_view: Open) -> None:
    shown = open_view(TopologyView(made.EventLog()))
    assert shown.one(".wb-where").text_content() == "not started yet"


def test_sixteen_gpus_are_brought_up_to_date_within_a_frame(open_view: Open) -> None:
    """At four updates a second there are 250 ms; one frame of 60 a second is 17."""
    shown = open_view(sixteen())
    spent = shown.page.evaluate(
        """() => { const now = host.model.get("now"), begin = performance.now();
        for (let i = 0; i < 50; i++) host.model.set("now", { ...now, status: String(i) });
        return (performance.now() - begin) / 50; }"""
    )
    assert spent < 17
