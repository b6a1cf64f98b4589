"""Every way of getting weights into an engine, on a GPU: bfloat16, CUDA graphs over weights that are rewritten, an engine that sleeps.

Run with ``make test ARGS="-m gpu"`` on a machine that has one. An engine for each mode.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.conftest import team_here
from tests.runtime.conftest import SAMPLING, learn, sample, worker_of
from tests.runtime.test_modes import RATES, shared, train
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row
from workbench.rollout.config import VLLM
from workbench.runtime.plans import Draw, WorkerPlan, never
from workbench.runtime.team import Team

pytestmark = pytest.mark.gpu
MODES = [("merged", True), ("zero_copy", False), ("full", True)]  # and whether the engine sleeps while the trainer learns


@pytest.fixture(scope="module", params=MODES, ids=[mode for mode, _ in MODES])
def mode(gpu_model: Path, request: pytest.FixtureRequest) -> Iterator[Team]:
    name, sleeps = request.param
    engine = VLLM(window=512, memory_share=0.1, max_sequences=64, cuda_graphs=64, sleep=sleeps)
    lora = None if name == "full" else LoRA(rank=4, alpha=8)
    team = team_here(WorkerPlan(gpu_model, lora, Optimizer(), engine, "cuda", "bfloat16", seed=0, mode=name))
    yield team
    team.close()
    assert torch.cuda.memory_allocated() < 2**30


def test_engine_and_trainer_agree_after_updates(mode: Team) -> None:
    before = sample(mode)
    for key in range(3):
        train(mode, key)
        record = mode.sync(key)
    batch = sample(mode, 9)
    rows = [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]
    trainer = torch.cat(worker_of(mode).actor.score(rows, SAMPLING.temperature)).cpu()
    engine = torch.tensor([x for c in batch.completions for x in c.logp])
    assert (trainer - engine).abs().mean() < 0.1
    assert [c.ids for c in batch.completions] != [c.ids for c in before.completions]
    print(f"{record.mode}: sync {record.seconds * 1e3:.1f} ms, proof {record.proof_seconds * 1e3:.1f} ms, rounding {record.rounding}")


def test_trainer_and_engine_share_their_storage_or_do_not(mode: Team) -> None:
    assert all(shared(mode)) if mode.plan.mode == "zero_copy" else not any(shared(mode))


def test_an_engine_that_sleeps_leaves_its_memory_to_the_trainer(mode: Team) -> None:
    free_while_sampling = torch.cuda.mem_get_info()[0]
    batch = sample(mode)
    learn(mode, batch, rate=RATES[mode.plan.mode])
    gained = (torch.cuda.mem_get_info()[0] - free_while_sampling) / 2**30
    assert gained > 5 if mode.plan.engine.sleep else abs(gained) < 5  # a tenth of the GPU was the engine's
    state = worker_of(mode).actor.trainer_state()
    mode.sync(1)
    after = worker_of(mode).actor.trainer_state()  # while it is on the host
    assert all(torch.equal(after[name], tensor) for name, tensor in state.items())


def test_a_step_that_teaches_nothing_leaves_an_engine_that_wakes(mode: Team) -> None:
    wanted = [c.ids for c in sample(mode, 5, seeded=True).completions]
    mode.reference(sample(mode, 5, seeded=True), 1.0, never)
    assert worker_of(mode).engine.asleep == mode.plan.engine.sleep
    assert [c.ids for c in sample(mode, 5, seeded=True).completions] == wanted


def test_the_base_can_be_sampled_from_in_between(mode: Team) -> None:
    if mode.plan.mode == "full":
        return  # there is none any more
    prompts = [p.ids for p in sample(mode).prompts]
    completions = mode.rollout(prompts, 4, Draw(("base",), 1.0, 12, seeded=True, adapter=False), never)
    rows = [Row(prompts[r // 4], c.ids) for r, c in enumerate(completions)]
    scored = torch.cat(worker_of(mode).actor.score(rows, 1.0, adapter=False)).cpu()
    assert (scored - torch.tensor([x for c in completions for x in c.logp])).abs().mean() < 0.1
