"""papermill's engine for ``workbench run``: this interpreter's kernel, a guard that can stop it, a screen that shows it.

Kept apart from ``headless`` because it is all mechanism: it knows papermill's and nbclient's classes.
"""

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from typing import Any, TextIO

import zmq
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellExecutionError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from papermill.clientwrap import PapermillNotebookClient
from papermill.engines import Engine as PapermillEngine
from papermill.engines import NotebookExecutionManager
from tqdm import tqdm

QUIET = 10.0  # seconds without a line, after which a log shows how far a cell's own progress bar is
GRACE = 15.0  # seconds that an interrupted cell has to end before its kernel is killed


class KernelStartError(RuntimeError):
    """The kernel did not start."""


class Guard:
    """Stops the kernel: on a time limit, on a signal. First an interrupt, as Jupyter's stop button; then a kill.

    ``reason`` is empty, "timeout", or the signal's name; ``kernel_died`` says that it ended by itself.
    """

    def __init__(self, timeout: float | None) -> None:
        self.reason, self.kernel_died, self.timeout = "", False, timeout
        self.group = 0  # of the kernel's processes; 0 while it does not run
        self._timers: list[threading.Timer] = []

    def __enter__(self) -> "Guard":
        if self.timeout is not None:
            self._after(self.timeout, self.stop, "timeout")
        return self

    def __exit__(self, *_: object) -> None:
        for timer in self._timers:
            timer.cancel()

    def stop(self, reason: str) -> None:
        """Interrupt the running cell; the second call kills the kernel. Safe in a signal handler and in any thread."""
        if self.reason:
            self._send(signal.SIGKILL)
            return
        self.reason = reason
        self._send(signal.SIGINT)
        self._after(GRACE, self._send, signal.SIGKILL)

    def explain(self, code: int | None) -> tuple[str, str]:
        """Name and text of the error that the stopped cell shows; ``code``: the kernel's exit status, None while it lives."""
        if self.reason == "timeout":
            return "TimeoutError", f"the notebook's time limit of {self.timeout:g} s was reached in this cell"
        if self.reason:
            return "KeyboardInterrupt", f"{self.reason} stopped the notebook in this cell"
        how = f"by signal {signal.Signals(-code).name}" if code and code < 0 else f"with exit status {code}"
        memory = "; SIGKILL is often the machine's answer to too little memory" if code == -signal.SIGKILL else ""
        return "DeadKernelError", f"the kernel ended {how} in this cell{memory}"

    def _send(self, number: int) -> None:
        if self.group:
            with suppress(ProcessLookupError):
                os.killpg(self.group, number)

    def _after(self, seconds: float, call: Any, *args: Any) -> None:
        timer = threading.Timer(seconds, call, args)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()


class Screen:
    """What the terminal shows: a bar over the cells, and above it what the cells print, as they print it.

    Without a terminal there is no bar, only the lines. A line that a cell rewrites with ``\\r``, a progress bar of its own,
    takes the place of the bar; without a terminal it is printed now and then.
    """

    BAR = "{n_fmt}/{total_fmt} cells {elapsed} |{bar}| {desc}"
    CELL_BAR = "{n_fmt}/{total_fmt} cells {elapsed}  {desc}"

    def __init__(self, cells: int, *, quiet: bool = False) -> None:
        self.done, self._quiet, self._written = 0, quiet, time.monotonic()
        self._open, self._first = {"stdout": "", "stderr": ""}, ""
        self._bar = tqdm(total=cells, file=sys.stderr, disable=True if quiet else None, bar_format=self.BAR)
        self._closing = threading.Event()

    def __enter__(self) -> "Screen":
        threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._show(self.BAR, "")
        self._bar.close()

    def _show(self, look: str, text: str) -> None:
        self._bar.bar_format = look
        self._bar.set_description_str(text)

    def _tick(self) -> None:
        """The clock goes on in a cell that prints nothing."""
        while not self._bar.disable and not self._closing.wait(1):
            self._bar.refresh()

    def cell(self, source: str) -> None:
        """A cell starts."""
        first = next((line.strip() for line in source.splitlines() if line.strip()), "")
        self._first = first[:40]
        self._show(self.BAR, self._first)
        if self._bar.disable and not self._quiet:
            print(f"[{self.done + 1}/{self._bar.total}] {first[:100]}", file=sys.stderr, flush=True)

    def cell_ended(self, ok: bool) -> None:
        """It has ended; text without a final newline is printed now."""
        for name, rest in self._open.items():
            self._open[name] = ""
            if rest.strip():
                self._line(rest, name)
        if ok:
            self.done += 1
            self._bar.update()

    def stream(self, name: str, text: str) -> None:
        """Text that the running cell printed on ``name`` ("stdout" or "stderr")."""
        *lines, self._open[name] = (self._open[name] + text).split("\n")
        for line in lines:
            self._line(line, name)
        rest = _last_rewrite(self._open[name])
        if rest and self._bar.disable and time.monotonic() - self._written > QUIET:
            self._line(rest, name)
        self._show(self.CELL_BAR if rest else self.BAR, rest.strip() or self._first)

    def _line(self, line: str, name: str) -> None:
        self._written = time.monotonic()
        if not self._quiet:
            file: TextIO = sys.stdout if name == "stdout" else sys.stderr
            tqdm.write(_last_rewrite(line), file=file)
            file.flush()


