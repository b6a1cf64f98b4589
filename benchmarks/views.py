"""How fluid the live views are: a run of 16 GPUs and 1,000 steps, replayed four steps a second in JupyterLab before a chromium.

    python -m benchmarks.views --seconds 60

The run is made up and lies in a folder as a real one does, with phases, samples, and a sample of the load for every step. All but the last
``seconds`` of it are there when the page is opened, so that what grows with a run has grown. Measured: the time between frames, before and
during the replay; updates and bytes for each view, as they come over the websocket; the page's memory; the kernel's CPU time.
"""

import argparse
import dataclasses
import json
import random
import re
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import workbench as wb
from benchmarks.common import RESULTS, write
from benchmarks.lab import FLAGS, Notebook, chromium, serving, write_notebook
from workbench import views
from workbench.errors import ConfigError
from workbench.events import Event, EventLog
from workbench.records import HeldOut, Load, Phase, Progress, Record, RunStarted, Samples, State, Step

PHASES = {"rollout": 0.5, "reward": 0.05, "reference": 0.08, "values": 0.07, "update_critic": 0.1, "update_actor": 0.15, "sync": 0.05}
CELLS = ("from benchmarks.views import Replay\nreplay = Replay({folder!r}, {hz}, {steps})\nreplay.board", "replay.start()", "replay.told()")
FRAMES = """(seconds) => new Promise((done) => {
  const gaps = []; let before = performance.now(); const end = before + 1e3 * seconds;
  const next = (now) => { gaps.push(now - before); before = now; now < end ? requestAnimationFrame(next) : done(gaps.slice(1)); };
  requestAnimationFrame(next);
})"""


# ---------------------------------------------------------------- a run that never was


def write_run(folder: Path, steps: int) -> Path:
    """A run folder with ``steps`` steps on two machines of eight GPUs."""
    folder.mkdir(parents=True)
    ids = list(wb.Topology.preset("2xhgx-h100").ids)
    placement = {"actor": ids[:8], "critic": ids[:4], "rollout": ids[8:], "reference": ids[4:8], "reward": ["cpu:0"]}
    log = EventLog(folder / "events.jsonl")
    log.emit(RunStarted("sixteen", "qwen2.5-7b", {"name": "PPO"}, {"steps": steps}, placement, {}, 0))
    log.emit(Progress("steps", 0, steps))
    log.emit(State("running"))
    log.emit(HeldOut(0, 0.2, 0.02, 200))
    for step in range(1, steps + 1):
        for record, phase in _step(step, ids):
            log.emit(record, phase=phase)
    return folder


def _step(step: int, ids: Sequence[str]) -> Iterator[tuple[Record, str | None]]:
    dice, begin = random.Random(step), float(step)
    for phase, seconds in PHASES.items():
        yield Phase(step, begin, seconds), phase
        begin += seconds
    yield _load(dice, ids), None
    numbers = {field.name: dice.random() for field in dataclasses.fields(Step) if field.name not in ("phase_seconds", "reward_numbers")}
    yield Step(**{**numbers, "step": step, "seconds": 1.0, "phase_seconds": dict(PHASES), "reward_numbers": {"right": dice.random()}}), None
    texts = [f"{step}: {dice.getrandbits(800):x}" for _ in range(4)]
    yield Samples(step, texts, texts, texts, [1.0, 0.0, 1.0, 0.0], [0.5, -0.5, 0.5, -0.5]), None
    yield Progress("steps", step, 1000), None


def _load(dice: random.Random, ids: Sequence[str]) -> Load:
    known = {
        "devices": list(ids),
        "busy": [dice.random() for _ in ids],
        "memory_gib": [40 + 20 * dice.random() for _ in ids],
        "total_gib": [80.0] * len(ids),
        "role_memory_gib": [{"actor": 14.0 + dice.random()}] * len(ids),
        "watts": [300 + 300 * dice.random() for _ in ids],
        "throttled": [""] * len(ids),
    }
    empty: dict[str, Any] = {field.name: [None] * len(ids) for field in dataclasses.fields(Load)}
    return Load(**{**empty, **known, "seconds": 0.25, "missing": {}})


# ---------------------------------------------------------------- in the kernel


class Replay:
    """The run of ``folder`` told again: what came before its last ``steps`` at once, those ``hz`` a second once it is started."""

    def __init__(self, folder: str, hz: float, steps: int) -> None:
        events = wb.Run.load(folder).events
        last = max(event.data["step"] for event in events if event.kind == "step")
        begin = next(at for at, event in enumerate(events) if event.kind == "phase" and event.data["step"] == last - steps + 1)
        self._coming, self._hz, self.log = events[begin:], hz, EventLog()
        for event in events[:begin]:
            self.log.emit(event.record, phase=event.phase)
        self.board = views.board(self.log, wb.Topology.preset("2xhgx-h100"), badge="replayed")
        self._before = self._sizes()
        self._cpu = 0.0

    def start(self) -> dict[str, str]:
        """Go on in a thread. Gives the widget of each view."""
        threading.Thread(target=self._go_on, daemon=True).start()
        return {str(view.model_id): name for name, view in self.board.views.items()}

    def told(self) -> dict[str, Any]:
        """What it took here: CPU seconds, and the size of all synced traits before and after."""
        return {"kernel_cpu_seconds": round(self._cpu, 2), "traits_before": self._before, "traits_after": self._sizes()}

    def _sizes(self) -> dict[str, int]:
        return {name: len(json.dumps(view.get_state(view.keys), default=str)) for name, view in self.board.views.items()}

    def _go_on(self) -> None:
        begun, cpu, shown = time.monotonic(), time.process_time(), 0
        for event in self._coming:
            self._tell(event)
            if event.kind == "progress":  # the last of a step
                shown += 1
                time.sleep(max(0.0, begun + shown / self._hz - time.monotonic()))
                self._cpu = time.process_time() - cpu

    def _tell(self, event: Event) -> None:
        """Again, now. A phase, whose step took a second, has its share of the time between two steps here."""
        record = event.record
        if isinstance(record, Phase):
            begin = time.monotonic() + (record.begin_mono - record.step - 1) / self._hz
            record = dataclasses.replace(record, begin_mono=begin, seconds=record.seconds / self._hz)
        self.log.emit(record, phase=event.phase)


