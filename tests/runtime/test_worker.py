"""Sync and proof on a real engine: every fault is injected into a live slot, and has to be caught and named."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.runtime.conftest import SAMPLING, learn, sample, signal, worker_of
from workbench.algos import GRPO
from workbench.errors import ConfigError, SyncError
from workbench.models.packing import Row
from workbench.rollout import inner
from workbench.runtime.plans import never
from workbench.runtime.team import Team


def test_the_engine_samples_from_what_was_just_trained(fresh: Team) -> None:
    before = sample(fresh)
    learn(fresh, before)
    record = fresh.sync(1)
    after = sample(fresh)
    assert [c.ids for c in after.completions] != [c.ids for c in before.completions]
    assert record.version == fresh.version
    assert record.bytes == sum(t.numel() * 4 for t in worker_of(fresh).actor.adapter().values())
    scored = worker_of(fresh).actor.score(
        [Row(after.prompt_of(r).ids, c.ids) for r, c in enumerate(after.completions)], SAMPLING.temperature
    )
    for completion, logp in zip(after.completions, scored, strict=True):
        torch.testing.assert_close(torch.tensor(completion.logp), logp, atol=1e-4, rtol=0)


def test_a_sync_leaves_the_trainers_tensors_alone(fresh: Team) -> None:
    learn(fresh, sample(fresh))
    before = {name: tensor.clone() for name, tensor in worker_of(fresh).actor.adapter().items()}
    fresh.sync(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in worker_of(fresh).actor.adapter().items())


def test_the_checksum_follows_the_weights(fresh: Team) -> None:
    first = fresh.sync(0).checksum
    assert fresh.sync(0).checksum == first
    learn(fresh, sample(fresh))
    assert fresh.sync(1).checksum != first


Fault = Callable[[Any, dict[str, torch.Tensor], dict[str, Any]], None]
push = inner.push_adapter


def stale(llm: Any, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    """The push never happens."""


def doubled(llm: Any, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    push(llm, {n: t * 2 if "lora_B" in n else t for n, t in tensors.items()}, config)


def half(llm: Any, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    push(llm, {n: t for n, t in tensors.items() if "layers.0." in n}, config)


def swapped(llm: Any, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    other = {"layers.0.": "layers.1.", "layers.1.": "layers.0."}
    push(llm, {n.replace(layer, other[layer]): t for n, t in tensors.items() for layer in other if layer in n}, config)


def rounded(llm: Any, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    push(llm, {n: t.bfloat16() for n, t in tensors.items()}, config)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (stale, "stale adapter: the engine still holds the version before"),
        (doubled, "scaling: B is 2 times what it should be"),
        (half, "half an adapter: 7 of 14 modules are zero in the engine: model.layers.1"),
        (swapped, "swapped layers: .*layers.0.* holds what was sent for .*layers.1"),
        (rounded, "wrong dtype: 14 modules went through torch.bfloat16"),
    ],
)
def test_a_fault_in_the_live_slot_is_caught_and_named(fresh: Team, monkeypatch: pytest.MonkeyPatch, fault: Fault, named: str) -> None:
    learn(fresh, sample(fresh))
    fresh.sync(1)
    learn(fresh, sample(fresh, key=1))
    monkeypatch.setattr(inner, "push_adapter", fault)
    with pytest.raises(SyncError, match=named):
        fresh.sync(2)


def test_a_stale_prefix_cache_is_caught_by_the_canary_and_named(fresh: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prompts longer than two blocks, the same name for two versions: the engine goes on from prefixes of the older one."""
    long = "sort " + "57301 " * 20 + "="
    for key in range(3):
        learn(fresh, sample(fresh, key, long, seeded=False))
        fresh.sync(1)
    sample(fresh, 3, long, seeded=False)  # its prefixes are cached under this version's name
    version = fresh.version
    for key in range(4, 7):
        learn_only(fresh, sample(fresh, key, long, seeded=False))
    fresh.version = version - 1  # so that this sync gives the name that is in use already
    fresh.sync(2)
    batch = sample(fresh, 7, long, seeded=False)
    with pytest.raises(SyncError, match=r"canary.*cause: a stale prefix cache"):
        fresh.update(batch, signal(batch), GRPO(group_size=4), 0.02, SAMPLING, never)


