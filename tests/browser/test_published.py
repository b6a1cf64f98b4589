"""What ``workbench publish`` writes, where it is read: a page without a network, a copy in a JupyterLab that trusts nobody."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.lab import Server, write_notebook
from workbench.headless.notebook import Exit, run_notebook
from workbench.headless.publish import publish

from . import cells
from .conftest import Open

pytestmark = pytest.mark.browser
LOADS = """\
from IPython.display import HTML
HTML('<img src="http://127.0.0.1:9/x.png"><script>document.body.dataset.hurt = 1</script><b>words</b>')"""
SHOWN = "(image) => image.complete && image.naturalWidth > 0 && image.getBoundingClientRect().height > 20"


@pytest.fixture(name="executed", scope="module")
def executed_fixture(server: Server) -> Path:
    """A notebook of all views, and of an output that would load something, executed by papermill."""
    source = write_notebook(server.folder / "published-source.ipynb", cells.WHOLE, cells.BOARD, LOADS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", server.environment["PYTHONPATH"])
        outcome = run_notebook(source, server.folder / "executed.ipynb", {}, quiet=True)
    assert outcome.exit is Exit.OK, outcome
    return outcome.output


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_asks_for_nothing_and_shows_all(executed: Path, open_page: Callable[..., Any], tmp_path: Path, dark: bool) -> None:
    done = publish(executed, tmp_path / "page.html", html=True)
    assert "warning: http://127.0.0.1:9/x.png is not taken in: the page loads nothing" in str(done)
    page, asked = open_page(dark=dark), []
    page.route("**/*", lambda route: (asked.append(route.request.url), route.continue_()))
    page.goto(done.target.as_uri())
    page.wait_for_load_state("load")
    page.wait_for_timeout(300)
    assert [address for address in asked if not address.startswith("data:")] == [done.target.as_uri()]
    assert page.locator("body").get_attribute("data-hurt") is None
    assert page.locator("svg.wb-machine").count() == 3
    assert page.locator("img[src^='data:']").first.evaluate(SHOWN)
    paper = page.locator("svg.wb-machine").first.evaluate("(svg) => getComputedStyle(svg).getPropertyValue('--wb-paper')")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper, ground) == (("#16191d", "rgb(22, 25, 29)") if dark else ("#ffffff", "rgb(255, 255, 255)"))
    assert page.locator("main").inner_text().count("replayed") == 6  # of five views, and in the cell
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_the_copy_has_all_pictures_where_nobody_is_trusted(executed: Path, server: Server, open_file: Open) -> None:
    publish(executed, server.folder / "copy.ipynb")
    notebook = open_file("copy.ipynb")
    notebook.page.wait_for_selector(".jp-OutputArea-output img")
    images = notebook.page.locator(".jp-OutputArea-output.jp-RenderedImage img")
    assert images.count() == 5  # curves, further curves, machine, load, phases
    assert all(image.evaluate(SHOWN) for image in images.all())
    assert notebook.page.locator("[data-wb-view], .jp-OutputArea-output svg").count() == 0
