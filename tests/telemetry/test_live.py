"""Real runs with a fault say so themselves: live, in their summary, and when they are opened again."""

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from tests.test_run import PROMPTS, make
from workbench.metrics import records_of
from workbench.past import load
from workbench.records import Seen
from workbench.run import Run
from workbench.telemetry import Lookout

LONGEST = 64


def pays_for_length(prompt: str, completion: str, answer: Any) -> float:
    return len(completion) / LONGEST


def trained(run: Run, steps: int) -> list[Seen]:
    """What the run says in so many steps; it is closed."""
    try:
        list(run.train(steps))
    finally:
        run.close()
    return records_of(run.events, Seen)


def test_a_learning_rate_that_is_far_too_high(free_process: None, small_model: Path, tmp_path: Path) -> None:
    run = make(small_model, tmp_path, optimizer=wb.Optimizer(learning_rate=0.05), held_out=0, trackers=())
    told = trained(run, 10)
    (kl,) = (seen for seen in told if seen.code == "WB701" and not seen.ended)
    assert kl.severity == "error"
    assert kl.fix.startswith("run.knobs.learning_rate = 0.025, or run.knobs.kl = 0.04")
    assert run.steps[kl.since - 1].kl > 1
    assert run.findings[0] == kl
    assert f"WB701 error  since step {kl.since}" in run.summary().text
    assert kl.found in run.summary().text
    assert load(run.path).findings == run.findings
    assert [seen for seen in told if seen.step == 10] == Lookout().news(run.events)  # who comes later sees the same


@pytest.mark.long
def test_a_reward_that_pays_for_length(free_process: None, small_model: Path, tmp_path: Path) -> None:
    task, sampling = wb.tasks.from_list(PROMPTS, scorer=pays_for_length), wb.Sampling(prompts=8, max_tokens=LONGEST)
    run = make(small_model, tmp_path, task=task, sampling=sampling, optimizer=wb.Optimizer(learning_rate=4e-3), held_out=0, trackers=())
    (length,) = (seen for seen in trained(run, 30) if seen.code == "WB722")
    assert (length.step, length.since, length.ended) == (30, 1, False)
    assert "DrGRPO" in length.fix
    assert "run.knobs.kl = 0.04" in length.fix
    assert length in run.findings
