"""Every way of getting weights into an engine, on a real engine and a real trainer in this process: what is sampled from, proof, faults."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conftest import team_here
from tests.runtime import test_worker
from tests.runtime.conftest import SAMPLING, learn, sample, worker_of
from tests.runtime.test_worker import goes_back
from workbench.errors import StateError, SyncError
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row
from workbench.reshard.apply import Read
from workbench.reshard.merge import Merging
from workbench.reshard.schedule import Copy
from workbench.rollout import inner
from workbench.rollout.config import VLLM
from workbench.runtime import weights
from workbench.runtime.plans import Draw, WorkerPlan, never
from workbench.runtime.team import Team
from workbench.runtime.worker import Worker

pytestmark = pytest.mark.usefixtures("free_process")
LORA = LoRA(rank=4, alpha=8)
RATES = {"merged": 0.02, "zero_copy": 0.02, "full": 1e-3}


@pytest.fixture(scope="module", params=["zero_copy", "merged", "full"])
def mode(small_model: Path, request: pytest.FixtureRequest) -> Iterator[Team]:
    """One engine for all the tests of a mode."""
    engine = VLLM(window=256, block_size=32, max_sequences=64, kv_cache_gib=0.1)
    lora = None if request.param == "full" else LORA
    team = team_here(WorkerPlan(small_model, lora, Optimizer(), engine, "cpu", "float32", seed=0, mode=request.param, kept=2))
    yield team
    team.close()


def train(team: Team, key: int) -> None:
    """One update; no sync."""
    learn(team, sample(team, key), rate=RATES[team.plan.mode])


def rows_of(batch: Any) -> list[Row]:
    return [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]


def test_the_engine_samples_from_what_was_just_trained(mode: Team) -> None:
    before = sample(mode)
    for key in range(3):
        train(mode, key)
        record = mode.sync(key)
    after = sample(mode)
    assert [c.ids for c in after.completions] != [c.ids for c in before.completions]
    scored = worker_of(mode).actor.score(rows_of(after), SAMPLING.temperature)
    for completion, logp in zip(after.completions, scored, strict=True):
        torch.testing.assert_close(torch.tensor(completion.logp), logp, atol=1e-4, rtol=0)
    assert (record.mode, record.version) == (mode.plan.mode, mode.version)


def adapted(worker: Worker) -> list[torch.Tensor]:
    """The weights that the adapter adds to: what changes once the engine has the rest."""
    return [worker.actor.base_weights()[name] for name in worker.actor.adapted]


def test_what_a_sync_moves_and_writes(mode: Team) -> None:
    record, worker = mode.sync(0), worker_of(mode)
    if mode.plan.mode == "zero_copy":
        assert record.bytes == sum(t.nbytes for t in worker.actor.adapter().values())
        assert record.written == 0
    else:
        padded = sum(load.padding for load in worker.delivery.schedule.loads)
        whole = sum(t.nbytes for t in worker.engine.tensors().values()) - padded
        assert record.bytes == 0
        assert record.written == (whole if mode.plan.mode == "full" else sum(t.nbytes for t in adapted(worker)))
        worker.engine.drops += 1  # as one that sleeps does: nothing is there any more
        assert mode.sync(1).written == whole
    assert (record.rounding is not None) == (mode.plan.mode == "merged")


def shared(team: Team) -> list[bool]:
    """Of each of the trainer's weights: whether it lies in the engine's storage."""
    worker = worker_of(team)
    storages = {tensor.untyped_storage().data_ptr() for tensor in worker.engine.tensors().values()}
    mine = worker.actor.weights() if team.plan.mode == "full" else worker.actor.base_weights()
    return [tensor.untyped_storage().data_ptr() in storages for tensor in mine.values()]


def test_trainer_and_engine_share_their_storage_or_do_not(mode: Team) -> None:
    assert all(shared(mode)) if mode.plan.mode == "zero_copy" else not any(shared(mode))


def test_the_base_can_be_sampled_from_in_between(mode: Team) -> None:
    draw = Draw(("base",), 1.0, 12, seeded=True, adapter=False)
    prompts = [p.ids for p in sample(mode).prompts]
    if mode.plan.mode == "full":
        with pytest.raises(StateError, match="a base is not kept"):
            mode.rollout(prompts, 4, draw, never)
        return
    train(mode, 0)
    mode.sync(1)
    trained = sample(mode)
    completions = mode.rollout(prompts, 4, draw, never)
    rows = [Row(prompts[r // 4], c.ids) for r, c in enumerate(completions)]
    for completion, logp in zip(completions, worker_of(mode).actor.score(rows, 1.0, adapter=False), strict=True):
        torch.testing.assert_close(torch.tensor(completion.logp), logp, atol=1e-4, rtol=0)
    assert [c.ids for c in sample(mode).completions] == [c.ids for c in trained.completions]


@pytest.mark.parametrize("write", [1, 2])
def test_an_interrupt_while_the_base_is_in_leaves_the_actor_to_sample_from(mode: Team, monkeypatch: pytest.MonkeyPatch, write: int) -> None:
    """As the base is written, and as the actor's weights are to come back."""
    if mode.plan.mode != "merged":
        return  # nothing is written for the base
    train(mode, 0)
    mode.sync(1)
    trained, apply, calls = sample(mode), weights.apply, count(1)

    def interrupted(*args: Any, **more: Any) -> Any:
        number = next(calls)
        if number == write == 2:
            raise KeyboardInterrupt
        moved = apply(*args, **more)
        if number == write == 1:
            raise KeyboardInterrupt
        return moved

    monkeypatch.setattr(weights, "apply", interrupted)
    with pytest.raises(KeyboardInterrupt):
        mode.rollout([p.ids for p in trained.prompts], 4, Draw(("base",), 1.0, 12, seeded=True, adapter=False), never)
    monkeypatch.undo()
    assert [c.ids for c in sample(mode).completions] == [c.ids for c in trained.completions]


