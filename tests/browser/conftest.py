"""A real JupyterLab in a real chromium, for the tests of what people see there."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.lab import Notebook, Server, serving, write_notebook

Open = Callable[..., Notebook]


@pytest.fixture(name="server", scope="session")
def server_fixture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One JupyterLab for all of these tests."""
    home = tmp_path_factory.mktemp("lab")
    (home / "notebooks").mkdir()
    with serving(home / "notebooks", home) as server:
        yield server


@pytest.fixture(name="open_page")
def open_page_fixture(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens an empty page, light or dark; fails on any error in it."""
    errors: list[str] = []
    pages = []

    def open_page(*, dark: bool = False) -> Any:
        page = browser.new_page(viewport={"width": 1400, "height": 1000}, color_scheme="dark" if dark else "light")
        page.on("pageerror", lambda error: errors.append(str(error)))
        pages.append(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert errors == []


@pytest.fixture(name="open_file")
def open_file_fixture(server: Server, open_page: Callable[..., Any]) -> Iterator[Callable[..., Notebook]]:
    """Opens a notebook of the server's folder; its kernel ends with the test."""
    opened: list[Notebook] = []

    def open_file(name: str, *, dark: bool = False) -> Notebook:
        opened.append(Notebook(open_page(dark=dark), server, name))
        return opened[-1]

    yield open_file
    for notebook in opened:
        notebook.page.evaluate("() => jupyterapp.serviceManager.sessions.shutdownAll()")


@pytest.fixture(name="open_cells")
def open_cells_fixture(server: Server, open_file: Open, request: pytest.FixtureRequest) -> Open:
    """Opens a new notebook of the given cells."""

    def open_cells(*sources: str, dark: bool = False) -> Notebook:
        name = f"{request.node.originalname}-{'dark' if dark else 'light'}.ipynb"
        write_notebook(server.folder / name, *sources)
        return open_file(name, dark=dark)

    return open_cells
