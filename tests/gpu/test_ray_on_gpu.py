"""Runs through Ray on real GPUs: who sits where, what the driver touches, what is left after an end, good or bad.

Run with ``make test ARGS="-m gpu"``. Most of the time goes into engines that start and layers that compile, so there are few runs.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

import pynvml
import pytest
import torch

import workbench as wb
from workbench.errors import MemoryShortError, WorkerError

pytestmark = pytest.mark.gpu

TASK = wb.tasks.sorting()


def gpus() -> list[Any]:
    pynvml.nvmlInit()
    return [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]


def used_gib() -> list[float]:
    return [pynvml.nvmlDeviceGetMemoryInfo(handle).used / 2**30 for handle in gpus()]


needs_two = pytest.mark.skipif("len(gpus()) < 2", reason="needs two GPUs")


class Hungry(wb.GRPO):
    """A loss that wants 8 TiB."""

    def loss(self, tokens: Any) -> Any:
        torch.empty(2**43, dtype=torch.uint8, device=tokens.logp.device)
        return super().loss(tokens)


def a_run(model: Path, folder: Path, places: dict[str, Any], **more: Any) -> wb.Run:
    settings = {
        "algo": wb.GRPO(group_size=4),
        "engine": wb.VLLM(window=256, memory_share=0.1, max_sequences=64, cuda_graphs=False),
        "sampling": wb.Sampling(prompts=16, max_tokens=16),
        "reward": lambda p, c, a: float(len(c) % 5),
        "held_out": 0,
        "trackers": (),
        "runtime": wb.Ray(env={"TORCHDYNAMO_DISABLE": "1"}),  # layers as they are: compiling them is tested elsewhere, and takes a minute
    }
    return wb.Run(wb.DeviceMap(**places), task=TASK, model=model, folder=folder, **(settings | more))


def test_one_gpu_one_process_and_nothing_left(gpu_model: Path, tmp_path: Path) -> None:
    """Colocated: seats are true, the driver never touches CUDA, a worker that wants too much says what would help, all memory returns."""
    before = used_gib()
    run = a_run(gpu_model, tmp_path, {"actor": "0"}, name="colocated")
    steps = list(run.train(2))
    assert all(step.logprob_diff_mean < 0.1 for step in steps)
    seats = json.loads((run.path / "placement.json").read_text())
    assert {seat["role"]: (seat["device"], seat["uuid"]) for seat in seats} == {
        **dict.fromkeys(("actor", "rollout", "reference"), ("local:0", pynvml.nvmlDeviceGetUUID(gpus()[0]))),
        "reward": ("cpu:0", None),
    }
    numa = wb.Topology.detect().gpu(0).numas
    assert all(set(seat["numa"]) <= set(numa) for seat in seats if seat["role"] != "reward" and numa)
    assert {seat["pid"] for seat in seats if seat["role"] != "reward"} != {os.getpid()}
    assert used_gib()[0] > before[0] + 1
    run.close()
    assert not torch.cuda.is_initialized()
    assert max(now - then for now, then in zip(used_gib(), before, strict=True)) < 0.1


def test_out_of_memory_names_the_gpu_and_what_would_help(gpu_model: Path, tmp_path: Path) -> None:
    before = used_gib()
    run = a_run(gpu_model, tmp_path, {"actor": "0"}, name="hungry", algo=Hungry(group_size=4))
    with pytest.raises(MemoryShortError, match=r"update of the actor, rank 0 of 1, on local:0 \(GPU-.*8192\.00 GiB.*\n.*memory_share"):
        list(run.train(1))
    run.close()
    assert max(now - then for now, then in zip(used_gib(), before, strict=True)) < 0.1


@needs_two
def test_apart_and_overlapped_then_killed(gpu_model: Path, tmp_path: Path) -> None:
    """Actor and engine on a GPU each, one step ahead; then the engine's process is killed, and the run goes on by itself."""
    before = used_gib()
    run = a_run(gpu_model, tmp_path, {"actor": "0", "rollout": "1"}, name="apart", overlap=1, restart=True, checkpoint_every=1)
    steps = list(run.train(3))
    assert [step.staleness for step in steps] == [0, 1, 1]
    seats = {seat["role"]: seat for seat in json.loads((run.path / "placement.json").read_text())}
    assert seats["actor"]["uuid"] != seats["rollout"]["uuid"]
    run.start(20)
    run.wait(until_step=5)
    os.kill(seats["rollout"]["pid"], 9)
    run.wait()
    assert run.steps[-1].step == 23
    assert [event.kind for event in run.events].count("restored") == 1
    run.close()
    assert max(now - then for now, then in zip(used_gib(), before, strict=True)) < 0.1


@needs_two
def test_two_ranks_train_one_adapter_and_a_dead_one_stops_the_run(gpu_model: Path, tmp_path: Path) -> None:
    before = used_gib()
    run = a_run(gpu_model, tmp_path, {"actor": "0-1 fsdp", "rollout": "0-1"}, name="sharded")
    run.start(200)
    run.wait(until_step=2)
    seats = json.loads((run.path / "placement.json").read_text())
    os.kill(next(seat["pid"] for seat in seats if seat["role"] == "actor" and seat["rank"] == 1), 9)
    began = time.monotonic()
    with pytest.raises(WorkerError, match=r"actor\+rollout\+reference, rank 1 of 2, on local:1 \(GPU-"):
        run.wait()
    assert time.monotonic() - began < 10
    run.close()
    assert max(now - then for now, then in zip(used_gib(), before, strict=True)) < 0.1


@needs_two
def test_five_roles_with_a_reward_model_beside_the_critic(gpu_model: Path, tmp_path: Path) -> None:
    """PPO over two GPUs: actor, critic on its base and engine on one; reference and a reward model, in eight bits, on the other."""
    before = used_gib()
    reward = wb.rewards.RewardModel(wb.rewards.tiny_reward_model(tmp_path / "reward-model"), dtype="int8")
    places = {"actor": "0", "critic": "share:actor", "rollout": "0", "reference": "1", "reward": "1"}
    run = a_run(gpu_model, tmp_path, places, name="five", algo=wb.PPO(group_size=4, kl=0.01), reward=reward)
    steps = list(run.train(3))
    assert all(step.logprob_diff_mean < 0.1 and step.value_loss > 0 and step.reward_std > 0 for step in steps)
    seats = {seat["role"]: seat for seat in json.loads((run.path / "placement.json").read_text())}
    assert seats["actor"]["pid"] == seats["critic"]["pid"] == seats["rollout"]["pid"]
    assert seats["reward"]["uuid"] == seats["reference"]["uuid"] != seats["actor"]["uuid"]
    run.close()
    assert max(now - then for now, then in zip(used_gib(), before, strict=True)) < 0.1
