"""The house of DESIGN: imports go only downwards, and the front door is light."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "workbench"

# Every module has a level; one without a line here fails the test, so that nobody forgets to think about it.
LEVELS = {
    0: (
        *("errors", "roles", "findings", "palette", "batch", "records", "fitting", "events", "metrics"),
        *("flat", "ragged", "manifest", "quiet"),
    ),
    1: ("topology", "mapping", "algos"),
    2: ("rollout", "models", "reshard", "tasks", "rewards", "telemetry"),
    3: ("runtime",),
    4: (
        *("run", "life", "lasting", "look", "training", "opening", "loop", "stages", "ahead", "early", "beside", "judge", "supply"),
        *(
            "knobs",
            "waiting",
            "plan",
            "replan",
            "checkpoint",
            "telling",
            "past",
            "listing",
            "trackers",
            "following",
            "folder",
            "console",
            "profiling",
            "views",
        ),
    ),
    5: ("cli", "survey", "doctor", "headless", "__init__", "__main__"),
}
LEVEL = {module: level for level, modules in LEVELS.items() for module in modules}


def rooms_imported(source: str, room: str) -> set[str]:
    """The rooms (top modules) of workbench that a source imports, at its top or inside functions, itself left out."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "workbench":
            names = [f"workbench.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("workbench.")}
    return found - {room}


def offences(room: str, imported: set[str]) -> list[str]:
    """What of ``imported`` a module of ``room`` may not import."""
    bad = []
    for other in sorted(imported & LEVEL.keys()):
        same = LEVEL[other] == LEVEL[room]
        if LEVEL[other] > LEVEL[room] or (same and LEVEL[room] == 2) or (room == "views" and LEVEL[other] > 1):
            bad.append(f"{room} (level {LEVEL[room]}) imports {other} (level {LEVEL[other]})")
    return bad


def room_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0] if len(inside.parts) > 1 else inside.stem


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_only_downwards(path):
    room = room_of(path)
    assert room in LEVEL, f"{path} has no level: add {room!r} to LEVELS"
    assert offences(room, rooms_imported(path.read_text(), room)) == []


def test_relative_imports_are_not_used():
    # The test above reads absolute imports only.
    for path in PACKAGE.rglob("*.py"):
        assert not [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom) and node.level], path


@pytest.mark.parametrize(
    ("room", "source", "offence"),
    [
        ("algos", "from workbench.models.lora import LoRA", "algos (level 1) imports models (level 2)"),
        ("models", "def f():\n    import workbench.rollout.engine", "models (level 2) imports rollout (level 2)"),
        ("views", "from workbench import run", "views (level 4) imports run (level 4)"),
        ("views", "from workbench.telemetry.metrics import metrics", "views (level 4) imports telemetry (level 2)"),
        ("records", "from workbench.cli import main", "records (level 0) imports cli (level 5)"),
    ],
)
def test_an_import_upwards_is_found(room, source, offence):
    assert offences(room, rooms_imported(source, room)) == [offence]


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("mapping", "from workbench.topology import Topology"),
        ("run", "from workbench.loop import train_step"),
        ("cli", "import workbench.run"),
    ],
)
def test_what_is_allowed(room, source):
    assert offences(room, rooms_imported(source, room)) == []


HEAVY = ("vllm", "ray", "torch", "transformers", "peft", "accelerate", "papermill", "IPython", "matplotlib", "numpy")


def answer_of(code: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_import_workbench_is_light():
    code = "import sys, time; begin = time.perf_counter(); import workbench; print(time.perf_counter() - begin, *sys.modules)"
    seconds, *loaded = answer_of(code).split()
    assert set(HEAVY) & set(loaded) == set()
    assert float(seconds) < 0.5


def test_public_names_exist_and_leave_cuda_alone():
    code = "import sys, workbench as wb; [getattr(wb, name) for name in wb.__all__]; print(*sys.modules)"
    assert {"vllm", "ray"} & set(answer_of(code).split()) == set()
    code = "import workbench as wb; [getattr(wb, name) for name in wb.__all__]; import torch; print(torch.cuda.is_initialized())"
    assert answer_of(code) == "False"


def test_torch_before_workbench_is_noticed():
    # OpenMP reads how it should wait when torch is loaded; after that it is too late.
    program = "import {}; import workbench; print(workbench.TORCH_CAME_FIRST)"
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    for first, late in (("torch", "True"), ("json", "False")):
        done = subprocess.run([sys.executable, "-c", program.format(first)], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == late
