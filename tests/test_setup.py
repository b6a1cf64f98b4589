"""The set-up: what the pins, the Makefile, the conda files and ``make lab`` promise."""

import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = PROJECT["tool"]["workbench"]
CUDA_PARTS = {"torchvision", "torchaudio", "torchcodec"}  # the lock leaves them out, conda's pip can't


def script(name: str):
    """One of scripts/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


bootstrap = script("bootstrap")


# ---------------------------------------------------------------- pins


def test_the_lock_is_that_of_the_project():
    (ours,) = [package for package in tomllib.loads((ROOT / "uv.lock").read_text())["package"] if package["name"] == "rl-workbench"]
    locked = {(need["name"], need.get("specifier", "")) for need in ours["metadata"]["requires-dist"]}
    extras = PROJECT["project"]["optional-dependencies"].values()
    wanted = [Requirement(text) for text in [*PROJECT["project"]["dependencies"], *(text for extra in extras for text in extra)]]
    assert {(name, SpecifierSet(range_)) for name, range_ in locked} == {(need.name, need.specifier) for need in wanted}


def test_requirements_are_those_of_the_lock():
    done = subprocess.run(
        [sys.executable, "scripts/export_requirements.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def pins_of(extra: str) -> dict[str, str]:
    """name -> version in requirements/, for this Python."""
    lines = [line for line in (ROOT / "requirements" / f"{extra}.txt").read_text().splitlines() if line and not line.startswith("#")]
    needs = [need for need in map(Requirement, lines) if need.marker is None or need.marker.evaluate()]
    return {need.name: str(need.specifier).removeprefix("==") for need in needs}


def test_only_pycosat_must_be_compiled():
    # Packages without a wheel are built by the set-up; another one with C code would need a compiler on every machine.
    lock = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    assert {package["name"] for package in lock if "sdist" in package and not package.get("wheels")} == {"cellpylib", "pycosat", "zss"}


def test_the_cpu_torch_finds_all_it_needs_in_the_lock():
    # It is installed with --no-deps, beside what the lock brings.
    pins = pins_of("cpu")
    needs = [Requirement(text) for text in importlib.metadata.requires("torch") or ()]
    needs = [need for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    assert {"sympy", "networkx", "jinja2"} <= {need.name for need in needs}
    assert [need.name for need in needs if need.name not in pins or not need.specifier.contains(pins[need.name])] == []


@pytest.mark.parametrize(("file", "extra"), [("environment.yml", "gpu"), ("environment-cpu.yml", "cpu")])
def test_conda_files_stand_for_the_lock(file, extra):
    environment = yaml.safe_load((ROOT / file).read_text())
    python, *tools, section = environment["dependencies"]
    assert python.removeprefix("python=") + ".0" in SpecifierSet(PROJECT["project"]["requires-python"])
    assert tools == ["pip", "cxx-compiler"]
    index = [f"--extra-index-url {PINS['cpu-torch-index']}"] if extra == "cpu" else []
    assert section["pip"] == [*index, f"-c requirements/{extra}.txt", f"-e .[{extra}]"]
    assert PINS["cpu-torch"] in (ROOT / "requirements/cpu.txt").read_text().splitlines()


@pytest.mark.parametrize(("file", "extra"), [("environment.yml", "gpu"), ("environment-cpu.yml", "cpu")])
def test_conda_files_resolve_to_the_lock(file, extra, tmp_path):
    """A dry run of the pip section, on conda's Python; of PyTorch's own index nothing is asked, it is not always in reach."""
    python, *_, section = yaml.safe_load((ROOT / file).read_text())["dependencies"]
    lines = [line for line in section["pip"] if not line.startswith("--extra-index-url")]
    wanted = tmp_path / "conda.requirements.txt"
    wanted.write_text("".join(line.replace("-c ", f"-c {ROOT}/").replace("-e .", f"-e {ROOT}") + "\n" for line in lines))
    (tmp_path / "left-out.txt").write_text("torch ; sys_platform == 'never'\n" if extra == "cpu" else "")
    command = [
        BIN / "uv",
        "pip",
        "compile",
        "--no-config",
        "--quiet",
        "--no-header",
        "--no-annotate",
        wanted,
        "--override",
        tmp_path / "left-out.txt",
    ]
    command += ["--python-version", python.removeprefix("python="), "--python-platform", "x86_64-manylinux_2_28"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if re.search("Failed to fetch|error sending request|dns error", done.stderr):
        pytest.skip("no package index in reach")
    assert done.returncode == 0, done.stderr
    resolved = dict(re.findall(r"^([\w.-]+)==(\S+)$", done.stdout, re.MULTILINE))
    exported = (ROOT / "requirements" / f"{extra}.txt").read_text()
    assert len(resolved) > 200
    assert {name for name, version in resolved.items() if f"\n{name}=={version} ;" not in exported} <= CUDA_PARTS | {"triton"}


# ---------------------------------------------------------------- bootstrap


def test_find_links_of_uv_then_of_pip(monkeypatch, tmp_path):
    pip = [sys.executable, "-m", "pip"]
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.delenv("UV_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    (tmp_path / "pip.conf").write_text("[global]\nfind-links = /wheels/a /wheels/b\n")
    assert bootstrap.find_links(pip) == ["/wheels/a", "/wheels/b"]
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels/c")
    assert bootstrap.find_links(pip) == ["/wheels/c"]
    monkeypatch.setenv("UV_FIND_LINKS", "/wheels/d,/wheels/e")
    assert bootstrap.find_links(pip) == ["/wheels/d", "/wheels/e"]


def fake_python(folder: Path, name: str, answer: str) -> Path:
    """An interpreter that gives ``answer`` when it is asked for its version."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


