"""The critic: on the actor's base or on its own, it learns the same; and it never touches what is the actor's."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.models.crew import Crew
from workbench.algos import GRPO, PPO
from workbench.errors import ConfigError, DivergedError, Stopped
from workbench.models.actor import Actor, ActorPlan
from workbench.models.base import BasePlan
from workbench.models.critic import ADAPTER, Critic, CriticPlan, ValueHead, ValueModel, ValueUpdate
from workbench.models.experience import Experience, Worth, worth_shares
from workbench.models.layouts import Layout
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row
from workbench.models.passes import accumulate, together
from workbench.models.ranks import Ranks

OPTIMIZER = Optimizer(learning_rate=1e-2, token_budget=60)
ALGO = PPO(minibatches=2, epochs=2)
Taught = tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], ValueUpdate]
SHARED = CriticPlan(LoRA(rank=4, alpha=8), OPTIMIZER, seed=7)
LAYOUTS = {
    "ddp": {},
    "fsdp": {"layout": "fsdp"},
    "grad_op": {"layout": "fsdp", "sharding": "SHARD_GRAD_OP"},
    "tp": {"layout": "tp=2"},
}


def actor_of(model: Path, ranks: Ranks | None = None, device: str = "cpu", dtype: str = "float32", **options: object) -> Actor:
    beside = {ADAPTER: (SHARED.lora, SHARED.seed)}
    plan = ActorPlan(model, LoRA(rank=4, alpha=8), OPTIMIZER, device, dtype, 0, **options)
    return Actor(plan, ranks, beside)


def apart(model: Path, ranks: Ranks | None = None, lora: LoRA | None = SHARED.lora, **options: object) -> ValueModel:
    plan = CriticPlan(lora, OPTIMIZER, seed=7, model=model)
    where = {"device": "cpu", "dtype": "float32", "token_budget": 60, **options}
    return ValueModel.alone(plan, BasePlan(model, **where), ranks)


def rows(count: int = 12) -> list[Row]:
    generator = torch.Generator().manual_seed(3)

    def ids(longest: int) -> tuple[int, ...]:
        length = int(torch.randint(1, longest, (1,), generator=generator))
        return tuple(torch.randint(2, 38, (length,), generator=generator).tolist())

    return [Row(ids(9), ids(30)) for _ in range(count)]


def stirred(model: ValueModel) -> ValueModel:
    """With weights that do something: B and the head begin at zero."""
    generator = torch.Generator().manual_seed(1)
    state = model.state()
    for name, tensor in sorted(state.items()):
        if "lora_B" in name or "value_head" in name:
            tensor.normal_(std=0.1, generator=generator)
    model.load_state(state)
    return model


def worth(model: ValueModel) -> Worth:
    generator = torch.Generator().manual_seed(2)
    values = model.values(rows())
    return Worth(rows(), values, [torch.randn(len(v), generator=generator) for v in values], 30)


def experience(actor: Actor) -> Experience:
    batch = rows()
    advantages = [torch.full((len(row.response),), n - 5.5) for n, row in enumerate(batch)]
    return Experience(batch, [x.tolist() for x in actor.score(batch, 1.0)], advantages, None, 1.0, 30)


def test_the_first_values_are_zero_and_one_for_every_response_token(small_model: Path) -> None:
    values = ValueModel(actor_of(small_model), SHARED).values(rows())
    assert [len(v) for v in values] == [len(row.response) for row in rows()]
    assert all(v.dtype == torch.float32 and not v.any() for v in values)


def test_a_value_is_the_head_of_the_state_before_the_token(small_model: Path) -> None:
    """Against transformers' own hidden states of one row at a time, without packing."""
    actor = actor_of(small_model)
    critic = stirred(ValueModel(actor, SHARED))
    values = critic.values(rows(4))
    with actor.using(ADAPTER), torch.no_grad():
        for row, seen in zip(rows(4), values, strict=True):
            ids = torch.tensor([row.prompt + row.response])
            starts = torch.tensor([0, len(row)], dtype=torch.int32)
            body = actor.reader.body.base_model
            hidden = body(input_ids=ids, use_cache=False, row_starts=starts, row_longest=len(row)).last_hidden_state[0]
            torch.testing.assert_close(seen, critic.head(hidden[len(row.prompt) - 1 : -1]), atol=1e-5, rtol=1e-5)


