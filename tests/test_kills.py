"""Twenty kills at random moments and within the writing of checkpoints: the numbers of a run that nobody disturbed."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks import kills

KILLS = 20


@pytest.fixture(scope="module")
def lives(free_process: None, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[kills.Kill], Path, Path]:
    """Of the run that is killed; its folder, and that of a run beside it that is not."""
    killed, whole = tmp_path_factory.mktemp("killed"), tmp_path_factory.mktemp("whole")
    with ThreadPoolExecutor(1) as beside:
        undisturbed = beside.submit(kills.torture, small_model, whole, 0, seed=0)
        found = kills.torture(small_model, killed, KILLS, seed=1)
        undisturbed.result()
    return found, killed, whole


def test_a_run_killed_twenty_times_ends_with_the_numbers_of_one_that_was_not(lives: tuple[list[kills.Kill], Path, Path]) -> None:
    killed, whole = map(kills.numbers, lives[1:])
    assert [step["step"] for step in whole["steps"]] == list(range(1, kills.STEPS + 1))
    assert any(step["rounds"] > 1 for step in whole["steps"])  # dynamic sampling took part
    assert whole["knobs"]
    assert killed == whole


def test_every_life_went_on_from_the_last_whole_checkpoint(lives: tuple[list[kills.Kill], Path, Path]) -> None:
    found = lives[0]
    assert len(found) == KILLS
    assert {kill.moment for kill in found} >= {f"in a checkpoint: {moment}" for moment in kills.WITHIN}
    for before, after in itertools.pairwise(found):
        assert after.restored_from == before.checkpoint
        assert after.checkpoint >= before.checkpoint  # nothing that was whole is lost
    assert found[-1].checkpoint > 0