def test_no_rounding_adds_up_over_syncs(mode: Team) -> None:
    """What is resident depends on the trainer alone, not on how many syncs there were."""
    first = mode.sync(0).checksum
    for _ in range(3):
        assert mode.sync(0).checksum == first


def test_a_checkpoint_takes_trainer_and_engine_back(mode: Team) -> None:
    goes_back(mode, RATES[mode.plan.mode])


# ---------------------------------------------------------------- faults

Fault = Callable[[Read, Copy], torch.Tensor | None]


def doubled(read: Read, copy: Copy) -> torch.Tensor | None:
    """The adapter's scaling is applied twice."""
    assert isinstance(read, Merging)
    twice = {name: replace(delta, scaling=2 * delta.scaling) for name, delta in read.deltas.items()}
    return replace(read, deltas=twice)(copy)


def half(read: Read, copy: Copy) -> torch.Tensor | None:
    """Nothing comes of the second layer."""
    return None if "layers.1." in copy.parameter else read(copy)


def swapped(read: Read, copy: Copy) -> torch.Tensor | None:
    other = {"layers.0.": "layers.1.", "layers.1.": "layers.0."}
    name = next((copy.parameter.replace(a, b) for a, b in other.items() if a in copy.parameter), copy.parameter)
    return read(replace(copy, parameter=name))


def rounded(read: Read, copy: Copy) -> torch.Tensor | None:
    value = read(copy)
    return None if value is None else value.bfloat16().float()


def stale(read: Read, copy: Copy) -> torch.Tensor | None:
    return None


WRONG: dict[str, Fault] = {"doubled": doubled, "half": half, "swapped": swapped, "rounded": rounded, "stale": stale}
NAMED = {"doubled": "scaling", "half": "half", "swapped": "swapped layers", "rounded": "wrong dtype", "stale": "stale"}


@pytest.mark.parametrize("fault", NAMED)
def test_a_fault_on_the_way_is_caught_and_named(mode: Team, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    if fault == "doubled" and mode.plan.mode == "full":
        return  # without an adapter nothing is scaled
    train(mode, 0)
    mode.sync(1)
    train(mode, 1)
    if mode.plan.mode == "zero_copy":
        monkeypatch.setattr(inner, "push_adapter", getattr(test_worker, fault))
    else:
        apply, wrong = weights.apply, WRONG[fault]
        monkeypatch.setattr(weights, "apply", lambda schedule, read, *args, **more: apply(schedule, partial(wrong, read), *args, **more))
    with pytest.raises(SyncError, match=NAMED[fault]):
        mode.sync(2)
    monkeypatch.undo()
    record = mode.sync(3)  # everything: nobody knows what else is wrong
    assert record.written >= sum(t.nbytes for t in worker_of(mode).actor.weights().values()) or mode.plan.mode == "zero_copy"
