"""Headless runs, each with a real kernel: how it ends is told by the exit code and by the notebook that stays."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest

from workbench.errors import ConfigError
from workbench.headless.kernel import Guard, Screen
from workbench.headless.notebook import Exit, check_output, default_output, read_notebook, run_notebook

PARAMETERS = "steps = 3  # how many\ndevice_map: str | None = None"
SLEEP = "import time\nprint('asleep', flush=True)\ntime.sleep(60)"
SWALLOW = "try:\n    time.sleep(60)\nexcept KeyboardInterrupt:\n    print('no matter')"


def notebook(path: Path, *sources: str, kernelspec: dict | None = None) -> Path:
    """A notebook of a heading, a parameters cell and ``sources``."""
    cells = [nbformat.v4.new_markdown_cell("# Test"), *(nbformat.v4.new_code_cell(source) for source in (PARAMETERS, *sources))]
    cells[1].metadata.tags = ["parameters"]
    made = nbformat.v4.new_notebook(cells=cells)
    if kernelspec is not None:
        made.metadata.kernelspec = kernelspec
    nbformat.write(made, path)
    return path


def cells_of(path: Path) -> list:
    """The code cells of an executed notebook; the file is valid."""
    made = nbformat.read(path, as_version=4)
    nbformat.validate(made)
    return [cell for cell in made.cells if cell.cell_type == "code"]


def statuses(path: Path) -> list[str]:
    return [cell.metadata.papermill.status for cell in cells_of(path)]


def start(folder: Path, *arguments: str, **environment: str) -> subprocess.Popen:
    """``workbench run`` as a user starts it."""
    command = [str(Path(sys.executable).parent / "workbench"), "run", *arguments]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )


def test_a_run_from_where_the_user_stands(tmp_path):
    here = "import json, os, sys\njson.dump([steps, os.getcwd(), sys.executable], open('seen.json', 'w'))\nprint('stepped', steps)"
    # Neither the notebook's kernel nor any installed specification counts.
    (tmp_path / "in {braces}").mkdir()
    source = notebook(
        tmp_path / "in {braces}" / "n.ipynb", here, "1 + 1", kernelspec={"name": "gone", "language": "python", "display_name": "Gone"}
    )
    process = start(tmp_path, str(source), "-p", "steps", "5", JUPYTER_PATH="/nonexistent", JUPYTER_NO_CONFIG="1")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert json.loads((tmp_path / "seen.json").read_text()) == [5, str(tmp_path), sys.executable]
    assert out == "stepped 5\n"
    (output,) = (tmp_path / "runs").glob("n-*.ipynb")
    assert re.search(rf"^4 cells in \d+\.\d s\noutput: runs/{output.name}$", err, re.MULTILINE)
    parameters, injected, _, last = cells_of(output)
    assert (parameters.source, injected.source) == (PARAMETERS, "# Parameters\nsteps = 5\n")
    assert last.outputs[0].data["text/plain"] == "2"
    assert statuses(output) == ["completed"] * 4
    assert nbformat.read(source, as_version=4).cells[2].outputs == []


def test_a_notebook_without_kernelspec_and_output_as_it_comes(tmp_path, capfd):
    text = "import sys\nfor i in range(3): print(f'\\rpart {i}', end='', file=sys.stderr)"
    outcome = run_notebook(notebook(tmp_path / "n.ipynb", text), tmp_path / "out.ipynb", {})
    assert (outcome.exit, outcome.cells) == (Exit.OK, 2)
    assert capfd.readouterr().err == "[1/2] steps = 3  # how many\n[2/2] import sys\npart 2\n"
    assert cells_of(outcome.output)[1].outputs[0].text == "part 2"


def test_a_failing_cell(tmp_path):
    source = notebook(
        tmp_path / "n.ipynb", "from workbench.errors import ConfigError\nraise ConfigError('lr=-1', 'it is negative', 'give more')", "2"
    )
    outcome = run_notebook(source, tmp_path / "out.ipynb", {}, quiet=True)
    assert outcome.exit is Exit.FAILED
    assert statuses(outcome.output) == ["completed", "failed", "pending"]
    lines = str(outcome).splitlines()
    assert lines[0] == "cell [2] failed:"
    assert lines[-3:] == ["  ConfigError: lr=-1: it is negative", "    fix: give more", f"output: {tmp_path}/out.ipynb"]
    assert len(lines) <= 17
    assert "\x1b" not in str(outcome)


@pytest.mark.parametrize(("code", "exit_code"), [("0", Exit.OK), ("3", Exit.FAILED)])
def test_sys_exit(tmp_path, code, exit_code):
    source = notebook(tmp_path / "n.ipynb", f"import sys\nsys.exit({code})", "1 / 0")
    assert run_notebook(source, tmp_path / "out.ipynb", {}, quiet=True).exit is exit_code


@pytest.mark.parametrize("source", [SLEEP, f"import time\n{SWALLOW}"], ids=["sleeps", "swallows"])
def test_time_limit_over_all_cells(tmp_path, source):
    begin = time.monotonic()
    outcome = run_notebook(notebook(tmp_path / "n.ipynb", source, "2"), tmp_path / "out.ipynb", {}, timeout=3, quiet=True)
    assert outcome.exit is Exit.TIMEOUT
    assert time.monotonic() - begin < 15
    assert outcome.error == "cell [2] stopped: the notebook's time limit of 3 s was reached in this cell"
    assert statuses(outcome.output) == ["completed", "failed", "pending"]
    assert cells_of(outcome.output)[1].outputs[-1].ename == "TimeoutError"


def test_a_cell_that_ignores_the_interrupt_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("workbench.headless.kernel.GRACE", 1.0)
    source = f"import time\nwhile True:\n    {SWALLOW.replace(chr(10), chr(10) + '    ')}"
    outcome = run_notebook(notebook(tmp_path / "n.ipynb", source), tmp_path / "out.ipynb", {}, timeout=3, quiet=True)
    assert outcome.exit is Exit.TIMEOUT
    assert outcome.seconds < 15


def test_a_dead_kernel(tmp_path):
    outcome = run_notebook(
        notebook(tmp_path / "n.ipynb", "import os\nos.kill(os.getpid(), 9)", "2"), tmp_path / "out.ipynb", {}, quiet=True
    )
    assert outcome.exit is Exit.KERNEL_DIED
    assert outcome.error.startswith("cell [2] failed:\n  DeadKernelError: the kernel ended by signal SIGKILL in this cell")
    assert statuses(outcome.output) == ["completed", "failed", "pending"]


def test_a_kernel_that_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    outcome = run_notebook(notebook(tmp_path / "n.ipynb", "1"), tmp_path / "out.ipynb", {}, quiet=True)
    assert outcome.exit is Exit.KERNEL_DIED
    assert "the kernel did not start" in outcome.error
    assert "see why `/bin/false -m ipykernel_launcher` fails" in outcome.error


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_a_readable_notebook(tmp_path, number, code):
    process = start(tmp_path, str(notebook(tmp_path / "n.ipynb", SLEEP, "2")), "-o", "out.ipynb")
    assert process.stdout.readline() == "asleep\n"
    begin = time.monotonic()
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code
    assert time.monotonic() - begin < 10
    assert f"cell [2] stopped: {number.name} stopped the notebook in this cell" in err
    assert statuses(tmp_path / "out.ipynb") == ["completed", "failed", "pending"]
    _, stopped, _ = cells_of(tmp_path / "out.ipynb")
    assert [output.output_type for output in stopped.outputs] == ["stream", "error"]


def test_the_bar_on_a_terminal(tmp_path):
    import fcntl
    import pty
    import struct
    import termios

    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    text = "import sys, time\nprint('whole line')\nprint('\\rhalf done', end='', file=sys.stderr, flush=True)\ntime.sleep(2)"
    source = notebook(tmp_path / "n.ipynb", text)
    command = [str(Path(sys.executable).parent / "workbench"), "run", str(source), "-o", str(tmp_path / "out.ipynb")]
    process = subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave)
    os.close(slave)
    shown = b""
    while chunk := _read(master):
        shown += chunk
    assert process.wait() == 0
    assert re.search(rb"1/2 cells \d\d:\d\d  half done", shown)
    assert b"whole line\r\n" in shown
    assert re.search(rb"1/2 cells \d\d:\d\d \|[^|]*\| import sys, time", shown)
    assert re.search(rb"2/2 cells", shown)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # the other end is closed
        return b""


def test_a_log_shows_a_rewritten_line_now_and_then(monkeypatch, capsys):
    monkeypatch.setattr("workbench.headless.kernel.QUIET", 0.0)
    screen = Screen(1)
    screen.stream("stderr", "\r 10 %")
    screen.stream("stderr", "\r 20 %")
    assert capsys.readouterr().err == " 10 %\n 20 %\n"


def test_guard_kills_at_the_second_signal():
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal, time\nsignal.signal(2, lambda *_: None)\nprint(flush=True)\ntime.sleep(60)"],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    process.stdout.readline()
    with Guard(None) as guard:
        guard.group = process.pid
        guard.stop("SIGINT")
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        guard.stop("SIGINT")
        assert process.wait(10) == -signal.SIGKILL


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, r"it can't be read \(No such file"),
        ("{", "it is no notebook"),
        ("[]", "it is no notebook"),
        ('{"cells": 1, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}', "it is no notebook"),
        (
            '{"cells": [], "metadata": {"kernelspec": {"name": "ir", "language": "R"}}, "nbformat": 4, "nbformat_minor": 5}',
            "its language is 'R'",
        ),
    ],
)
def test_input_that_can_not_be_run(tmp_path, text, problem):
    path = tmp_path / "n.ipynb"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=problem):
        read_notebook(path)


def test_output_paths(tmp_path):
    source = notebook(tmp_path / "n.ipynb")
    assert re.fullmatch(r"runs/n-\d{8}-\d{6}.ipynb", str(default_output(source)))
    with pytest.raises(ConfigError, match="that is the notebook itself"):
        check_output(source, source)
    with pytest.raises(ConfigError, match="it can't be written"):
        check_output(source / "below-a-file.ipynb", source)
    check_output(tmp_path / "new" / "folder" / "out.ipynb", source)
