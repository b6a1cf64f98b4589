"""The lessons on topologies and device maps, run by the command: with no answers, with wrong ones, with right ones."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nbformat
import pytest

import workbench as wb

ROOT = Path(__file__).parent.parent
TOPOLOGY, MAP = (ROOT / "notebooks" / name for name in ("03_read_a_topology.ipynb", "04_first_device_map.ipynb"))
PASTE = 'pasted = """\n'
BRIDGE = "$ nvidia-smi topo -m\n\x1b[4m\tGPU0\tGPU1\x1b[0m\nGPU0\t X \tNV4\nGPU1\tNV4\t X \n"


def execute(notebook: Path, folder: Path, answers: dict[str, str], pasted: str = "") -> list[Any]:
    """The code cells after a run in ``folder`` that has to succeed; ``pasted`` is written into the cell that takes a matrix."""
    made = nbformat.read(notebook, 4)
    for cell in made.cells:
        cell.source = cell.source.replace(PASTE, PASTE + pasted)
    nbformat.write(made, folder / "lesson.ipynb")
    options = [part for name, text in answers.items() for part in ("-p", name, text)]
    command = [sys.executable, "-m", "workbench", "run", "lesson.ipynb", "-o", "out.ipynb", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [cell for cell in nbformat.read(folder / "out.ipynb", 4).cells if cell.cell_type == "code"]


def printed(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def value(cell: Any) -> str:
    """The value of the cell's last line, as text."""
    return next(output.data["text/plain"] for output in cell.outputs if output.output_type == "execute_result")


def cell_with(cells: list[Any], text: str) -> Any:
    return next(cell for cell in cells if text in cell.source)


def drawings(cells: list[Any]) -> int:
    """Cells that show a picture: an image, and HTML for a page."""
    shown = [{kind for output in cell.outputs for kind in output.get("data", {})} for cell in cells]
    return sum({"image/png", "text/html"} <= kinds for kinds in shown)


def verdicts(cells: list[Any]) -> dict[str, str]:
    """Question -> what the check says of the answer."""
    lines = printed(cell_with(cells, "of_slowest)")).splitlines()
    return {name: said.strip() for name, said in (line[2:].split(maxsplit=1) for line in lines)}


# ---------------------------------------------------------------- 03: read a topology


def test_the_matrix_of_the_lesson_is_that_of_the_machine_it_names() -> None:
    source = cell_with(nbformat.read(TOPOLOGY, 4).cells, "matrix = ").source
    read, known = wb.Topology.parse(source.split('"""')[1]), wb.Topology.preset("dgx1-v100")
    assert read.complete
    assert [(link.a, link.b, link.name) for link in read.links] == [(link.a, link.b, link.name) for link in known.links]
    assert [gpu.cpus for gpu in read.gpus] == [gpu.cpus for gpu in known.gpus]


def test_a_topology_read_without_answers(tmp_path: Path) -> None:
    cells = execute(TOPOLOGY, tmp_path, {})
    assert set(verdicts(cells).values()) == {"not answered yet"}
    assert value(cell_with(cells, "of_slowest)")) == "'0 of 5 right'"
    assert drawings(cells) == 4  # the DGX-1, the classes, the cut matrix, this machine
    assert "[0, 2, 4, 6]: 5 NVLinks among them, about 6 GB/s for the slowest pair" in printed(cell_with(cells, "cables ="))
    cut = printed(cell_with(cells, "cut = "))
    assert "the link from 5 to 7: None\n0-3 is a clique: True\n4-7 is a clique: False" in cut
    assert "complete: False" in cut


def test_a_topology_misread(tmp_path: Path) -> None:
    """As the tutorials read it, and a text that is no matrix: each is told why, and the lesson goes on to its end."""
    wrong = {
        "nvlinks_0_3": "1",
        "even_all_linked": "true",
        "slowest_even_pair": "0,2",
        "four_all_linked": "0,2,4,6",
        "cpus_of_5": "0-19,40-59",
    }
    cells = execute(TOPOLOGY, tmp_path, wrong, pasted="who knows\n")
    said = verdicts(cells)
    assert said["nvlinks_0_3"] == "wrong: GPU0's row says NV2 in GPU3's column"
    even = "wrong: from 0 to 6 it is SYS, from 2 to 4 it is SYS"
    assert (said["even_all_linked"], said["four_all_linked"]) == (even, even)
    assert said["slowest_even_pair"] == "wrong: that is NV1, and another pair has less"
    assert said["cpus_of_5"] == "wrong: they are next to the GPUs [0, 1, 2, 3]"
    assert value(cell_with(cells, "of_slowest)")) == "'0 of 5 right'"
    assert "fix: give the" in printed(cell_with(cells, PASTE))
    assert drawings(cells) == 3


def test_a_topology_read_rightly_and_one_pasted(tmp_path: Path) -> None:
    """Either pair of the diagonal is the slowest, and a list of numbers says the same as text."""
    right = {
        "nvlinks_0_3": "2",
        "even_all_linked": "false",
        "slowest_even_pair": "[4, 2]",
        "four_all_linked": "4-7",
        "cpus_of_5": "20-39, 60-79",
    }
    cells = execute(TOPOLOGY, tmp_path, right, pasted=BRIDGE)
    assert set(verdicts(cells).values()) == {"right"}
    assert value(cell_with(cells, "of_slowest)")) == "'5 of 5 right'"
    assert drawings(cells) == 4
    assert "NV4" in value(cell_with(cells, PASTE))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ("0,9", "device '9'"),
        ("four", "'four' is no device"),
        ("0-2", "it takes four GPUs, that is 3"),
        ("0,0,1,2", "that is 3"),
        (3.5, "3.5"),
    ],
)
def test_an_answer_that_names_no_four_gpus(answer: object, why: str) -> None:
    """The check itself, without a kernel."""
    cells = [cell.source for cell in nbformat.read(TOPOLOGY, 4).cells if cell.cell_type == "code"]
    scope: dict[str, Any] = {}
    for source in (
        next(source for source in cells if source.startswith("matrix")),
        next(source for source in cells if "def of_four" in source),
    ):
        exec(source, scope)
    said = scope["verdict"](answer, scope["of_four"])
    assert said.startswith("wrong: ")
    assert why in said


