"""The pins, the conda files, the habits: what the files at the root promise."""

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from workbench.run import Run

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PINS = PROJECT["tool"]["workbench"]
LEFT_OUT = {"torchvision", "torchaudio", "torchcodec", "triton", "rfc3987-syntax"}  # of the lock; conda's pip can't


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
    assert done.returncode == 0, done.stderr
    resolved = dict(re.findall(r"^([\w.-]+)==(\S+)$", done.stdout, re.MULTILINE))
    exported = (ROOT / "requirements" / f"{extra}.txt").read_text()
    assert len(resolved) > 200
    assert {name for name, version in resolved.items() if f"\n{name}=={version} ;" not in exported} <= LEFT_OUT


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
    pure = [ROOT / "workbench" / name for name in ("errors.py", "findings.py", "palette.py", "roles.py", "records.py", "events.py")]
    pure += [ROOT / "workbench" / room for room in ("algos", "topology", "mapping", "telemetry", "rewards", "reshard", "runtime", "survey")]
    pure += [ROOT / "workbench" / name for name in ("loop.py", "stages.py", "early.py", "beside.py", "judge.py")]
    assert {f"workbench/{path.name}" for path in pure if path.exists()} == checked


def test_the_readmes_python_runs():
    """Its blocks, up to the point where an engine would start: every name and keyword is right."""
    notebook, algorithm, knobs, restore, data, ppo, places = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    own = data.replace("wb.tasks.from_dataset(", "dict(data=")  # that one needs the hub
    critic = ppo.split("run.start")[0]
    row = {"question": "1+1", "answer": "2"}
    rows = f"import json; open('train.jsonl', 'w').write(chr(10).join(json.dumps({{**{row}, 'question': str(n)}}) for n in range(50)))"
    made = "\n".join([notebook.split("run.watch()")[0], algorithm, knobs, rows, own, critic, places])
    program = f"import os, tempfile; os.chdir(tempfile.mkdtemp())\n{made}\nprint(run)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Run('run', new, 0 steps)" in done.stdout
    for call in re.findall(r"(?:run|wb\.Run)\.(\w+)", notebook + restore):
        assert hasattr(Run, call), call
