"""Progress bars of a run for a cell or a terminal, drawn by the thread that waits, never by the one that trains."""

import queue
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from workbench.events import Event, EventLog
from workbench.records import Progress

TITLES = {"model": "model", "warm_start": "warm start", "engine": "engine", "held_out": "held out", "steps": "steps"}


class Bars:
    """One tqdm bar for each kind of wait, made when the wait begins and finished when it is over."""

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}
        self._finished: tuple[str, float] | None = None  # the last bar that came to its end
        # into a file or a pipe, every refresh is one more line; notebooks and terminals draw over the last one
        self._pause = 0.0 if sys.stdout.isatty() or "ipykernel" in sys.modules else 10.0
        self._drawn = -self._pause

    def show(self, event: Event) -> None:
        """Draw ``event`` if it is progress; write it down if it is a notice."""
        from tqdm import tqdm

        if words := told(event):
            tqdm.write(words, file=sys.stdout)  # between the bars
        record = event.record if event.kind == "progress" else None
        if not isinstance(record, Progress) or (record.what == "steps" and not record.note):
            return  # the bar of the steps comes with the first
        if (record.what, record.total) == self._finished and record.done >= record.total:
            return  # an afterword
        bar = self._bars.get(record.what)
        if bar is None:
            form = "{desc} {bar:24} {n:.0f}/{total:.0f} {elapsed}{postfix}"
            title = f"{TITLES.get(record.what, record.what):>10}"
            # on stdout: a notebook paints what comes on stderr red
            bar = self._bars[record.what] = tqdm(total=record.total, desc=title, bar_format=form, file=sys.stdout)
        bar.total, bar.n = record.total, record.done
        bar.set_postfix_str(record.note, refresh=False)
        self._finished = None
        if record.done < record.total:
            if time.monotonic() - self._drawn >= self._pause:
                bar.refresh()
                self._drawn = time.monotonic()
        else:
            bar.close()
            del self._bars[record.what]
            self._finished = (record.what, record.total)

    def make_way(self) -> None:
        """Clear the line, so that what a caller prints has it to itself; the next progress draws the bar again."""
        for bar in self._bars.values():
            bar.clear()

    def close(self) -> None:
        """Leave unfinished bars as they are."""
        for bar in self._bars.values():
            bar.close()
        self._bars.clear()


def told(event: Event) -> str:
    """What of ``event`` is worth a line of its own; "" of most."""
    if event.kind == "notice":
        return str(event.data["text"])
    if event.kind == "seen" and not event.data["ended"]:
        data = event.data
        return f"{data['severity']} {data['code']}, {data['title']}: {data['found']}\n  fix: {data['fix']}"
    return ""


@contextmanager
def progress(log: EventLog) -> Iterator[Bars]:
    """Within: draw progress as it is recorded. For a caller that trains in its own thread."""
    bars = Bars()
    leave = log.subscribe(bars.show, replay=False)
    try:
        yield bars
    finally:
        leave()
        bars.close()


def follow(log: EventLog, goes_on: Callable[[], bool], timeout: float | None) -> None:
    """While ``goes_on()``, at most ``timeout`` seconds: draw here the progress that another thread records."""
    bars, waiting = Bars(), queue.SimpleQueue[Event]()
    leave = log.subscribe(waiting.put, replay=False)
    end = None if timeout is None else time.monotonic() + timeout
    try:
        while goes_on() and (end is None or time.monotonic() < end):
            time.sleep(0.05)
            while not waiting.empty():
                bars.show(waiting.get())
    finally:
        leave()
        bars.close()


def at_next_cell(text: str) -> None:
    """In a notebook, write ``text`` under the cell that runs next, or now; from a thread nothing may print by itself."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return

    def tell(*_: object) -> None:
        shell.events.unregister("post_run_cell", tell)
        print(text, file=sys.stderr)

    shell.events.register("post_run_cell", tell)
