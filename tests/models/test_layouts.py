"""Several ranks learn what one process would have learnt from all rows, in every layout."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.models.crew import Crew
from workbench.algos import GRPO
from workbench.models.actor import Actor, ActorPlan, Update
from workbench.models.experience import Experience, shares
from workbench.models.layouts import Layout
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row
from workbench.models.ranks import Ranks

ALGO = GRPO(group_size=4, minibatches=3, kl=0.1)
LAYOUTS = {
    "ddp": {},
    "fsdp": {"layout": "fsdp"},
    "grad_op": {"layout": "fsdp", "sharding": "SHARD_GRAD_OP"},
    "tp": {"layout": "tp=2"},
    "fp16": {"compression": "fp16"},
    "powersgd": {"compression": "powersgd"},
}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2)
    yield crew
    crew.close()


def plan_of(model: Path, **options: object) -> ActorPlan:
    dtype = str(options.pop("dtype", "float32"))
    optimizer = Optimizer(learning_rate=1e-2, token_budget=60)
    return ActorPlan(model, LoRA(rank=4, alpha=8), optimizer, "cpu", dtype, 0, **options)  # type: ignore[arg-type]


@dataclasses.dataclass(frozen=True)
class Start:
    """Where all begin: an adapter that does something, and twelve rows sampled with it, more or less.

    In the second of three minibatches all but one have no advantage, so that one rank of two has none to learn from.
    """

    state: dict[str, torch.Tensor]
    data: Experience


@pytest.fixture(scope="module")
def start(small_model: Path) -> Start:
    generator = torch.Generator().manual_seed(5)

    def ids(longest: int) -> tuple[int, ...]:
        length = int(torch.randint(1, longest, (1,), generator=generator))
        return tuple(torch.randint(2, 38, (length,), generator=generator).tolist())

    actor = Actor(plan_of(small_model))
    state = actor.trainer_state()
    for name, tensor in state.items():
        if "lora_B" in name:  # they start at zero, and then A has no gradient
            tensor.normal_(std=0.1, generator=generator)
    actor.load_trainer_state(state, 0)
    rows = [Row(ids(9), ids(40)) for _ in range(12)]
    values = torch.randn(12, generator=generator)
    values[[2, 5, 6, 7]] = 0
    engine = [(logp + 0.02).tolist() for logp in actor.score(rows, 0.7)]
    advantages = [torch.full((len(row.response),), float(value)) for row, value in zip(rows, values, strict=True)]
    return Start(state, Experience(rows, engine, advantages, actor.score(rows, 0.7, adapter=False), 0.7, 40))


@dataclasses.dataclass(frozen=True)
class Learnt:
    """What came of two updates."""

    gradients: dict[str, torch.Tensor]  # of the first optimizer step
    adapter: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]
    updates: list[Update]
    scores: list[torch.Tensor]


def learn(plan: ActorPlan, start: Start, ranks: Ranks | None = None, updates: int = 1) -> Learnt:
    actor = Actor(plan, ranks)
    actor.load_trainer_state(start.state, 0)
    share = shares(start.data, ALGO, actor.ranks.data_size)[actor.ranks.data_index]
    actor._together(actor._accumulate(share, ALGO, share.parts[0], {}, lambda: False))
    actor.learner.sum_gradients()
    gradients = actor.learner.whole_gradients()
    done = [actor.update(share, ALGO, 1e-2) for _ in range(updates)]
    scores = actor.score(start.data.rows, 0.7)
    return Learnt(gradients, {n: t.clone() for n, t in actor.adapter().items()}, actor.trainer_state(), done, scores)


def in_crew(model: Path, start: Start, options: dict[str, object]) -> Learnt:
    plan = plan_of(model, **options)
    return learn(plan, start, Ranks.of_world(role="actor", tp=Layout.parse(plan.layout).tp))


@pytest.fixture(scope="module")
def alone(small_model: Path, start: Start) -> Learnt:
    return learn(plan_of(small_model), start)


def close(seen: torch.Tensor, wanted: torch.Tensor, share: float) -> bool:
    """Whether the largest difference is at most a ``share`` of the largest number."""
    return bool((seen - wanted).abs().max() <= share * wanted.abs().max())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_learn_what_one_process_would(crew: Crew, small_model: Path, start: Start, alone: Learnt, layout: str) -> None:
    first, second = crew.run(in_crew, small_model, start, dict(LAYOUTS[layout]))
    loose = {"fp16": 2e-3, "powersgd": 0.2}.get(layout, 1e-5)
    assert first.updates == second.updates
    assert first.updates[0].tokens == alone.updates[0].tokens
    assert first.updates[0].optimizer_steps == 3
    for name, gradient in alone.gradients.items():
        assert close(first.gradients[name], gradient, loose)
    assert first.adapter.keys() == alone.adapter.keys()
    for name, tensor in alone.state.items():
        assert torch.equal(first.state[name], second.state[name])
        if name.startswith("exp_avg"):  # of all three gradients
            assert close(first.state[name], tensor, loose)
    for name, tensor in alone.adapter.items():
        assert torch.equal(first.adapter[name], second.adapter[name])
        apart = (first.adapter[name] - tensor).abs()
        # where all gradients are next to 0, Adam divides rounding by rounding; a step is 1e-2
        assert apart.mean() < loose / 10
        assert apart.max() < 1e-4 if loose == 1e-5 else 2e-2
