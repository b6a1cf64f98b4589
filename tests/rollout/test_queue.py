"""What is told of an engine's queue, against the scheduler's own acts: with a cache that is too small for what is asked."""

from pathlib import Path

import pytest

from workbench.models.tokenizer import Tokenizer
from workbench.rollout.config import VLLM
from workbench.rollout.engine import Engine, EnginePlan, Request

PROMPT = (20, 26, 29, 31, 12, 7, 4, 13)


def test_requests_that_lose_their_place_are_counted(free_process: None, small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.v1.core.sched.scheduler import Scheduler

    lost, preempt = [], Scheduler._preempt_request
    monkeypatch.setattr(Scheduler, "_preempt_request", lambda *args, **how: (lost.append(1), preempt(*args, **how))[1])
    config = VLLM(window=512, block_size=32, max_sequences=64, kv_cache_gib=0.0007)  # 22 blocks of 32 tokens: a completion may take two
    engine = Engine(EnginePlan(small_model, Tokenizer(small_model).raw, 4, "cpu", "float32", 0, config))
    try:
        engine.generate([Request(PROMPT, seed) for seed in range(64)], temperature=1.0, max_tokens=300)
        queued = engine.queued
        assert queued.preempted == len(lost) > 0
        assert 0 < queued.running_mean < 23
        assert queued.waiting_mean > 1
        engine.generate([Request(PROMPT, 0)], temperature=1.0, max_tokens=4)
        assert engine.queued.preempted == 0
    finally:
        engine.close()
