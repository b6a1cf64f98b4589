"""A real run in JupyterLab, steered by a hand: knobs and buttons act while it trains."""

from pathlib import Path

import pytest

from .conftest import Open

pytestmark = pytest.mark.browser

RUN = """\
from pathlib import Path
from tests.test_run import make

run = make(Path({model!r}), Path({folder!r}), name="steered")
run.watch("all")"""
START = "run.start(100_000)\nrun.wait(until_step=2)"
RATES = "run.wait(until_step=len(run.steps) + 2)\n[step.learning_rate for step in run.steps][-1]"
END = "run.close()"
STATE = "(state) => document.querySelector('[data-wb-view=knobs]').dataset.state === state"


def test_a_knob_and_the_buttons_act_on_a_run_that_trains(open_cells: Open, small_model: Path, tmp_path: Path) -> None:
    notebook = open_cells(RUN.format(model=str(small_model), folder=str(tmp_path)), START, RATES, END)
    notebook.run(0)
    page, knobs = notebook.page, notebook.view("knobs")
    notebook.run(1, wait=False)
    notebook.done(1, seconds=240)
    page.wait_for_function(STATE, arg="running")
    slider = knobs.locator('[data-knob="learning_rate"] input[type=range]')
    slider.focus()
    page.keyboard.press("ArrowRight")
    box = knobs.locator('[data-knob="learning_rate"] input[type=text]')
    turned = float(box.input_value())
    assert turned > 0.02
    notebook.run(2)  # two steps later
    assert notebook.texts(2)[-1] == str(turned)
    assert knobs.locator('[data-knob="learning_rate"] .wb-note').text_content().startswith("in use")

    knobs.get_by_role("button", name="Pause").click()
    page.wait_for_function(STATE, arg="paused")
    count = notebook.view("curves").locator(".wb-count")
    rested = count.text_content()
    page.wait_for_timeout(1500)
    assert count.text_content() == rested
    knobs.get_by_role("button", name="Resume").click()
    page.wait_for_function("(before) => document.querySelector('.wb-count').textContent !== before", arg=rested)
    knobs.get_by_role("button", name="Stop").click()
    page.wait_for_function(STATE, arg="stopped")
    notebook.run(3)
    assert knobs.get_by_role("button", name="Pause").is_disabled()