# ---------------------------------------------------------------- before the page


def frames(gaps: Sequence[float]) -> dict[str, Any]:
    """Times between frames in milliseconds."""
    ordered = sorted(gaps)
    at = {f"p{share}": round(ordered[min(len(ordered) - 1, len(ordered) * share // 100)], 1) for share in (50, 95, 99)}
    slow = sum(gap > 50 for gap in gaps)
    return {
        "frames": len(gaps),
        "per_second": round(1e3 * len(gaps) / sum(gaps), 1),
        "ms": {**at, "max": round(ordered[-1], 1)},
        "over_50_ms": slow,
    }


def _sent(message: str) -> float:
    """When the kernel sent a message, in seconds: when it comes here depends on what else runs."""
    date = re.search(r'"date":\s*"([^"]+)"', message)
    return datetime.fromisoformat(date[1]).timestamp() if date else time.time()


class Wire:
    """What the kernel sends to the widgets, by model: when, and how many bytes."""

    def __init__(self, page: Any) -> None:
        self.updates: dict[str, list[tuple[float, int]]] = defaultdict(list)
        page.on("websocket", lambda socket: socket.on("framereceived", self._take))

    def _take(self, frame: bytes | str) -> None:
        text = frame if isinstance(frame, str) else frame.decode(errors="replace")
        found = re.search(r'"comm_id":\s*"(\w+)"', text)
        if found and re.search(r'"method":\s*"update"', text):
            self.updates[found[1]].append((_sent(text), len(frame)))

    def of(self, model: str, begin: float, end: float) -> dict[str, float]:
        """The updates of one view that were sent between two moments of the wall clock: how often, how many bytes."""
        sizes = [size for at, size in self.updates[model] if begin <= at < end] or [0]
        seconds = end - begin
        return {
            "per_second": round(len(sizes) / seconds, 2),
            "bytes_median": round(median(sizes)),
            "bytes_max": max(sizes),
            "bytes_per_second": round(sum(sizes) / seconds),
        }


def memory(page: Any) -> dict[str, float]:
    """The page's heap after a collection, in MiB, and its nodes."""
    tools = page.context.new_cdp_session(page)
    tools.send("HeapProfiler.collectGarbage")
    tools.send("Performance.enable")
    found = {metric["name"]: metric["value"] for metric in tools.send("Performance.getMetrics")["metrics"]}
    tools.detach()
    return {"heap_mib": round(found["JSHeapUsedSize"] / 2**20, 1), "nodes": found["Nodes"], "listeners": found["JSEventListeners"]}


def measured(folder: Path, seconds: float, hz: float, steps: int, shot: str | None) -> dict[str, Any]:
    """Replay it before a chromium, and measure."""
    from playwright.sync_api import sync_playwright

    run = write_run(folder / "run", steps)
    (folder / "notebooks").mkdir()
    live = min(steps - 1, round(hz * (seconds + 5)))
    write_notebook(folder / "notebooks" / "replay.ipynb", *(cell.format(folder=str(run), hz=hz, steps=live) for cell in CELLS))
    with serving(folder / "notebooks", folder) as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page(viewport={"width": 1400, "height": 3600})  # all views are seen, and drawn
        wire = Wire(page)
        notebook = Notebook(page, server, "replay.ipynb")
        notebook.run(0)
        for name in ("curves", "topology", "load", "timeline", "samples"):
            notebook.view(name)
        page.wait_for_timeout(2000)
        idle = frames(page.evaluate(FRAMES, 10))
        notebook.run(1)
        models = json.loads(notebook.texts(1)[0].replace("'", '"'))
        before = memory(page)
        begun = time.time()
        busy = frames(page.evaluate(FRAMES, seconds))
        ended = time.time()
        after = memory(page)
        notebook.run(2)
        if shot:
            page.screenshot(path=shot)
        told = json.loads(notebook.texts(2)[0].replace("'", '"'))
        version = browser.version
        browser.close()
    sent = {name: wire.of(model, begun, ended) for model, name in models.items()}
    return {"chromium": version, "idle": idle, "replay": busy, "updates": sent, "page_before": before, "page_after": after, **told}


def main() -> None:
    """Make the run, replay it, say what was measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--hz", type=float, default=4.0, help="Steps a second.")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--shot", help="A screenshot at the end.")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="views_cpu")
    arguments = parser.parse_args()
    if chromium() is None:
        raise ConfigError("a browser", "there is no chromium", "install one, or name it in the variable CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        figures = measured(Path(folder), arguments.seconds, arguments.hz, arguments.steps, arguments.shot)
    about = {
        "what": "live views of 16 GPUs in JupyterLab, replayed",
        "steps": arguments.steps,
        "hz": arguments.hz,
        "seconds": arguments.seconds,
    }
    write(arguments.name, {**about, **figures}, arguments.out)


if __name__ == "__main__":
    main()