# ---------------------------------------------------------------- 04: a first device map


def test_maps_left_as_they_are(tmp_path: Path) -> None:
    cells = execute(MAP, tmp_path, {})
    assert value(cell_with(cells, "verdicts =")) == "'0 of 3 mended'"
    assert printed(cell_with(cells, "verdicts =")).count("not answered yet") == 3
    assert drawings(cells) == 6  # a good one, three bad ones, the first one patched, and the machine at hand
    assert "WB111" in value(cell_with(cells, "first.draw"))
    assert "WB302" in value(cell_with(cells, "second.draw"))
    assert "WB501" in value(cell_with(cells, "third.draw"))
    assert "no findings" in value(cell_with(cells, "patched.on"))


def test_maps_that_are_wrong(tmp_path: Path) -> None:
    """One without findings that gives up a part of the task, one that is worse, and one that is no map."""
    wrong = {
        "first_map": "actor: 0-3\ncritic: share:actor\nrollout: 4-7 tp2",
        "second_map": "actor: 0-3\nrollout: 2-7 tp2",
        "third_map": "aktor: 0-7",
    }
    cells = execute(MAP, tmp_path, wrong)
    assert "✗ not yet\n  the task says: the rollout has more GPUs than the actor" in printed(cell_with(cells, "first.check"))
    assert "WB115" in printed(cell_with(cells, "second.check"))
    assert "✗ that is no map" in printed(cell_with(cells, "third.check"))
    assert "write 'actor'" in printed(cell_with(cells, "third.check"))
    assert value(cell_with(cells, "verdicts =")) == "'0 of 3 mended'"
    assert printed(cell_with(cells, "verdicts =")).count("wrong") == 3


def test_maps_mended(tmp_path: Path) -> None:
    right = {
        "first_map": "actor: 0\ncritic: 1\nrollout: 2-7 tp2",
        "second_map": json.dumps({"actor": {"devices": [4, 5, 6, 7]}, "rollout": {"devices": [0, 1, 2, 3], "tp": 4}}),
        "third_map": "actor: 0-7 fsdp\nrollout: 0-7 tp4",
        "machine": "l40s-4",
    }
    cells = execute(MAP, tmp_path, right)
    assert value(cell_with(cells, "verdicts =")) == "'3 of 3 mended'"
    assert drawings(cells) == 9
    assert "on l40s-4" in value(cell_with(cells, "wb.template"))


@pytest.mark.parametrize(
    ("exercise", "answer", "verdict"),
    [
        ("first", "actor: 0-1\ncritic: share:actor\nrollout: 2-7 tp2", "right"),
        ("first", "actor: cpu\ncritic: share:actor", "wrong"),
        ("second", "actor: 0-3 fsdp\nrollout: 4-7 tp4", "right"),
        ("second", "actor: 1,3,5,7\nrollout: 0,2,4,6 tp2", "wrong"),
        ("second", "rollout: 0-3 tp4", "wrong"),
        ("third", "actor: 0-3 fsdp\nrollout: 4-7 tp2", "right"),
        ("third", "actor: 0-7 fsdp\nrollout: 0-7 tp8", "wrong"),
        ("third", "actor: 0-3 fsdp\nrollout: 0-3 tp2", "wrong"),
    ],
)
def test_other_answers(exercise: str, answer: str, verdict: str, capsys: pytest.CaptureFixture[str]) -> None:
    """There is more than one right answer, and giving up a part of the task is none."""
    scope: dict[str, Any] = {"wb": wb}
    cells = [cell.source for cell in nbformat.read(MAP, 4).cells if cell.cell_type == "code"]
    for start in ("from collections", "from workbench", f"{exercise} = "):
        exec(next(source for source in cells if source.startswith(start)), scope)
    scope[exercise].check(answer)
    assert scope[exercise].verdict == verdict, capsys.readouterr().out
