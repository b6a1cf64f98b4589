"""Runs on several processes whose engines lie otherwise than the trainer: slices move at every sync, as the schedule says."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import workbench as wb
from workbench.reshard.lying import Engine, Fsdp
from workbench.reshard.parameters import Block, Cut, Parameter
from workbench.reshard.schedule import schedule
from workbench.runtime.cluster import connect
from workbench.runtime.pools import Fan

pytestmark = pytest.mark.usefixtures("free_process", "one_ray")
TASK = wb.tasks.sorting()
MAPS: dict[str, dict[str, Any]] = {
    "merged": {"actor": "0-1 fsdp", "rollout": {"devices": [0, 1], "tp": 2, "mode": "merged"}},
    "full": {"actor": "0-1 fsdp", "rollout": {"devices": [0, 1], "tp": 2, "mode": "full"}},
    "split": {"actor": "0-1 tp2", "rollout": {"devices": [0, 1], "mode": "merged"}},
    "copies": {"actor": "0-1", "rollout": {"devices": [0, 1], "mode": "merged"}},
    "shared": {"actor": "0-1 tp2", "rollout": {"devices": [0, 1], "tp": 2, "mode": "zero_copy"}},
    "beside": {"actor": "0-1 tp2", "rollout": {"devices": [0, 1], "tp": 2, "mode": "adapter"}},
    "strided": {"actor": "0-3 fsdp", "rollout": {"devices": "0-3", "tp": 2, "mode": "merged"}},
}


@pytest.fixture(scope="module")
def one_ray() -> Any:
    """A private Ray for all runs of this module."""
    cluster = connect(wb.Ray(), slots=4)
    yield
    cluster.close()


def a_run(model: Path, folder: Path, name: str, **more: Any) -> wb.Run:
    return wb.Run(
        wb.DeviceMap.load(MAPS[name]),
        topology=wb.Topology.cpu(slots=4 if name == "strided" else 2),
        task=TASK,
        model=model,
        full=name == "full",
        algo=wb.GRPO(group_size=4),
        engine=wb.VLLM(window=64, max_sequences=64, kv_cache_gib=0.1),
        optimizer=wb.Optimizer(learning_rate=1e-3),
        sampling=wb.Sampling(prompts=8, max_tokens=8),
        reward=lambda prompt, completion, answer: float(len(completion) % 5),
        held_out=0,
        trackers=(),
        name=name,
        folder=folder,
        **more,
    )


@pytest.mark.parametrize("name", ["merged", *(pytest.param(name, marks=pytest.mark.long) for name in ("full", "split", "copies"))])
def test_engines_sample_from_what_the_ranks_trained(small_model: Path, tmp_path: Path, name: str) -> None:
    run = a_run(small_model, tmp_path, name)
    try:
        steps = list(run.train(2))
        syncs = [event.record for event in run.events if event.kind == "sync"]
        route = next(route for route in run.routes if route.phase == "sync")
        assert all(step.logprob_diff_max < 1e-4 for step in steps)
        assert len({sync.checksum for sync in syncs}) == len(syncs)
        if name == "copies":
            assert (route.how, {sync.bytes for sync in syncs}) == ("stay", {0})
        elif name == "split":  # each rank lacks the other's half of what tensor parallelism cuts; embedding and norms are whole on both
            assert {sync.bytes for sync in syncs} == {
                sum(t.nbytes for n, t in tensors_of(small_model).items() if t.ndim > 1 and "embed" not in n)
            }
        else:  # of what lies in halves on two ranks each lacks what of its own half the other has
            assert route.how == "reshard"
            assert {sync.bytes for sync in syncs} == {moved_by_hand(run.path.parent, small_model)}
            assert route.bytes >= syncs[-1].bytes
        saved = run.path / ("model" if name == "full" else "adapter")
        assert (saved / ("model.safetensors" if name == "full" else "adapter_model.safetensors")).exists()
    finally:
        run.close()


def test_a_split_trainer_learns_on_the_storage_of_a_split_engine(small_model: Path, tmp_path: Path) -> None:
    """tp 2 on both sides: the canary and the proof as in any mode, and the adapter that tp 2 beside a copy of the base learns."""
    adapters = {}
    for name in ("shared", "beside"):
        run = a_run(small_model, tmp_path, name)
        try:
            steps = list(run.train(2))
            syncs = [event.record for event in run.events if event.kind == "sync"]
            adapters[name] = load_file(run.path / "adapter" / "adapter_model.safetensors")
        finally:
            run.close()
        assert all(step.logprob_diff_max < 1e-4 for step in steps)
        assert len({sync.checksum for sync in syncs}) == len(syncs)
        assert {sync.written for sync in syncs} == {0}
    for name, tensor in adapters["beside"].items():
        torch.testing.assert_close(adapters["shared"][name], tensor, atol=2e-4, rtol=0)


@pytest.mark.long
def test_engines_of_every_second_rank_are_given_less(small_model: Path, tmp_path: Path) -> None:
    """Of four ranks 0 and 2 hold one engine, 1 and 3 the other: as the schedule of strided groups has it, and less than of others."""
    run = a_run(small_model, tmp_path, "strided")
    try:
        steps = list(run.train(2))
        syncs = [event.record for event in run.events if event.kind == "sync"]
        rollout = next(route for route in run.routes if route.phase == "rollout")
    finally:
        run.close()
    assert rollout.fan == Fan(2, 2, strided=True)
    assert all(step.logprob_diff_max < 1e-4 for step in steps)
    assert {sync.bytes for sync in syncs} == {sync.scheduled for sync in syncs} == {by_groups(small_model, strided=True)}
    assert by_groups(small_model, strided=True) < 0.9 * by_groups(small_model, strided=False)


def by_groups(model: Path, *, strided: bool) -> int:
    """Bytes that move from four shards of rows into two engines of two ranks each."""
    return schedule(list(parameters_by_hand(model)), Fsdp(4), Engine(2, 2, strided)).bytes


def parameters_by_hand(model: Path) -> Iterator[Parameter]:
    """Each weight as the engine cuts it: two heads of keys and values, columns of o and down, a vocabulary filled up to 64."""
    for name, tensor in tensors_of(model).items():
        rows = tensor.shape[0]
        cut = None if tensor.ndim == 1 else Cut(0, (Block(rows, padded=64 if "embed" in name else 0),))
        if "o_proj" in name or "down_proj" in name:
            cut = Cut(1, (Block(tensor.shape[1]),))
        yield Parameter(name, tuple(tensor.shape), tensor.element_size(), cut)


def tensors_of(model: Path) -> dict[str, torch.Tensor]:
    """The checkpoint's."""
    tensors: dict[str, torch.Tensor] = load_file(model / "model.safetensors")
    return tensors


def moved_by_hand(folder: Path, model: Path) -> int:
    """Bytes between two ranks, from shards of rows to an engine's halves: norms whole on both, columns of rows elsewhere, rows in place.

    Queries, keys, values, gate, up and the embedding are cut by rows on both sides, and rank r keeps what it has: but an uneven half of
    the vocabulary (40 words, cut as 20 and 20; the engine pads them to 64 and cuts at 32).
    """
    moved = 0
    for name, tensor in tensors_of(model).items():
        if tensor.ndim == 1:  # each rank needs the other half
            moved += tensor.nbytes
        elif "o_proj" in name or "down_proj" in name:  # a quarter of it from each to the other
            moved += tensor.nbytes // 2
        elif "embed_tokens" in name:
            rows, half = tensor.shape[0], 32
            moved += abs(half - (rows + 1) // 2) * tensor.shape[1] * tensor.element_size()
    return moved
