"""All weights trained on GPUs: compiled layers and head, NCCL, float32 masters; and a model on borrowed storage there."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.models.crew import Crew
from tests.models.test_borrow import engine_of, logits
from tests.models.test_full_actor import ALGO, experience, gradients, learn, make
from workbench.models.borrow import borrow
from workbench.models.lora import load_base

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
LAYOUTS = {
    "ddp": {},
    "fsdp": {"layout": "fsdp"},
    "grad_op": {"layout": "fsdp", "sharding": "SHARD_GRAD_OP"},
    "bf16": {"compression": "bf16"},
}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2, gpus=True)
    yield crew
    crew.close()


def test_a_gpu_has_the_gradients_of_a_cpu(small_model: Path) -> None:
    torch._dynamo.utils.counters.clear()
    wanted, there = make(small_model), make(small_model, device="cuda")
    data = experience(wanted)
    for part in range(3):
        seen = gradients(there, data, part)
        for name, gradient in gradients(wanted, data, part).items():
            assert (seen[name] - gradient).norm() <= 1e-3 * gradient.norm() + 1e-6, name
    assert not torch._dynamo.utils.counters["unimplemented"]


@two
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gpus_learn_what_one_would(crew: Crew, small_model: Path, layout: str, dtype: str, tmp_path: Path) -> None:
    alone = make(small_model, device="cuda", dtype=dtype)
    data = experience(alone)
    wanted = [gradients(alone, data, part) for part in range(3)]
    update = alone.update(data, ALGO, 1e-3)
    first, second = crew.run(learn, small_model, data, {"device": "cuda", "dtype": dtype, **LAYOUTS[layout]}, tmp_path, seconds=300)
    loose = 0.3 if dtype == "bfloat16" else 1e-2 if layout == "bf16" else 1e-3
    assert first.update == second.update
    assert (first.update.tokens, first.update.optimizer_steps) == (update.tokens, 3)
    for seen, right in zip(first.gradients, wanted, strict=True):
        for name, gradient in right.items():
            assert (seen[name] - gradient).norm() <= loose * gradient.norm() + 1e-6, name
    assert all(torch.equal(tensor, second.state[name]) for name, tensor in first.state.items())
    assert first.finite == second.finite == (True, False)


def test_a_borrowed_model_takes_no_memory_and_has_the_bits_of_one_from_disk(small_model: Path) -> None:
    device = torch.device("cuda", 0)
    lent = {name: view.to(device) for name, view in engine_of(small_model, torch.bfloat16).views.items()}
    before = torch.cuda.memory_allocated()
    model = borrow(small_model, lent, device, torch.bfloat16)
    assert torch.cuda.memory_allocated() - before <= 2**12
    own = load_base(small_model, device, torch.bfloat16)
    mine, other = (logits(each, device) for each in (model, own))
    assert torch.equal(mine, other)
