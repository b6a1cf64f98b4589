"""The live views in JupyterLab, before a kernel that works, is blocked, or was there before the page."""

import re

import pytest

from . import cells
from .conftest import Open

pytestmark = pytest.mark.browser
MOVES = "(before) => document.querySelector('.wb-count').textContent !== before"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_view_is_drawn_in_the_theme_of_the_page_and_says_that_it_is_replayed(open_cells: Open, dark: bool) -> None:
    notebook = open_cells(cells.WHOLE, cells.BOARD, dark=dark)
    notebook.run(0, 1)
    for name in cells.NAMES:
        view = notebook.view(name)
        assert view.get_attribute("data-theme") == ("dark" if dark else "light"), name
        assert view.locator(".wb-badge").text_content() == "replayed", name
    assert notebook.view("topology").locator(".wb-head").count() == 16
    assert notebook.view("load").locator(".wb-busy-now").first.text_content() == "93%"
    assert notebook.view("timeline").locator(".wb-device").count() >= 3


def test_a_theme_that_is_changed_is_followed(open_cells: Open) -> None:
    notebook = open_cells(cells.WHOLE, cells.BOARD)
    notebook.run(0, 1)
    notebook.view("topology")
    notebook.page.emulate_media(color_scheme="dark")  # JupyterLab follows the system here
    for name in cells.NAMES:
        notebook.page.wait_for_selector(f'[data-wb-view="{name}"][data-theme="dark"]', timeout=10_000)


def test_numbers_change_while_a_cell_blocks_the_kernel(open_cells: Open) -> None:
    notebook = open_cells(cells.GOING_ON, "views.watch(log)", "thread.start()\ntime.sleep(6)\nprint('over')")
    notebook.run(0, 1)
    count = notebook.view("curves").locator(".wb-count")
    notebook.run(2, wait=False)
    seen = [count.text_content()]
    for _ in range(4):
        notebook.page.wait_for_function(MOVES, arg=seen[-1], timeout=5000)
        seen.append(count.text_content())
    assert notebook.texts(2) == []  # the cell still runs
    assert len({*seen}) == 5
    numbers = [int(re.search(r"\d+", text)[0]) for text in seen]  # type: ignore[index]
    assert numbers == sorted(numbers)
    notebook.done(2)


def test_a_reloaded_page_has_its_views_again_and_they_go_on(open_cells: Open) -> None:
    notebook = open_cells(cells.GOING_ON, "views.board(log)", "thread.start()")
    notebook.run(0, 1, 2)
    notebook.view("samples")
    before = notebook.view("curves").locator(".wb-count").text_content()
    notebook.save()
    notebook.open()
    for name in ("curves", "topology", "load", "timeline", "samples"):
        notebook.view(name)
    assert notebook.view("curves").locator(".wb-count").text_content() != before
    now = notebook.view("curves").locator(".wb-count").text_content()
    notebook.page.wait_for_function(MOVES, arg=now, timeout=5000)


def test_a_question_to_a_busy_kernel_says_so_and_is_answered(open_cells: Open) -> None:
    notebook = open_cells(
        cells.WHOLE,
        "from tests.views.test_samples_live import run_of\nviews.view('samples', run_of(1, 2, 3))",
        "import time; time.sleep(3)",
    )
    notebook.run(0, 1)
    view = notebook.view("samples")
    notebook.run(2, wait=False)
    view.get_by_label("The step before").click()
    notebook.page.wait_for_selector("text=The kernel is busy with a cell", timeout=2500)
    notebook.page.wait_for_selector(".wb-of >> text=of 3", timeout=10_000)
    notebook.page.wait_for_function("document.querySelector('.wb-step').value === '2'", timeout=10_000)


def test_keys_reach_roles_and_gpus_and_jupyterlab_keeps_out(open_cells: Open) -> None:
    notebook = open_cells(cells.WHOLE, cells.BOARD, "1")
    notebook.run(0, 1)
    view, keyboard = notebook.view("topology"), notebook.page.keyboard
    view.locator("button[data-role=actor]").focus()
    for _ in range(4):  # the other roles
        keyboard.press("Tab")
    assert notebook.page.evaluate("document.activeElement.dataset.role") == "reward"
    keyboard.press("Enter")
    assert view.locator(".wb-about .wb-name").text_content() == "reward"
    keyboard.press("Tab")
    keyboard.press("ArrowRight")
    keyboard.press("Enter")
    assert view.locator(".wb-about .wb-name").text_content() == "node1:1"
    assert notebook.page.locator(".jp-Cell").count() == 3  # Enter and arrows made nothing of JupyterLab's own
    assert notebook.page.evaluate("jupyterapp.shell.currentWidget.content.mode") == "command"
