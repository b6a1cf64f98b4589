"""A real JupyterLab with a real chromium before it, for the benchmark of the views and the tests of them.

The server has folders of its own for settings, data (what is trusted) and workspaces, so that a user's are neither read nor written.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).parent.parent
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
FLAGS += ["--disable-component-update", "--disable-sync"]
TOKEN = "lab"
_SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyter-widgets/jupyterlab-manager/plugin": {"saveState": True},  # of widgets, into the notebook; not what a user begins with
    "@jupyterlab/apputils-extension/themes": {
        "adaptive-theme": True,
        "preferred-light-theme": "JupyterLab Light",
        "preferred-dark-theme": "JupyterLab Dark",
    },
}


def chromium() -> str | None:
    """The browser: CHROMIUM, or what is installed."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, names) if path), None)


def write_notebook(path: Path, *sources: str) -> Path:
    """A notebook of code cells that was never executed."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return path


class Server:
    """JupyterLab on the notebooks of ``folder``. ``serving`` starts it."""

    def __init__(self, folder: Path, port: int, environment: dict[str, str]) -> None:
        self.folder, self.environment = folder, environment
        self.address = f"http://127.0.0.1:{port}"

    def is_up(self) -> bool:
        """Whether it answers."""
        try:
            with urllib.request.urlopen(f"{self.address}/api/status?token={TOKEN}", timeout=5):
                return True
        except (urllib.error.URLError, TimeoutError):
            return False

    def trust(self, notebook: Path) -> None:
        """As ``jupyter trust``: its outputs are this user's own."""
        subprocess.run([sys.executable, "-m", "jupyter", "trust", notebook], check=True, env=self.environment, capture_output=True)


@contextmanager
def serving(folder: Path, home: Path) -> Iterator[Server]:
    """A server on ``folder`` that keeps its own things in ``home``. Raises RuntimeError, with its log, where it does not start."""
    names = ("DATA", "CONFIG", "RUNTIME")
    folders = {f"JUPYTER_{name}_DIR": str(home / name.lower()) for name in names}
    folders |= {f"JUPYTERLAB_{name}_DIR": str(home / name.lower()) for name in ("SETTINGS", "WORKSPACES")}
    for name, values in _SETTINGS.items():
        file = home / "settings" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    environment = {**os.environ, **folders, "JUPYTER_PREFER_ENV_PATH": "1", "PYTHONPATH": str(ROOT)}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(folder, free.getsockname()[1], environment)
    port = server.address.rpartition(":")[2]
    options = ["--no-browser", "--allow-root", f"--port={port}", "--ServerApp.port_retries=0", f"--IdentityProvider.token={TOKEN}"]
    command = [sys.executable, "-m", "jupyter", "lab", *options, f"--ServerApp.root_dir={folder}", "--LabApp.expose_app_in_browser=True"]
    log = home / "lab.log"
    with open(log, "w") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=folder)
    try:
        _wait_for(server, process, log)
        yield server
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(server: Server, process: subprocess.Popen[bytes], log: Path, seconds: float = 90.0) -> None:
    end = time.monotonic() + seconds
    while not server.is_up():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}")
        time.sleep(0.2)


class Notebook:
    """A notebook open in JupyterLab. ``page``: of playwright."""

    def __init__(self, page: Any, server: Server, name: str) -> None:
        self.page, self._server, self._name = page, server, name
        self.open()

    def open(self) -> None:
        """Load it, or load it again, and wait for its cells and its kernel."""
        self.page.goto(f"{self._server.address}/lab/tree/{self._name}?token={TOKEN}&reset")
        self.page.wait_for_selector(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell", timeout=60_000)
        status = "jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status"
        self.page.wait_for_function(f"['idle', 'busy'].includes({status})", timeout=60_000)

    def do(self, command: str) -> None:
        """One of JupyterLab's commands, without waiting for its end."""
        self.page.evaluate("(name) => void jupyterapp.commands.execute(name)", command)

    def save(self) -> None:
        """Write it to its file, outputs and the state of widgets included."""
        self.page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")

    def run(self, *cells: int, wait: bool = True) -> None:
        """Execute cells by their number, one after the other; ``wait`` for their end."""
        for cell in cells:
            self.page.evaluate("(at) => { jupyterapp.shell.currentWidget.content.activeCellIndex = at }", cell)
            self.do("notebook:run-cell")
        if wait:
            for cell in cells:
                self.done(cell)

    def done(self, cell: int, seconds: float = 120.0) -> None:
        """Wait for the end of a cell."""
        number = "jupyterapp.shell.currentWidget.content.widgets[{}].model.executionState ?? 'idle'"
        count = f"jupyterapp.shell.currentWidget.content.widgets[{cell}].model.executionCount"
        self.page.wait_for_function(f"{count} !== null && ({number.format(cell)}) === 'idle'", timeout=1e3 * seconds)

    def view(self, name: str) -> Any:
        """The live view of that name, once it is drawn."""
        found = self.page.locator(f'[data-wb-view="{name}"][data-ready="1"]').first
        found.wait_for(timeout=60_000)
        return found

    def texts(self, cell: int) -> Sequence[str]:
        """What a cell has printed and shown, in words."""
        found: list[str] = self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-OutputArea-output").all_text_contents()
        return found