def _last_rewrite(line: str) -> str:
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


class _ThisInterpreter(KernelSpecManager):
    """Whatever name is asked for, the kernel is the Python that runs this."""

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        argv = [sys.executable, "-Xfrozen_modules=off", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        return KernelSpec(argv=argv, display_name="Python 3 (ipykernel)", language="python", metadata={"supported_encryption": ["curve"]})


class _Client(PapermillNotebookClient):
    """papermill's client, with the guard and the screen."""

    def __init__(self, manager: NotebookExecutionManager, guard: Guard, screen: Screen) -> None:
        # A loaded machine may bring a cell's last output late; 4 s, the default, fails the notebook for it.
        super().__init__(manager, kernel_name="python3", iopub_timeout=60, coalesce_streams=True)
        self.guard, self.screen = guard, screen

    def create_kernel_manager(self) -> AsyncKernelManager:
        encryption = "auto" if zmq.has("curve") else "disabled"
        self.km = AsyncKernelManager(kernel_name="python3", kernel_spec_manager=_ThisInterpreter(), transport_encryption=encryption)
        return self.km

    def execute(self, **kwargs: Any) -> NotebookNode:
        """Start the kernel, run the cells, end the kernel. Raises KernelStartError where it does not start."""
        self.reset_execution_trackers()
        try:
            with self.setup_kernel(**kwargs):
                self.guard.group = self.km.provisioner.pgid
                info = self.wait_for_reply(self.kc.kernel_info())
                self.nb.metadata["language_info"] = info["content"]["language_info"]
                self.papermill_execute_cells()
        except RuntimeError as error:
            if self.guard.group:
                raise
            self.guard.kernel_died = True
            raise KernelStartError(
                f"the kernel did not start: {error}\n  fix: see why `{sys.executable} -m ipykernel_launcher` fails"
            ) from error
        finally:
            self.guard.group = 0
        return self.nb

    def papermill_execute_cells(self) -> None:
        for index, cell in enumerate(self.nb.cells):
            self.nb_man.cell_start(cell, index)
            ok = cell.cell_type != "code" or self._run(cell, index)
            if not ok:
                self.nb_man.cell_exception(cell, cell_index=index)
            self.nb_man.cell_complete(cell, cell_index=index)
            if not ok:
                break

    def _run(self, cell: NotebookNode, index: int) -> bool:
        """Whether the cell ran to its end; a failure is in its outputs."""
        self.screen.cell(cell.source)
        ok = failed = False
        try:
            if not self.guard.reason:
                self.execute_cell(cell, index)
                ok = not self.guard.reason  # a cell may have swallowed the interrupt
        except CellExecutionError:
            failed = True
        except DeadKernelError:
            self.guard.kernel_died = not self.guard.reason
        self.screen.cell_ended(ok)
        if not ok and cell.execution_count is None:  # the kernel died before it could say its number
            cell.execution_count = sum(earlier.cell_type == "code" for earlier in self.nb.cells[: index + 1])
        # The traceback of a stopped cell, if it left any, says KeyboardInterrupt and not why.
        if not ok and not (failed and self.guard.reason != "timeout"):
            process = self.km.provisioner.process
            name, text = self.guard.explain(process.poll() if process else None)
            cell.outputs = [*cell.get("outputs", []), new_output("error", ename=name, evalue=text, traceback=[f"{name}: {text}"])]
        return ok

    def process_message(self, *args: Any, **kwargs: Any) -> NotebookNode | None:
        output = super().process_message(*args, **kwargs)
        if output and "text/html" in output.get("data", {}):
            # No kernel will stand behind the view: a front end that prefers it would show nothing in place of its static twin.
            output["data"].pop("application/vnd.jupyter.widget-view+json", None)
        if output and output.output_type == "stream":
            self.screen.stream(output.name, output.text)
        return output


class Engine(PapermillEngine):
    """Registered with papermill as "workbench"."""

    @classmethod
    def execute_managed_notebook(cls, nb_man: NotebookExecutionManager, kernel_name: str, **kwargs: Any) -> None:
        _Client(nb_man, kwargs["guard"], kwargs["screen"]).execute()