def test_a_fitting_python_is_found(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    fake_python(tmp_path, "python3", "echo 3 9")
    fake_python(tmp_path, "python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    fake_python(tmp_path, "python3.11", "echo 3 11")
    assert bootstrap.fitting_python("python3") == "python3.11"
    fake_python(tmp_path, "python3", "echo 3 13")
    assert bootstrap.fitting_python("python3") == "python3"


def test_no_python_fits(monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap, "version_of", {"python3": (3, 9), "python3.13": None}.get)
    with pytest.raises(SystemExit, match=r"Python 3.11 to 3.13 is needed and was not found \(python3 is 3.9\)\n  fix: install one"):
        bootstrap.fitting_python("python3")


def test_no_venv_module(tmp_path):
    python = fake_python(tmp_path, "python3", 'case "$2" in *ensurepip*) exit 1;; *) echo 3 11;; esac')
    with pytest.raises(SystemExit, match=r"has no venv module.*\n  fix: sudo apt-get install python3.11-venv"):
        bootstrap.make_venv(tmp_path / "venv", str(python))
    assert not (tmp_path / "venv").exists()


def test_a_disk_that_is_too_small(monkeypatch, tmp_path):
    monkeypatch.setattr(bootstrap.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9e9, 7e9, 2e9))
    with pytest.raises(SystemExit, match=r"needs about 3.5 GB, its disk has 2.0 GB free\n  fix: free some space"):
        bootstrap.say_size(1e9, tmp_path)


def test_size_of_the_download(capsys, tmp_path):
    uv = fake_python(tmp_path, "uv", "echo ' + numpy==2.3.5\n + absent==1.0\n ~ rl-workbench==0.1.0\n - gone==1' >&2")
    numpy = bootstrap.download_bytes([str(uv)])
    assert 15e6 < numpy < 25e6  # a wheel of numpy
    bootstrap.say_size(numpy * 50, tmp_path)
    assert re.fullmatch(r"setup: about 0.\d GB|setup: about 1.0 GB", capsys.readouterr().out.split(" to download")[0])


def test_without_a_compiler_pycosat_is_left_out(monkeypatch, tmp_path, capsys):
    python = sys.executable
    monkeypatch.setenv("PATH", str(tmp_path))
    assert bootstrap.left_out(python) == ["pycosat"]
    assert "no C compiler" in capsys.readouterr().out
    fake_python(tmp_path, "gcc", "")
    assert bootstrap.left_out(fake_python(tmp_path, "has_headers", "exit 0")) == []
    assert bootstrap.left_out(fake_python(tmp_path, "has_none", "exit 1")) == ["pycosat"]


def test_an_environment_that_is_not_usable(tmp_path):
    assert not bootstrap.usable(tmp_path)
    (tmp_path / "bin").mkdir()
    fake_python(tmp_path / "bin", "pip", "")
    fake_python(tmp_path / "bin", "python", "echo 3 12")
    assert bootstrap.usable(tmp_path)
    fake_python(tmp_path / "bin", "python", "echo 3 10")
    assert not bootstrap.usable(tmp_path)


# ---------------------------------------------------------------- make


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
    smi = fake_python(tools, "nvidia-smi", "echo 'GPU 0: NVIDIA H200'")
    assert "--extra" not in make(clone, "-n", "setup", path=with_gpu).stdout  # what is installed stays
    (clone / ".venv/.ready-cpu").unlink()
    assert "--extra gpu --python python3 --stamp .venv/.ready-gpu" in make(clone, "-n", "setup", path=with_gpu).stdout
    assert "--extra cpu" in make(clone, "-n", "setup", "EXTRA=cpu", path=with_gpu).stdout
    fake_python(tools, smi.name, "echo 'NVIDIA-SMI has failed'; exit 9")
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


# ---------------------------------------------------------------- make lab


@pytest.fixture
def lab(tmp_path):
    """The server of ``make lab``, without a browser, for a user who has a broken kernel called python3. Gives (process, ask)."""
    shown = make(ROOT, "-n", "lab", f"VENV={BIN.parent}", "-o", f"{BIN.parent}/.ready-cpu", "EXTRA=cpu").stdout.splitlines()[-1]
    broken = tmp_path / "data/kernels/python3"
    broken.mkdir(parents=True)
    (broken / "kernel.json").write_text(json.dumps({"argv": ["/bin/false"], "display_name": "broken", "language": "python"}))
    bootstrap.quiet_lab(tmp_path)
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


# ---------------------------------------------------------------- habits


def notebooks() -> list[Path]:
    return [
        path
        for folder in ("notebooks", "recipes")
        for path in (ROOT / folder).rglob("*.ipynb")
        if "runs" not in path.parts and ".ipynb_checkpoints" not in path.parts
    ]


def test_notebooks_have_no_outputs():
    for path in notebooks():
        made = json.loads(path.read_text())
        assert made["metadata"]["kernelspec"]["language"] == "python", path
        assert "widgets" not in made["metadata"], path
        for cell in made["cells"]:
            assert not cell.get("outputs"), path
            assert cell.get("execution_count") is None, path


def test_hooks_run_tools_of_the_environment():
    hooks = [hook for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"] for hook in repo["hooks"]]
    assert [hook["id"] for hook in hooks] == ["ruff-check", "ruff-format", "nbstripout", "mypy"]
    for hook in hooks:
        tool = Path(hook["entry"].split()[0])
        assert tool.parent == Path(".venv/bin")
        assert (BIN / tool.name).exists()


def test_the_pure_levels_are_type_checked():
    checked = set(PROJECT["tool"]["mypy"]["files"])
    assert PROJECT["tool"]["mypy"]["strict"]
    pure = [ROOT / "workbench" / name for name in ("errors.py", "roles.py", "records.py", "events.py", "algos", "topology", "mapping")]
    assert {f"workbench/{path.name}" for path in pure if path.exists()} == checked
