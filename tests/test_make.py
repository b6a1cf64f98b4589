"""The Makefile: when it sets up and for what, and that ``make lab`` opens the right thing."""

import json
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tests import conftest

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PYTEST = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]


def program(path: Path, text: str) -> Path:
    """A shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def clone(tmp_path):
    """A folder that looks to make like a clone with a finished set-up for the CPU."""
    for name in ("Makefile", "uv.lock", "pyproject.toml", "scripts/bootstrap.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
        os.utime(tmp_path / name, (1e9, 1e9))
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv/.ready-cpu").write_text("")
    return tmp_path


def make(folder: Path, *arguments: str, path: str = os.environ["PATH"]) -> subprocess.CompletedProcess:
    environment = {"PATH": path, "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(["make", *arguments], cwd=folder, capture_output=True, text=True, env=environment, check=False)


def test_a_second_start_sets_nothing_up(clone):
    begin = time.perf_counter()
    assert make(clone, "-n", "demo").stdout == ".venv/bin/workbench run recipes/quickstart.ipynb \n"
    assert time.perf_counter() - begin < 1


@pytest.mark.parametrize("changed", ["uv.lock", "pyproject.toml", "scripts/bootstrap.py"])
def test_a_change_sets_up_again(clone, changed):
    (clone / changed).touch()
    later = time.time() + 5
    os.utime(clone / changed, (later, later))
    assert "bootstrap.py --extra cpu" in make(clone, "-n", "test").stdout


def test_the_extra_follows_nvidia_smi(clone, tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    with_gpu = f"{tools}:{os.environ['PATH']}"
    smi = program(tools / "nvidia-smi", "echo 'GPU 0: NVIDIA H200'")
    assert "--extra" not in make(clone, "-n", "setup", path=with_gpu).stdout  # what is installed stays
    (clone / ".venv/.ready-cpu").unlink()
    assert "--extra gpu --python python3 --stamp .venv/.ready-gpu" in make(clone, "-n", "setup", path=with_gpu).stdout
    assert "--extra cpu" in make(clone, "-n", "setup", "EXTRA=cpu", path=with_gpu).stdout
    program(smi, "echo 'NVIDIA-SMI has failed'; exit 9")
    assert "--extra cpu" in make(clone, "-n", "setup", path=with_gpu).stdout


def test_bytecode_is_kept(clone):
    shown = make(clone, "--eval=show: ; @env", "show").stdout
    assert "HOME=" in shown
    assert "PYTHONDONTWRITEBYTECODE" not in shown


def test_help_names_the_three_commands(clone):
    assert {"make demo", "make test", "make lab"} <= set(re.findall(r"make \w+", make(clone).stdout))


def test_ci_runs_the_command_of_the_readme():
    commands = [line for line in (ROOT / ".ci/run").read_text().splitlines() if line and not line.startswith("#")]
    assert commands == ["set -euo pipefail", 'cd "$(dirname "$0")/.."', "rm -rf .venv", "make test"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


# ---------------------------------------------------------------- make test


def test_tests_run_in_two_processes_file_by_file(clone):
    flags = "-n auto --dist loadfile --no-loadscope-reorder"
    assert make(clone, "-n", "test").stdout == f".venv/bin/python -m pytest {flags} \n"
    assert make(clone, "-n", "test", "ARGS=-n 0 -k x").stdout == f".venv/bin/python -m pytest {flags} -n 0 -k x\n"  # the last -n counts


@pytest.mark.parametrize(
    ("marks", "capture", "processes"),
    [
        (PYTEST["addopts"].split("'")[1], "fd", 2),  # the default
        ("gpu", "fd", 0),
        ("browser", "fd", 0),
        ("long", "fd", 0),
        ("not browser", "fd", 0),
        ("not gpu", "no", 0),
    ],
)
def test_who_shares_a_gpu_a_browser_or_the_terminal_has_one(marks, capture, processes):
    options = SimpleNamespace(option=SimpleNamespace(markexpr=marks, capture=capture))
    assert conftest.pytest_xdist_auto_num_workers(options) == processes


def test_the_files_that_come_first_are_there():
    names = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(conftest.LONGEST) <= names


# ---------------------------------------------------------------- make lab


@pytest.fixture
def lab(tmp_path):
    """The server of ``make lab``, without a browser, for a user who has a broken kernel called python3. Gives (process, ask)."""
    shown = (
        make(ROOT, "-n", "lab", f"VENV={BIN.parent}", "-o", f"{BIN.parent}/.ready-cpu", "EXTRA=cpu")
        .stdout.splitlines()[-1]
        .replace(" exec ", " ", 1)
    )
    broken = tmp_path / "data/kernels/python3"
    broken.mkdir(parents=True)
    (broken / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "broken", "language": "python"}))
    subprocess.run(
        [sys.executable, "-c", f"import bootstrap, pathlib; bootstrap.quiet_lab(pathlib.Path({str(tmp_path)!r}))"],
        cwd=ROOT / "scripts",
        check=True,
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f" --no-browser --port={port} --IdentityProvider.token=t --LabApp.app_settings_dir={tmp_path}/share/jupyter/lab/settings"
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name.lower()) for name in ("DATA", "CONFIG", "RUNTIME")}
    with open(tmp_path / "lab.log", "w") as log:
        process = subprocess.Popen("exec env " + shown + flags, shell=True, cwd=ROOT, env={**os.environ, **folders}, stdout=log, stderr=log)

    def ask(path: str, data: bytes | None = None) -> object:
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data=data, headers={"Authorization": "token t"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    try:
        for _ in range(240):
            try:
                ask("/api/status")
                break
            except urllib.error.URLError:
                assert process.poll() is None, (tmp_path / "lab.log").read_text()
                time.sleep(0.25)
        yield process, ask
    finally:
        process.terminate()
        process.wait(20)


def test_lab_opens_the_notebooks_with_this_interpreter(lab):
    process, ask = lab
    assert {"recipes", "notebooks"} <= {entry["name"] for entry in ask("/api/contents/")["content"]}
    assert ask("/api/kernelspecs")["default"] == "python3"
    ask("/api/kernels", data=b'{"name": "python3"}')
    commands = [child.cmdline() for child in psutil.Process(process.pid).children()]
    (kernel,) = [command for command in commands if "ipykernel_launcher" in command]
    assert Path(kernel[0]) == Path(sys.executable)
    settings = ask("/lab/api/settings/@jupyterlab/apputils-extension:notification")
    assert settings["schema"]["properties"]["fetchNews"]["default"] == "false"
    assert "--LabApp.default_url=/lab/tree/notebooks" in process.args
