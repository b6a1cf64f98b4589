"""The recipe that trains all weights, by the command: its own checks hold the syncs against the schedule."""

from pathlib import Path

import pytest

import workbench as wb
from tests.test_notebooks import execute, outputs
from workbench.past import PastRun

pytestmark = pytest.mark.usefixtures("free_process")  # no engine beside theirs


def run_recipe(folder: Path, options: dict[str, str]) -> tuple[str, PastRun]:
    """What was printed, and the run."""
    done = execute("recipes/full_finetune.ipynb", folder, *(part for pair in options.items() for part in ("-p", *pair)))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr, wb.Run.load(folder / "runs" / "full_finetune")


def test_from_shards_to_shards_as_scheduled(tmp_path: Path) -> None:
    """Two processes by Ray, actor fsdp and engine tp 2: of 6.3 MB each needs 3.2, and is sent what it lacks."""
    said, run = run_recipe(tmp_path, {"cpu_slots": "2", "steps": "2", "prompts": "8", "held_out": "0"})
    assert "sync          actor -> rollout     weights                    reshard" in str(outputs(tmp_path)["run.routes"])
    assert "scheduled 1,111,296 bytes, measured 1,111,296 in 3 syncs" in said
    syncs = [event.record for event in run.events if event.kind == "sync"]
    assert {(sync.mode, sync.bytes, sync.written) for sync in syncs} == {("full", 1_111_296, 3_200_256)}
    assert len({sync.checksum for sync in syncs}) == 3


@pytest.mark.long
def test_as_it_stands_it_learns(tmp_path: Path) -> None:
    """One process: nothing moves between processes, and all of it is written."""
    said, run = run_recipe(tmp_path, {})
    assert "scheduled 0 bytes, measured 0 in 21 syncs" in said
    before, after = (score.reward_mean for score in run.held_out)
    assert after - before > 0.2
