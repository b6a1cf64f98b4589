"""The critic over two GPUs, and its turns with the actor on one: NCCL, compiled layers, a head in float32 on a bfloat16 base."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.models.crew import Crew
from tests.models.test_critic import ALGO, LAYOUTS, SHARED, actor_of, apart, experience, in_crew, stirred, taught, worth
from workbench.algos import GRPO
from workbench.models.critic import ValueModel

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
two = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2, gpus=True)
    yield crew
    crew.close()


@two
@pytest.mark.parametrize(("layout", "where"), [(x, y) for x in LAYOUTS for y in ("shared", "apart", "full") if (x, y) != ("tp", "full")])
def test_gpus_teach_it_what_one_would(crew: Crew, small_model: Path, layout: str, where: str) -> None:
    one = stirred(apart(small_model, lora=None if where == "full" else SHARED.lora, device="cuda"))
    data = worth(one)
    gradients, _, update = taught(one, data)
    first, second = crew.run(in_crew, small_model, {"device": "cuda", **LAYOUTS[layout]}, where, data, seconds=300)
    assert first[2] == second[2]
    assert first[2].grad_norm == pytest.approx(update.grad_norm, rel=1e-3)
    for name, gradient in gradients.items():
        assert (first[0][name] - gradient).norm() <= 1e-3 * gradient.norm() + 1e-6, name


def test_actor_and_critic_take_turns_on_one_base_in_bfloat16(gpu_critic_model: Path) -> None:
    """Each learns what it would apart; the compiler makes every variant of a layer once, and falls back on none."""
    torch._dynamo.utils.counters.clear()
    actor, single = (actor_of(gpu_critic_model, device="cuda", dtype="bfloat16") for _ in range(2))
    critic, alone = stirred(ValueModel(actor, SHARED)), stirred(apart(gpu_critic_model, device="cuda", dtype="bfloat16"))
    algo = GRPO(minibatches=2)
    for _ in range(3):
        mine, theirs = critic.update(worth(critic), ALGO, 1e-3), alone.update(worth(alone), ALGO, 1e-3)
        assert mine.grad_norm == pytest.approx(theirs.grad_norm, rel=0.05)
        ours, other = actor.update(experience(actor), algo, 1e-3), single.update(experience(single), algo, 1e-3)
        assert ours.grad_norm == pytest.approx(other.grad_norm, rel=0.05)
    assert critic.head.weight.dtype == torch.float32
    assert not torch._dynamo.utils.counters["unimplemented"]


@pytest.fixture(scope="module")
def gpu_critic_model(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Heads of 64, as GPU kernels like them."""
    from tests.gpu.conftest import like_gpus

    return like_gpus(small_model, tmp_path_factory.mktemp("gpu-critic"))