def test_on_the_actors_base_it_learns_what_it_would_on_its_own(small_model: Path) -> None:
    shared, alone = stirred(ValueModel(actor_of(small_model), SHARED)), stirred(apart(small_model))
    updates = [critic.update(worth(critic), ALGO, 1e-2) for critic in (shared, alone)]
    assert updates[0] == updates[1]
    assert updates[0].optimizer_steps == 4
    for name, tensor in shared.state().items():
        assert torch.equal(tensor, alone.state()[name]), name


def test_actor_and_critic_on_one_base_are_what_they_are_apart(small_model: Path) -> None:
    """In turns: each one's update leaves the other's weights, gradients and optimizer as two separate models would have them."""
    actor, single = actor_of(small_model), actor_of(small_model)
    critic, alone = stirred(ValueModel(actor, SHARED)), stirred(apart(small_model))
    algo = GRPO(minibatches=2)
    for _ in range(3):
        assert critic.update(worth(critic), ALGO, 1e-2) == alone.update(worth(alone), ALGO, 1e-2)
        assert actor.update(experience(actor), algo, 1e-2) == single.update(experience(single), algo, 1e-2)
    for mine, theirs in ((actor.trainer_state(), single.trainer_state()), (critic.state(), alone.state())):
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
    assert actor.model.active_adapter == "default"


def test_a_critics_gradient_stays_off_the_actors(small_model: Path) -> None:
    actor = actor_of(small_model)
    critic = stirred(ValueModel(actor, SHARED))
    for parameter in actor.masters.parameters:
        parameter.grad = torch.ones_like(parameter)
    critic.update(worth(critic), ALGO, 1e-2)
    assert all(torch.equal(parameter.grad, torch.ones_like(parameter)) for parameter in actor.masters.parameters)
    assert all(parameter.requires_grad for parameter in actor.learner.named.values())
    assert not any(parameter.requires_grad for name, parameter in critic.learner.named.items() if "lora" in name)


def test_values_come_near_to_their_targets(small_model: Path) -> None:
    critic = ValueModel(actor_of(small_model), SHARED)
    targets = [torch.full((len(row.response),), float(len(row.prompt) > 4)) for row in rows()]
    for _ in range(40):
        data = Worth(rows(), critic.values(rows()), targets, 30)
        summary = critic.update(data, PPO(minibatches=1, value_clip=None), 1e-2).summary
    assert summary.explained_variance > 0.9
    assert summary.error < 0.03


