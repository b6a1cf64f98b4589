"""What only a GPU can show: bfloat16 with masters, flash attention on packed rows, compiled layers, vLLM's own LoRA kernels.

Run with ``make test ARGS="-m gpu"`` on a machine that has one. One engine for all.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.conftest import team_here
from tests.runtime.conftest import SAMPLING, learn, sample, worker_of
from tests.runtime.test_worker import Fault, doubled, goes_back, half, stale, swapped
from workbench.algos import GRPO
from workbench.batch import Completion
from workbench.errors import Stopped, SyncError
from workbench.models.actor import Actor, ActorPlan
from workbench.models.experience import Experience
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row, pack
from workbench.rollout import inner
from workbench.rollout.config import VLLM
from workbench.rollout.engine import Request
from workbench.runtime.plans import WorkerPlan
from workbench.runtime.team import Team

pytestmark = pytest.mark.gpu

PROMPT = (20, 26, 29, 31, 12, 7, 4, 13)


@pytest.fixture(scope="module")
def gpu_team(gpu_model: Path) -> Iterator[Team]:
    """The small model in bfloat16, with heads of 64 as GPU kernels like them; all roles in this process."""
    engine = VLLM(window=512, memory_share=0.1, max_sequences=64)
    team = team_here(WorkerPlan(gpu_model, LoRA(rank=4, alpha=8), Optimizer(), engine, "cuda", "bfloat16", seed=0, kept=2))
    yield team
    team.close()
    assert torch.cuda.memory_allocated() < 2**30


def test_engine_and_trainer_agree_within_bfloat16_after_updates(gpu_team: Team) -> None:
    for key in range(3):
        learn(gpu_team, sample(gpu_team, key))
        gpu_team.sync(key)
    batch = sample(gpu_team, 9)
    rows = [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]
    trainer = torch.cat(worker_of(gpu_team).actor.score(rows, SAMPLING.temperature)).cpu()
    engine = torch.tensor([x for c in batch.completions for x in c.logp])
    assert (trainer - engine).abs().mean() < 0.1
    assert worker_of(gpu_team).actor.masters.pairs  # float32 masters under bfloat16 adapters


def test_packed_rows_are_plain_rows(gpu_team: Team) -> None:
    batch = sample(gpu_team, 10)
    rows = [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]
    for row, seen in zip(rows, worker_of(gpu_team).actor.score(rows, 1.0), strict=True):
        ids = torch.tensor([row.prompt + row.response], device="cuda")
        with torch.compiler.set_stance("force_eager"), torch.no_grad():
            logits = worker_of(gpu_team).actor.model(input_ids=ids, use_cache=False).logits[0].float().log_softmax(-1)
        wanted = logits[torch.arange(len(row.prompt) - 1, len(row) - 1), torch.tensor(row.response)]
        torch.testing.assert_close(seen, wanted, atol=0.15, rtol=0)


def test_micro_batches_of_any_size_run_the_same_compiled_layers(gpu_team: Team) -> None:
    from torch._dynamo.utils import counters

    def update(count: int, budget: int) -> None:
        batch = sample(gpu_team, count)
        worker_of(gpu_team).actor.budget = budget
        learn(gpu_team, replace(batch, advantages=tuple(1.0 if r < count else 0.0 for r in range(16))))
        gpu_team.sync(0)

    update(16, 8192)
    graphs = counters["stats"]["unique_graphs"]
    for count, budget in ((16, 100), (7, 8192), (11, 60), (5, 150)):
        update(count, budget)
    assert counters["stats"]["unique_graphs"] <= graphs + 2


def test_compiled_layers_round_as_plain_ones(gpu_team: Team) -> None:
    """Else the trainer keeps small adapters that the engine loses in rounding, and trains another policy than the one that samples."""
    actor, batch = worker_of(gpu_team).actor, sample(gpu_team, 12)
    rows = [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]
    plain = torch.cat(actor.score(rows, 1.0))
    with torch.no_grad():
        compiled = torch.cat([actor.logp(pack(rows, [r], actor.device), 1.0) for r in range(len(rows))])
    apart = (compiled - plain).abs()
    print(f"compiled against plain: mean {apart.mean():.4f}, max {apart.max():.3f}")
    assert apart.mean() < 0.02


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (stale, "stale adapter"),
        (doubled, "scaling: B is 2 times"),
        (half, "half an adapter: 7 of 14"),
        (swapped, "swapped layers"),
    ],
)
def test_a_fault_in_the_live_slot_is_caught_and_named(gpu_team: Team, monkeypatch: pytest.MonkeyPatch, fault: Fault, named: str) -> None:
    gpu_team.sync(0)
    learn(gpu_team, sample(gpu_team, 20))
    monkeypatch.setattr(inner, "push_adapter", fault)
    with pytest.raises(SyncError, match=named):
        gpu_team.sync(1)
    monkeypatch.undo()
    gpu_team.sync(2)


def test_a_checkpoint_takes_trainer_and_engine_back(gpu_team: Team) -> None:
    goes_back(gpu_team)


def test_this_process_sits_on_the_gpu_that_the_map_names(gpu_team: Team) -> None:
    assert [(seat.role, seat.device, seat.rank, seat.world) for seat in gpu_team.seats] == [
        (role, "local:0", 0, 1) for role in ("actor", "rollout", "reference")
    ]
    assert {seat.uuid for seat in gpu_team.seats} == {f"GPU-{torch.cuda.get_device_properties(0).uuid}"}
    assert gpu_team.peak_memory_gib().keys() == {"local:0"}


def test_a_batch_of_the_policy_before_is_learnt_from(gpu_team: Team) -> None:
    """The canary goes back to the bfloat16 adapter of then; the float32 masters are not touched by that."""
    version, old = gpu_team.version, sample(gpu_team, 30)
    learn(gpu_team, sample(gpu_team, 31))
    gpu_team.sync(1)
    masters = [parameter.clone() for parameter in worker_of(gpu_team).actor.masters.parameters]
    with worker_of(gpu_team)._kept.again(version, worker_of(gpu_team)._trained):
        pass
    assert all(torch.equal(a, b) for a, b in zip(masters, worker_of(gpu_team).actor.masters.parameters, strict=True))
    learn(gpu_team, old, version=version)
    gpu_team.sync(2)


def test_a_rollout_stops_between_two_tokens(gpu_team: Team) -> None:
    asked = iter([False] * 3 + [True] * 1000)
    began = time.monotonic()
    with pytest.raises(Stopped):
        worker_of(gpu_team).engine.generate(
            [Request(PROMPT)] * 64, temperature=1.0, max_tokens=480, adapter=False, should_stop=lambda: next(asked)
        )
    assert time.monotonic() - began < 1
    assert len(worker_of(gpu_team).engine.generate([Request(PROMPT)] * 3, temperature=1.0, max_tokens=4)) == 3


def test_base_and_adapter_in_one_batch(gpu_team: Team) -> None:
    def greedy(adapter: bool) -> Completion:
        return worker_of(gpu_team).engine.generate([Request(PROMPT)], temperature=0.0, max_tokens=8, adapter=adapter)[0]

    assert len(greedy(True).ids) == len(greedy(False).ids) == 8 or greedy(True).finish == "stop"


def test_no_part_of_a_layer_is_compiled_for_the_cpu(gpu_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for what the CPU can do would take forty seconds of the first update."""
    from torch._inductor.codegen.cpp import CppScheduling

    def refuse(*_: object) -> None:
        raise AssertionError("the compiler writes C++")

    torch.compiler.reset()
    monkeypatch.setattr(CppScheduling, "codegen_node", refuse)
    actor = Actor(ActorPlan(gpu_model, LoRA(rank=4, alpha=8), Optimizer(), "cuda", "bfloat16", 0))
    rows = [Row(PROMPT, (5, 6, 7 + r)) for r in range(4)]
    data = Experience(rows, [[-3.0] * 3] * 4, [torch.full((3,), r - 1.5) for r in range(4)], None, 0.7, 3)
    with torch._inductor.config.patch(force_disable_caches=True):
        assert actor.update(data, GRPO(), 1e-4).optimizer_steps == 1
