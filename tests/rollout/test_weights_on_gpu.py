"""Weights written into an engine on a GPU, in bfloat16 and with CUDA graphs. ``make test ARGS="-m gpu"``."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rollout.families import greedy, loaded, made, moved
from tests.rollout.test_weights import OTHER, PROMPT, pairs
from workbench.models.tokenizer import Tokenizer
from workbench.rollout.config import VLLM
from workbench.rollout.engine import Engine, EnginePlan, Request

pytestmark = pytest.mark.gpu


def difference(engine: Engine, model: Any) -> float:
    """The mean difference of a greedy completion's log-probabilities from transformers' in float32."""
    found: list[float] = []
    for prompt in (PROMPT, OTHER):
        drawn = engine.generate([Request(prompt)], temperature=0.0, max_tokens=8, adapter=False)[0]
        found += [abs(a - b) for a, b in zip(greedy(model, prompt, drawn.ids)[1], drawn.logp, strict=True)]
    return sum(found) / len(found)


@pytest.mark.usefixtures("free_process")
@pytest.mark.parametrize(("family", "mode"), [("qwen2", "merged"), ("llama", "zero_copy"), ("qwen3", "full")])
def test_a_gpu_computes_with_what_was_written(small_model: Path, tmp_path: Path, family: str, mode: str) -> None:
    tokenizer = Tokenizer(small_model).raw
    model = made(family, tmp_path, tokenizer)
    config = VLLM(window=256, block_size=32, max_sequences=64, memory_share=0.1)
    engine = Engine(EnginePlan(model, tokenizer, 4, "cuda", "bfloat16", 0, config, mode=mode))
    try:
        ours = loaded(model)
        weights = dict(ours.named_parameters())
        laid, live = engine.laid(), engine.tensors()
        assert all(torch.equal(here.cpu(), there.bfloat16()) for here, there in pairs(laid, weights, live, 0, 1))
        before = difference(engine, ours)
        moved(ours, 7)
        for here, there in pairs(laid, weights, live, 0, 1):
            here.copy_(there)
        stale = difference(engine, ours)
        engine.written(1)
        after = difference(engine, ours)
        assert max(before, after) < 0.2 < stale
    finally:
        engine.close()
