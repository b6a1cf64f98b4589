"""The command line's own part: options, help, exit code 2. Runs themselves are in test_headless.py."""

import json
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from click.testing import CliRunner

from workbench.cli import main

WORKBENCH = str(Path(sys.executable).parent / "workbench")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder to stand in, with a notebook n.ipynb of two parameters."""
    cell = nbformat.v4.new_code_cell("steps = 3\ndevice_map = None", metadata={"tags": ["parameters"]})
    nbformat.write(nbformat.v4.new_notebook(cells=[cell, nbformat.v4.new_code_cell("print(steps, device_map)")]), tmp_path / "n.ipynb")
    plain = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("steps = 3", metadata={"tags": ["parameters"]})])
    nbformat.write(plain, tmp_path / "no_map.ipynb")
    (tmp_path / "map.yaml").write_text("actor: {devices: [0]}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_help_is_quick():
    begin = time.perf_counter()
    shown = subprocess.run([WORKBENCH, "--help"], capture_output=True, text=True, check=True).stdout
    assert time.perf_counter() - begin < 1.5
    assert "doctor" in shown
    assert "run" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run"], "Missing argument 'NOTEBOOK'"),
        (["run", "gone.ipynb"], "error: notebook gone.ipynb: it can't be read"),
        (
            ["run", "n.ipynb", "-p", "step", "9"],
            "n.ipynb has no parameter 'step'\n  fix: write 'steps'; the parameters are:\n    steps (int, default 3)",
        ),
        (["run", "n.ipynb", "-p", "steps", "many"], "the parameter is int (default 3), the value is str"),
        (["run", "n.ipynb", "-p", "steps"], "requires 2 arguments"),
        (["run", "n.ipynb", "--timeout", "0"], "not in the range x>0"),
        (["run", "n.ipynb", "--device-map", "gone.yaml"], "error: --device-map device map 'gone.yaml': No such file"),
        (["run", "no_map.ipynb", "--device-map", "map.yaml"], "no_map.ipynb has no parameter 'device_map'"),
        (["run", "n.ipynb", "--device-map", "map.yaml", "-p", "device_map", "x"], "device_map was given before"),
        (["run", "n.ipynb", "-o", "n.ipynb"], "that is the notebook itself"),
        (["dance"], "No such command 'dance'"),
    ],
)
def test_unusable_input_is_exit_code_2(folder, arguments, message):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert not list(folder.glob("runs/*"))


def test_a_device_map_reaches_the_notebook(folder):
    done = subprocess.run(
        [WORKBENCH, "run", "n.ipynb", "--device-map", "map.yaml", "-o", "out.ipynb"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "3 map.yaml\n"), done.stderr


def test_quiet(folder):
    done = subprocess.run([WORKBENCH, "run", "n.ipynb", "-q", "-o", "out.ipynb"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (0, "", 2)


def test_doctor_as_json():
    done = subprocess.run([WORKBENCH, "doctor", "--json"], capture_output=True, text=True, check=False)
    checks = {check["name"]: check for check in json.loads(done.stdout)["checks"]}
    assert checks["engine"]["status"] == "ok", checks["engine"]
    assert set(checks["torch"]) == {"name", "status", "found", "fix"}
    assert done.returncode == int(any(check["status"] == "error" for check in checks.values()))


def test_runs_lists_what_is_there(tmp_path):
    from workbench.events import EventLog
    from workbench.records import RunStarted, State

    (tmp_path / "quick").mkdir()
    log = EventLog(tmp_path / "quick" / "events.jsonl")
    log.emit(RunStarted("quick", "tiny", {"name": "GRPO"}, {}, {}, {}, 0))
    log.emit(State("finished"))
    (tmp_path / "other").mkdir()
    result = CliRunner().invoke(main, ["runs", str(tmp_path)])
    assert result.exit_code == 0
    assert ["quick", "finished", "0"] in [line.split()[:3] for line in result.output.splitlines()]
    assert "other: no events.jsonl" in result.output
    lines = json.loads(CliRunner().invoke(main, ["runs", str(tmp_path), "--json"]).output)
    assert {line["folder"]: line["state"] for line in lines} == {"quick": "finished", "other": "damaged"}


def test_runs_lists_the_newest_twenty_unless_all_are_asked_for(tmp_path):
    assert CliRunner().invoke(main, ["runs", str(tmp_path)]).output == f"no runs in {tmp_path}\n"
    for number in range(23):
        (tmp_path / f"run-{number}").mkdir()
    shown = CliRunner().invoke(main, ["runs", str(tmp_path)])
    assert f"3 older ones: workbench runs {tmp_path} --all" in shown.output
    assert "older ones" not in CliRunner().invoke(main, ["runs", str(tmp_path), "--all"]).output


def test_runs_of_an_unreadable_folder_is_exit_code_2(tmp_path):
    result = CliRunner().invoke(main, ["runs", str(tmp_path / "gone")])
    assert (result.exit_code, "there is no such folder" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "given", "words"),
    [
        (["topo", "gone.txt"], "", "topology 'gone.txt': No such file or directory"),
        (["topo", "."], "", "topology '.': Is a directory"),
        (["topo", "-"], "", "topology 'standard input': the text is empty"),
        (["topo", "-"], "\0\1\2 no matrix", "topology 'standard input'"),
        (["topo", "/dev/zero"], "", "it has more than 4 MiB"),
        (["topo", "--preset", "dgx-b9", "--json"], "", "the known machines are dgx-a100"),
        (["topo", "map.yaml", "--preset", "l40s-4"], "", "a file and a preset were given"),
        (["check", "gone.yaml", "--json"], "", "device map 'gone.yaml': No such file or directory"),
        (["check", ".", "--json"], "", "Is a directory"),
        (["check", "n.ipynb", "--json"], "", "n.ipynb"),
        (["check", "-", "--topology", "preset:l40s-4"], "", "standard input: holds nothing"),
        (["check", "-", "--topology", "preset:l40s-4"], "actor: {devices: [0]}\nactr: 1\n", "line 2: actr: 'actr' is no role"),
        (["check", "-", "--topology", "-"], "actor: 0", "standard input can be read once"),
        (["check", "-", "--fix"], "actor: 0", "standard input can't be written to"),
        (["check", "map.yaml", "--topology", "-", "--json"], "", "topology 'standard input'"),
        (["check", "map.yaml", "--topology", "preset:dgx-b9"], "", "the known machines are"),
        (["check", "map.yaml", "--topology", "cpu:0"], "", "it takes 1 to 1024 slots"),
        (["check", "map.yaml", "--topology", "cpu:1", "--model", "shape:llama-8b"], "", "the built-in shapes are"),
        (["check", "map.yaml", "--topology", "cpu:1", "--algo", "adam"], "", "the algorithms are ppo, grpo"),
        (["check", "map.yaml", "--batch", "0"], "", "0 is not in the range"),
        (["check"], "", "Missing argument 'MAP'"),
    ],
)
def test_what_can_not_be_read_says_why_on_stderr_alone(folder, arguments, given, words):
    result = CliRunner().invoke(main, arguments, input=given)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words in result.stderr


def test_topo_of_this_machine():
    result = CliRunner().invoke(main, ["topo", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert list(found) == ["complete", "gpus", "islands", "cliques", "links", "warnings"]
    assert set(found["gpus"][0]) == {"index", "node", "name", "numa", "memory_gib"}


def test_topo_of_a_matrix(folder):
    (folder / "two.txt").write_text("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV4\t0-23\nGPU1\tNV4\t X \t0-23\n")
    found = json.loads(CliRunner().invoke(main, ["topo", "two.txt", "--json"]).stdout)
    assert (found["islands"], found["cliques"], found["links"]) == ([[0, 1]], [[0, 1]], [[0, 1, "NV4"]])
    assert found["gpus"][1] == {"index": 1, "node": "local", "name": None, "numa": None, "memory_gib": None}
    assert "local:1" in CliRunner().invoke(main, ["topo", "two.txt"]).stdout


@pytest.mark.parametrize(
    ("text", "options", "code"),
    [
        ("actor: 0-3\n", [], 0),
        ("actor: 0-3\n", ["--strict"], 0),
        ("actor: 0-1\n", [], 0),
        ("actor: 0-1\n", ["--strict"], 1),
        ("actor: 0-3\n", ["--algo", "ppo"], 1),
        ("actor: 0-4\n", [], 1),
        ("actor: 0-3\n", ["--full", "--model", "shape:llama-13b"], 1),
    ],
)
def test_exit_codes_of_check(folder, text, options, code):
    (folder / "map.yaml").write_text(text)
    arguments = ["check", "map.yaml", "--topology", "preset:l40s-4", *options]
    printed, as_json = CliRunner().invoke(main, arguments), CliRunner().invoke(main, [*arguments, "--json"])
    assert (printed.exit_code, as_json.exit_code) == (code, code)
    found = json.loads(as_json.stdout)
    assert list(found) == ["ok", "resolved", "findings"]
    assert found["ok"] == (code == 0)
    assert all(one["code"] in printed.stdout for one in found["findings"])


def test_fix_with_json_prints_the_verdict_after_it(folder):
    (folder / "map.yaml").write_text("actor: 0-4  # all\n")
    arguments = ["check", "map.yaml", "--topology", "preset:l40s-4", "--fix", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, json.loads(result.stdout)["findings"]) == (0, [])
    assert (folder / "map.yaml").read_text() == "actor: 0-3  # all\n"


def test_fix_says_what_it_wrote(folder):
    (folder / "map.yaml").write_text("actor: 0-4\n")
    result = CliRunner().invoke(main, ["check", "map.yaml", "--topology", "preset:l40s-4", "--fix"])
    assert "+actor: 0-3" in result.stdout
    assert "mended WB101: name devices that are there: 0-3" in result.stdout


def test_fix_leaves_a_read_only_map_alone(folder):
    (folder / "map.yaml").write_text("actor: 0-4\n")
    (folder / "map.yaml").chmod(0o444)
    result = CliRunner().invoke(main, ["check", "map.yaml", "--topology", "preset:l40s-4", "--fix", "--json"])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "it is read-only" in result.stderr


@pytest.mark.parametrize(
    "arguments", [["topo", "--preset", "l40s-4", "--json"], ["check", "map.yaml", "--topology", "preset:l40s-4", "--json"]]
)
def test_a_full_device_is_said_in_one_sentence(folder, arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([WORKBENCH, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == (
        "error: standard output: it can't be written (No space left on device)\n  fix: make room there, or write elsewhere\n"
    )


def test_names_of_machines_do_not_drive_the_terminal(folder):
    """A file's name is the machine's, and what a shell or a download made of it is shown, not obeyed."""
    (folder / "\x1b[31mtwo.txt").write_text("\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n")
    for arguments in (["topo", "\x1b[31mtwo.txt"], ["check", "map.yaml", "--topology", "\x1b[31mtwo.txt"], ["topo", "\x1b[2Jgone"]):
        result = CliRunner().invoke(main, arguments)
        assert "\x1b" not in result.output
        assert "\\x1b[" in result.output
