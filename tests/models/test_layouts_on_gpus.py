"""The layouts over two GPUs: NCCL, compiled layers under fsdp, flash attention, float32 masters."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.models.crew import Crew
from tests.models.test_layouts import Learnt, Start, close, in_crew, learn, plan_of, start_of

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")]
LAYOUTS = {
    "ddp": {},
    "fsdp": {"layout": "fsdp"},
    "grad_op": {"layout": "fsdp", "sharding": "SHARD_GRAD_OP"},
    "tp": {"layout": "tp=2"},
    "bf16": {"compression": "bf16"},
    "powersgd": {"compression": "powersgd"},
}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2, gpus=True)
    yield crew
    crew.close()


@pytest.fixture(scope="module")
def start(small_model: Path) -> Start:
    return start_of(small_model)


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def alone(small_model: Path, start: Start, request: pytest.FixtureRequest) -> tuple[str, Learnt]:
    return request.param, learn(plan_of(small_model, device="cuda", dtype=request.param), start)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gpus_learn_what_one_would(crew: Crew, small_model: Path, start: Start, alone: tuple[str, Learnt], layout: str) -> None:
    dtype, wanted = alone
    first, second = crew.run(in_crew, small_model, start, {"device": "cuda", "dtype": dtype, **LAYOUTS[layout]}, seconds=300)
    loose = 0.3 if dtype == "bfloat16" else {"bf16": 1e-2, "powersgd": 0.2}.get(layout, 1e-4)
    assert first.updates == second.updates
    for name, gradient in wanted.gradients.items():
        assert close(first.gradients[name], gradient, loose), (name, float((first.gradients[name] - gradient).norm() / gradient.norm()))
    for name, tensor in first.adapter.items():
        assert torch.equal(tensor, second.adapter[name])
    assert first.updates[0].tokens == wanted.updates[0].tokens
