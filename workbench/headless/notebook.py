"""Run a notebook with no front end: papermill, on the interpreter that runs this, with exit codes that tell what happened.

What papermill does not do by itself, each seen to matter: the kernel is this interpreter whatever the notebook or the
machine's kernel specifications say; a time limit holds for the whole notebook; a limit, a signal or a dead kernel leaves
a notebook that says so in the cell where it happened; what a cell prints appears while it runs.
"""

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import IntEnum
from pathlib import Path
from typing import Any

import nbformat
from papermill.engines import papermill_engines
from papermill.exceptions import PapermillExecutionError
from papermill.execute import execute_notebook

from workbench.errors import ConfigError
from workbench.headless.kernel import Engine, Guard, KernelStartError, Screen


class Exit(IntEnum):
    """Exit codes of the command line."""

    OK = 0
    FAILED = 1  # a cell failed, or findings of severity error
    USAGE = 2  # unusable options or input
    TIMEOUT = 3
    KERNEL_DIED = 4
    INTERRUPTED = 130  # SIGINT
    TERMINATED = 143  # SIGTERM


@dataclass(frozen=True)
class Outcome:
    """How a headless run ended."""

    exit: Exit
    output: Path  # the executed notebook
    seconds: float
    cells: int  # code cells that ran to their end
    error: str = ""  # what to show of the failure, several lines

    def __str__(self) -> str:
        first = f"{self.cells} cells in {self.seconds:.1f} s" if self.exit is Exit.OK else self.error
        return f"{first}\noutput: {self.output}"


def read_notebook(path: Path) -> nbformat.NotebookNode:
    """The notebook at ``path``. Raises ConfigError where it can't be read, is no notebook, or is not in Python."""
    try:
        notebook = nbformat.read(path, as_version=4)
        _name_kernel(notebook)
        nbformat.validate(notebook, relax_add_props=True)  # more than the format knows does no harm: ids of cells in an older one
        _check_outputs(notebook)
    except OSError as error:
        raise ConfigError(f"notebook {path}", f"it can't be read ({error.strerror})", "check the path") from error
    except Exception as error:  # of a file that is no notebook nbformat raises whatever it stumbles over
        found = f"it is no notebook ({_first_line(error)})"
        raise ConfigError(f"notebook {path}", found, "open it in JupyterLab to see") from error
    language = notebook.metadata.get("kernelspec", {}).get("language", "python")
    if language != "python":
        raise ConfigError(f"notebook {path}", f"its language is {language!r}", "only Python notebooks can be run")
    return notebook


def _name_kernel(notebook: nbformat.NotebookNode) -> None:
    """The format wants a name for people; notebooks of some tools have none, and nobody misses it."""
    kernel = notebook.metadata.get("kernelspec")
    if isinstance(kernel, dict) and "name" in kernel:
        kernel.setdefault("display_name", kernel["name"])


def _check_outputs(notebook: nbformat.NotebookNode) -> None:
    """Raise TypeError on an output that is no text: where more is allowed than the format knows, nbformat does not look at those."""
    outputs = (output for cell in notebook.cells for output in cell.get("outputs", ()))
    for mime, content in (pair for output in outputs for pair in output.get("data", {}).items()):
        if not (isinstance(content, str) or mime.endswith("json")):
            raise TypeError(f"an output of {mime} is a {type(content).__name__}")


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:80].strip()


def default_output(notebook: Path, folder: Path = Path("runs")) -> Path:
    """``runs/NAME-TIMESTAMP.ipynb`` where the user stands, beside the run folders that notebooks write."""
    return folder / f"{notebook.stem}-{datetime.now():%Y%m%d-%H%M%S}.ipynb"


def check_output(output: Path, notebook: Path) -> None:
    """Raises ConfigError where the output can't be written, or would overwrite the notebook itself."""
    if output.exists() and output.samefile(notebook):
        raise ConfigError(f"-o {output}", "that is the notebook itself", "name another file; the source stays without outputs")
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with open(output, "a"):
            pass
    except OSError as error:
        raise ConfigError(
            f"output {output}", f"it can't be written ({error.strerror})", "name a file in a folder that you may write, with -o"
        ) from error


def run_notebook(notebook: Path, output: Path, parameters: dict[str, Any], *, timeout: float | None = None, quiet: bool = False) -> Outcome:
    """Execute ``notebook`` into ``output``. ``timeout``: seconds for all of it. Call from the main thread (signals).

    The kernel stands where the caller stands.
    """
    begin = time.monotonic()
    cells = read_notebook(notebook).cells
    guard, screen = Guard(timeout), Screen(sum(cell.cell_type == "code" for cell in cells) + bool(parameters), quiet=quiet)
    papermill_engines.register("workbench", Engine)
    error = ""
    with guard, _signals(guard), screen:
        try:
            execute_notebook(
                _verbatim(notebook),
                _verbatim(output),
                parameters,
                engine_name="workbench",
                kernel_name="python3",
                language="python",
                progress_bar=False,
                guard=guard,
                screen=screen,
            )
        except PapermillExecutionError as failure:
            error = describe(failure, guard)
        except KernelStartError as failure:
            error = str(failure)
    return Outcome(_exit(guard, error), output, time.monotonic() - begin, screen.done, error)


def _exit(guard: Guard, error: str) -> Exit:
    if not error:  # every cell ran, even if a signal came during the kernel's shutdown
        return Exit.OK
    if guard.reason:
        return {"timeout": Exit.TIMEOUT, "SIGINT": Exit.INTERRUPTED, "SIGTERM": Exit.TERMINATED}[guard.reason]
    return Exit.KERNEL_DIED if guard.kernel_died else Exit.FAILED


def _verbatim(path: Path) -> str:
    """papermill formats paths with the parameters; braces in a name are meant as they stand."""
    return str(path).replace("{", "{{").replace("}", "}}")


@contextmanager
def _signals(guard: Guard) -> Iterator[None]:
    """SIGINT and SIGTERM interrupt the cell instead of this process, so that the output notebook gets written."""
    before = {
        number: signal.signal(number, lambda got, _: guard.stop(signal.Signals(got).name)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def describe(failure: PapermillExecutionError, guard: Guard, lines: int = 14) -> str:
    """The failing cell and the end of its traceback, without colours; of a stopped one only why it was stopped."""
    if guard.reason:
        return f"cell [{failure.exec_count}] stopped: {guard.explain(None)[1]}"
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(failure.traceback)).rstrip().splitlines()
    tail = text[-lines:] if text else [f"{failure.ename}: {failure.evalue}"]
    return f"cell [{failure.exec_count}] failed:\n" + "\n".join(f"  {line}" for line in tail)
