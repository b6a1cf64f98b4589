"""Engines in a world of two GPUs, each process pinned by UUID: one each, then one that both hold. ``make test ARGS="-m gpu"``."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.rollout.ranks import Ranks, say
from tests.rollout.test_world import CONFIG, PROMPT, RANK, adapter, ended, pairs
from workbench.rollout.config import VLLM
from workbench.rollout.engine import Engine, EnginePlan, Request

pytestmark = pytest.mark.gpu


def uuids() -> list[str]:
    """Of the GPUs, without CUDA."""
    listed = subprocess.run(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], capture_output=True, text=True, check=True)
    return listed.stdout.split()


def work(rank: int, model: Path) -> None:
    """Greedy completions of the base and of an adapter, by an engine of one rank and one of two."""
    import torch.distributed as dist

    os.environ["CUDA_VISIBLE_DEVICES"] = uuids()[rank]
    dist.destroy_process_group()
    dist.init_process_group("cpu:gloo,cuda:nccl")
    kept_group = dist.new_group([0, 1], backend="gloo")
    say([seen(model, tp, kept_group) for tp in (1, 2)])


def seen(model: Path, tp: int, kept_group: Any) -> dict[str, Any]:
    """What one engine does, and what is left of it."""
    import torch

    from workbench.models.tokenizer import Tokenizer

    config = VLLM(window=256, max_sequences=64, memory_share=0.1, cuda_graphs=tp == 1)
    engine = Engine(EnginePlan(model, Tokenizer(model).raw, RANK, "cuda", "bfloat16", 0, config, tp=tp))
    drawn = [engine.generate([Request(PROMPT)] * 2, temperature=0.0, max_tokens=8)[0]]
    sent = {name: tensor.to("cuda", engine.adapter_dtype) for name, tensor in adapter(1).items()}  # as the slot has it
    engine.push(sent, CONFIG, 1)
    drawn += engine.generate([Request(PROMPT)], temperature=0.0, max_tokens=8)
    held, slot = engine.expected(pairs(sent)), engine.resident()
    proved = all(torch.equal(a, slot[name][0][:RANK]) and torch.equal(b, slot[name][1][:, :RANK]) for name, (a, b) in held.items())
    free = [c.ids for c in engine.generate([Request(PROMPT)] * 8, temperature=1.0, max_tokens=8)]
    after = ended(engine, kept_group)
    left = torch.cuda.memory_allocated() / 2**30
    return {"drawn": [(c.ids, c.logp) for c in drawn], "proved": proved, "free": free, "after": after, "left": left}


def test_two_gpus_hold_one_engine_each_or_one_together(small_model: Path) -> None:
    if len(uuids()) < 2:
        pytest.skip("needs two GPUs")
    one, other = Ranks(work, small_model, gpus=True).all(seconds=500)
    for alone, together in (one, other):
        assert alone["proved"]
        assert together["proved"]
        for (ids, logp), (ids_alone, logp_alone) in zip(together["drawn"], alone["drawn"], strict=True):
            assert ids == ids_alone
            assert logp == pytest.approx(logp_alone, abs=2e-2)
        assert alone["after"][:2] == together["after"][:2] == [2, 2]
        assert max(alone["left"], together["left"]) < 1
    assert one[0]["free"] != other[0]["free"]
    assert one[1]["free"] == other[1]["free"]
