"""What a notebook keeps of the live views: run without a front end, saved with one, trusted or not."""

from pathlib import Path

import pytest

from benchmarks.lab import Notebook, Server, write_notebook
from workbench.headless.notebook import Exit, run_notebook

from . import cells
from .conftest import Open

pytestmark = pytest.mark.browser
IS_SHOWN = "(image) => image.complete && image.naturalWidth > 0 && image.getBoundingClientRect().height > 20"


def headless(server: Server, name: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The notebook of all views, executed by papermill."""
    monkeypatch.setenv("PYTHONPATH", server.environment["PYTHONPATH"])
    source = write_notebook(server.folder / f"{name}-source.ipynb", cells.WHOLE, cells.BOARD)
    outcome = run_notebook(source, server.folder / f"{name}.ipynb", {}, quiet=True)
    assert outcome.exit is Exit.OK, outcome
    return outcome.output


def shows_twins(notebook: Notebook) -> str:
    """The words of the twins; there is no widget."""
    output = notebook.page.locator(".jp-RenderedHTMLCommon.jp-OutputArea-output").first
    output.wait_for()
    assert notebook.page.locator("[data-wb-view]").count() == 0
    assert "model not found" not in notebook.page.content()
    return str(output.text_content())


def test_papermills_output_not_trusted_has_every_picture(server: Server, open_file: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = open_file(headless(server, "untrusted", monkeypatch).name)
    words = shows_twins(notebook)
    images = notebook.page.locator(".jp-OutputArea-output img")
    assert [image.evaluate(IS_SHOWN) for image in images.all()].count(True) >= 4  # curves, machine, load, phases
    assert notebook.page.locator(".jp-OutputArea-output svg.wb-machine").count() == 0
    assert "replayed" in words
    words_of_drawing = notebook.page.locator(".jp-OutputArea-output div", has=notebook.page.locator("img")).last
    assert words_of_drawing.evaluate("(node) => getComputedStyle(node).fontSize") == "0px"  # they are in the picture


def test_papermills_output_trusted_has_drawings_in_the_pages_colours(
    server: Server, open_file: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = headless(server, "trusted", monkeypatch)
    server.trust(path)
    notebook = open_file(path.name, dark=True)
    shows_twins(notebook)
    drawings = notebook.page.locator(".jp-OutputArea-output svg.wb-machine")
    assert drawings.count() == 3
    assert drawings.first.evaluate("(svg) => getComputedStyle(svg).getPropertyValue('--wb-paper')") == "#16191d"
    assert notebook.page.locator(".wb-machine + img").first.is_hidden()


def test_saved_with_its_widgets_the_twin_is_shown_until_it_is_trusted(server: Server, open_cells: Open, open_file: Open) -> None:
    notebook = open_cells(cells.WHOLE, cells.BOARD)
    notebook.run(0, 1)
    for name in cells.NAMES:
        notebook.view(name)
    notebook.save()
    notebook.page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")
    saved = server.folder / f"{test_saved_with_its_widgets_the_twin_is_shown_until_it_is_trusted.__name__}-light.ipynb"
    copy = server.folder / "from-elsewhere.ipynb"
    copy.write_text(saved.read_text().replace("made.large()", "made.large() "))  # as it would come from another person
    shown = open_file(copy.name)
    shows_twins(shown)
    server.trust(copy)
    trusted = open_file(copy.name)
    for name in cells.NAMES:  # from what is saved: no kernel has the models
        assert trusted.view(name).locator(".wb-badge").text_content() == "replayed"