def test_all_weights_may_be_trained_on_a_base_of_its_own(small_model: Path, tmp_path: Path) -> None:
    critic = stirred(apart(small_model, lora=None))
    assert "model.layers.1.mlp.up_proj.weight" in critic.learner.named
    before = {name: tensor.clone() for name, tensor in critic.state().items() if name.startswith("weight.")}
    critic.update(worth(critic), ALGO, 1e-3)
    assert all(not torch.equal(tensor, before[name]) for name, tensor in critic.state().items() if name in before)
    critic.save(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    assert torch.equal(saved["model.norm.weight"], critic.state()["weight.model.norm.weight"])


def test_it_is_saved_in_pefts_format_beside_its_head(small_model: Path, tmp_path: Path) -> None:
    actor = actor_of(small_model)
    critic = stirred(ValueModel(actor, SHARED))
    critic.save(tmp_path / "critic")
    assert {file.name for file in (tmp_path / "critic").iterdir()} >= {"adapter_config.json", "adapter_model.safetensors"}
    saved = load_file(tmp_path / "critic" / "adapter_model.safetensors")
    state = critic.state()
    for name, tensor in saved.items():
        inside = name.replace("lora_A", "lora_A.critic").replace("lora_B", "lora_B.critic")
        assert torch.equal(tensor, state[f"weight.{inside}"])
    assert torch.equal(load_file(tmp_path / "critic" / "value_head.safetensors")["weight"], state["weight.value_head.weight"])
    actor.save(tmp_path / "actor")
    assert not [name for name in load_file(tmp_path / "actor" / "adapter_model.safetensors") if "critic" in name]
    assert not (tmp_path / "actor" / "critic").exists()


def test_a_stop_leaves_no_gradient(small_model: Path) -> None:
    actor = actor_of(small_model)
    critic = stirred(ValueModel(actor, SHARED))
    data, asked = worth(critic), iter([False, False, True])
    with pytest.raises(Stopped):
        critic.update(data, PPO(minibatches=1), 1e-2, should_stop=lambda: next(asked))
    assert all(parameter.grad is None for parameter in critic.learner.masters.parameters)
    assert actor.model.active_adapter == "default"


def test_values_that_are_not_finite_are_not_learnt(small_model: Path) -> None:
    critic = stirred(ValueModel(actor_of(small_model), SHARED))
    data = worth(critic)
    before = critic.state()
    data.targets[3][0] = torch.inf
    with pytest.raises(DivergedError, match="update of the critic"):
        critic.update(data, PPO(minibatches=1, value_clip=None), 1e-2)
    assert all(torch.equal(tensor, before[name]) for name, tensor in critic.state().items())
    assert critic.is_finite()
    with torch.no_grad():
        critic.head.bias.fill_(torch.nan)
    assert not critic.is_finite()


def test_a_checkpoint_of_another_critic_is_refused(small_model: Path) -> None:
    critic = ValueModel(actor_of(small_model), SHARED)
    with pytest.raises(ConfigError, match="another model or LoRA"):
        critic.load_state({})


def test_the_head_computes_in_float32() -> None:
    head = ValueHead(3)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 1e-4, 0.0]]))
        head.bias.fill_(2.0)
    values = head(torch.tensor([[256.0, 1.0, 5.0]], dtype=torch.bfloat16))
    assert values.dtype == torch.float32
    assert values.tolist() == pytest.approx([258.0001], abs=3e-5)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"warmup_steps": -1}, "counts steps"),
        ({"full": True, "lora": LoRA()}, "leave one of them out"),
        ({"lora": 4}, r"wb\.LoRA\(rank=16\)"),
        ({"optimizer": "adam"}, r"wb\.Optimizer"),
        ({"full": 1}, "True or False"),
    ],
)
def test_what_a_critic_can_not_be(fields: dict[str, object], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        Critic(**fields)


# ---------------------------------------------------------------- several ranks


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2)
    yield crew
    crew.close()


def taught(critic: ValueModel, data: Worth) -> Taught:
    """Gradients of the first optimizer step, the state after an update, and what it says."""
    ranks = critic.base.ranks
    share = worth_shares(data, ALGO, ranks.data_size)[ranks.data_index]
    lesson = critic.lesson(share, ALGO)
    with critic._adapter():
        critic.learner.clear()
        together(critic.learner, accumulate(critic.learner, lesson, share.parts[0], lambda: False))
        critic.learner.sum_gradients()
        gradients = {name: tensor.clone().cpu() for name, tensor in critic.learner.whole_gradients().items()}
    update = critic.update(share, ALGO, 1e-2)
    return gradients, critic.state(), update


def in_crew(
    model: Path, options: dict[str, str], where: str, data: Worth
) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor], object]:
    ranks = Ranks.of_world(role="critic", tp=Layout.parse(options.get("layout", "ddp")).tp)
    if where == "shared":
        critic = ValueModel(actor_of(model, ranks, **options), SHARED)
    else:
        critic = apart(model, ranks, lora=None if where == "full" else SHARED.lora, **options)
    return taught(stirred(critic), data)


@pytest.mark.parametrize(("layout", "where"), [(x, y) for x in LAYOUTS for y in ("shared", "apart", "full") if (x, y) != ("tp", "full")])
def test_ranks_teach_it_what_one_process_would(crew: Crew, small_model: Path, layout: str, where: str) -> None:
    one = stirred(apart(small_model, lora=None if where == "full" else SHARED.lora))
    data = worth(one)
    gradients, _, update = taught(one, data)
    first, second = crew.run(in_crew, small_model, LAYOUTS[layout], where, data)
    assert first[2] == second[2]
    assert first[2].grad_norm == pytest.approx(update.grad_norm, rel=1e-4)
    for name, gradient in gradients.items():
        assert (first[0][name] - gradient).norm() <= 3e-5 * gradient.norm() + 1e-7, name
    for name, tensor in first[1].items():
        assert torch.equal(tensor, second[1][name]), name


def test_tensor_parallelism_trains_no_whole_model(crew: Crew, small_model: Path) -> None:
    with pytest.raises(AssertionError, match=r"train all weights under tp=2: transformers splits a frozen model"):
        crew.run(in_crew, small_model, LAYOUTS["tp"], "full", None)
