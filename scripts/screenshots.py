"""The pictures of the live views in docs/images: a real run on four CPU slots in JupyterLab, by a chromium, light and dark.

    python -m scripts.screenshots [--out FOLDER] [--replay RUN_FOLDER]

``--replay``: the last steps of a finished run instead, from its folder.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.lab import FLAGS, Notebook, Server, chromium, serving, write_notebook

RUN = """\
import workbench as wb

devices = wb.DeviceMap(actor="0-1", critic="share:actor", rollout="2", reference="3", reward="cpu")
task = wb.tasks.sorting()
run = wb.Run(devices, topology=wb.Topology.cpu(slots=4), model="tiny", algo=wb.PPO(), task=task, name="watched", load_hz=4)
run.watch()"""
START = "run.start(40)\nrun.wait(until_step=25)"
REPLAY = "import workbench as wb\n\nrun = wb.Run.load({folder!r})\nrun.watch()"
VIEWS = ("topology", "load", "timeline", "curves", "samples")
WIDTH, HEIGHT = 1280, 3600


def take(browser: Any, server: Server, name: str, target: Path, *, dark: bool, live: bool) -> None:
    """Run the notebook ``name``, and write a picture of the board and one of each view beside it."""
    scheme = "dark" if dark else "light"
    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme=scheme, device_scale_factor=1.5)
    notebook = Notebook(page, server, name)
    notebook.do("application:toggle-left-area")
    notebook.run(0)
    if live:
        notebook.run(1, wait=False)
        notebook.done(1, seconds=500)
    page.wait_for_timeout(1500)
    for view in (*VIEWS, *(["knobs"] if live else [])):
        notebook.view(view).screenshot(path=target / f"{view}-{scheme}.png")
    page.locator(".jp-OutputArea-child").first.screenshot(path=target / f"board-{scheme}.png")
    page.close()


def main() -> None:
    """Parse, serve, take."""
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--replay", type=Path)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    cells = [REPLAY.format(folder=str(arguments.replay.resolve()))] if arguments.replay else [RUN, START, "run.close()"]
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        folder = Path(home) / "notebooks"
        folder.mkdir()
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        with serving(folder, Path(home)) as server:
            for dark in (False, True):
                name = f"watched-{int(dark)}.ipynb"
                write_notebook(folder / name, *cells)
                take(browser, server, name, arguments.out, dark=dark, live=not arguments.replay)
        browser.close()


if __name__ == "__main__":
    main()