def learn_only(team: Team, batch: Any) -> None:
    """An update on samples of an older version: the canary would stop it, so it gets the trainer's own numbers."""
    rows = [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]
    logp = worker_of(team).actor.score(rows, SAMPLING.temperature)
    own = tuple(replace(c, logp=tuple(x.tolist())) for c, x in zip(batch.completions, logp, strict=True))
    learn(team, replace(batch, completions=own))


def test_samples_of_an_engine_that_was_not_synced_are_caught_and_named(fresh: Team) -> None:
    learn(fresh, sample(fresh))
    with pytest.raises(SyncError, match=r"it made 1 updates since the engine got its adapter"):
        learn(fresh, sample(fresh, key=1))


def test_another_temperature_is_caught_and_named(fresh: Team) -> None:
    batch = sample(fresh, sampling=replace(SAMPLING, temperature=1.0))
    with pytest.raises(SyncError, match=r"cause: another temperature: .* temperature 1, not 0\.8"):
        learn(fresh, batch)


def test_a_dead_canary_applies_nothing(fresh: Team) -> None:
    before = {name: tensor.clone() for name, tensor in worker_of(fresh).actor.adapter().items()}
    with pytest.raises(SyncError):
        learn(fresh, sample(fresh, sampling=replace(SAMPLING, temperature=1.0)))
    assert all(torch.equal(tensor, before[name]) for name, tensor in worker_of(fresh).actor.adapter().items())
    assert fresh.in_sync


def test_the_reference_is_the_base(fresh: Team) -> None:
    learn(fresh, sample(fresh))
    batch = sample(fresh)
    wanted = worker_of(fresh).actor.score([Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)], 0.8, adapter=False)
    seen = fresh.reference(batch, 0.8, never)
    assert all(torch.equal(a, b) for a, b in zip(wanted, seen, strict=True))


def test_the_saved_adapter_is_read_by_vllm(fresh: Team, tmp_path: Any) -> None:
    """From disk, by vLLM's own loader: what is resident then is what a sync puts there."""
    from vllm.lora.request import LoRARequest

    learn(fresh, sample(fresh))
    fresh.sync(1)
    pushed = {name: (a.clone(), b.clone()) for name, (a, b) in worker_of(fresh).engine.resident().items()}
    fresh.save_actor(tmp_path / "adapter")
    llm = worker_of(fresh).engine._llm.llm_engine
    llm.remove_lora(inner.ADAPTER_ID)
    assert llm.add_lora(LoRARequest("from-disk", inner.ADAPTER_ID, str(tmp_path / "adapter")))
    read = worker_of(fresh).engine.resident()
    assert read.keys() == pushed.keys()
    assert all(torch.equal(x, y) for name in pushed for x, y in zip(pushed[name], read[name], strict=True))


def goes_back(team: Team, rate: float = 0.02) -> None:
    """What a checkpoint holds takes trainer and engine back to where they were."""
    for key in range(2):
        learn(team, sample(team, key), rate=rate)
        team.sync(key)
    checksum = team.sync(2).checksum
    state, updates, version = team.state(), team.updates, team.version
    learn(team, sample(team, 2), rate=rate)
    assert team.sync(2).checksum != checksum
    team.load_state(state, updates, version)
    assert not team.in_sync
    assert team.sync(1).checksum == checksum  # what the engine holds, to the bit
    assert (team.updates, team.version) == (updates, version)
    after = team.state()
    assert after.keys() == state.keys()
    assert {name.split(".")[0] for name in state} == {"weight", "exp_avg", "exp_avg_sq", "step"}
    assert all(torch.equal(after[name], tensor) for name, tensor in state.items())


def test_a_checkpoint_takes_trainer_and_engine_back(fresh: Team) -> None:
    goes_back(fresh)


def test_the_state_of_another_adapter_is_refused(fresh: Team) -> None:
    state = {name: tensor[:1] if tensor.ndim else tensor for name, tensor in fresh.state().items()}
    with pytest.raises(ConfigError, match="belongs to another model or LoRA"):
        fresh.load_state(state, 0, 1)
