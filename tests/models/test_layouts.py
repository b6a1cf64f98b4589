"""Several ranks learn what one process would have learnt from all rows, in every layout."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tests.models.crew import Crew
from workbench.algos import GRPO
from workbench.errors import ConfigError, DivergedError, Stopped
from workbench.models.actor import Actor, ActorPlan, Update
from workbench.models.base import Base, BasePlan
from workbench.models.experience import Experience, shares
from workbench.models.layouts import Layout
from workbench.models.learner import Learner
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row
from workbench.models.passes import accumulate, together
from workbench.models.ranks import Ranks

ALGO = GRPO(group_size=4, minibatches=3)
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
    optimizer = Optimizer(learning_rate=1e-2, token_budget=60)
    plan = ActorPlan(model, LoRA(rank=4, alpha=8), optimizer, "cpu", "float32", 0)
    return dataclasses.replace(plan, **options)


@dataclasses.dataclass(frozen=True)
class Start:
    """Where all begin: an adapter that does something, and twelve rows sampled with it, more or less.

    In the second of three minibatches all but one have no advantage, so that one rank of two has none to learn from.
    """

    state: dict[str, torch.Tensor]
    data: Experience


@pytest.fixture(scope="module")
def start(small_model: Path) -> Start:
    return start_of(small_model)


def start_of(small_model: Path) -> Start:
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

    gradients: dict[str, torch.Tensor]  # of each of three optimizer steps, before any is made
    adapter: dict[str, torch.Tensor]
    state: dict[str, torch.Tensor]
    updates: list[Update]
    scores: list[torch.Tensor]


def learn(plan: ActorPlan, start: Start, ranks: Ranks | None = None, updates: int = 1) -> Learnt:
    actor = Actor(plan, ranks)
    actor.load_trainer_state(start.state, 0)
    share = shares(start.data, ALGO, actor.ranks.data_size)[actor.ranks.data_index]
    gradients = {}
    for number, part in enumerate(share.parts):
        actor.learner.clear()
        lesson = actor.lesson(share, ALGO, share.parts, {})
        together(actor.learner, accumulate(actor.learner, lesson, part, lambda: False))
        actor.learner.sum_gradients()
        gradients |= {f"{number}.{name}": gradient.clone().cpu() for name, gradient in actor.learner.whole_gradients().items()}
    done = [actor.update(share, ALGO, 1e-2) for _ in range(updates)]
    scores = [logp.cpu() for logp in actor.score(start.data.rows, 0.7)]
    return Learnt(gradients, {n: t.clone().cpu() for n, t in actor.adapter().items()}, actor.trainer_state(), done, scores)


def in_crew(model: Path, start: Start, options: dict[str, object]) -> Learnt:
    plan = plan_of(model, **options)
    return learn(plan, start, Ranks.of_world(role="actor", tp=Layout.parse(plan.layout).tp))


@pytest.fixture(scope="module")
def alone(small_model: Path, start: Start) -> Learnt:
    return learn(plan_of(small_model), start)


def close(seen: torch.Tensor, wanted: torch.Tensor, share: float) -> bool:
    """Whether the difference is at most a ``share`` of the tensor, by their norms."""
    return bool((seen - wanted).norm() <= share * wanted.norm())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_learn_what_one_process_would(crew: Crew, small_model: Path, start: Start, alone: Learnt, layout: str) -> None:
    first, second = crew.run(in_crew, small_model, start, dict(LAYOUTS[layout]))
    # halves of sums round otherwise (tp); three digits (fp16); four directions of a matrix that has more (powersgd)
    loose = {"tp": 3e-5, "fp16": 2e-3, "powersgd": 0.2}.get(layout, 1e-5)
    assert first.updates == second.updates
    assert first.updates[0].tokens == alone.updates[0].tokens
    assert first.updates[0].optimizer_steps == 3
    assert first.updates[0].grad_norm == pytest.approx(alone.updates[0].grad_norm, rel=max(loose, 1e-4))
    assert first.updates[0].summary.loss == pytest.approx(alone.updates[0].summary.loss, abs=max(loose, 1e-4))
    for name, gradient in alone.gradients.items():
        assert close(first.gradients[name], gradient, loose), name
    assert first.adapter.keys() == alone.adapter.keys()
    for name, tensor in alone.adapter.items():
        assert torch.equal(first.adapter[name], second.adapter[name])
        apart = (first.adapter[name] - tensor).abs()
        # where all gradients are next to 0, Adam divides rounding by rounding; a step is 1e-2
        assert apart.mean() < loose
        assert apart.max() < (2e-4 if loose < 1e-4 else 2e-2)
    for seen, wanted in zip(first.scores + second.scores, alone.scores * 2, strict=True):
        torch.testing.assert_close(seen, wanted, atol=max(loose * 10, 1e-3), rtol=0)


# ---------------------------------------------------------------- in bfloat16


def in_bfloat16(model: Path, start: Start, options: dict[str, object]) -> Learnt:
    return in_crew(model, start, {**options, "dtype": "bfloat16"})


@pytest.mark.parametrize("layout", ["ddp", "fsdp", "tp"])
def test_bfloat16_adapters_keep_float32_masters(crew: Crew, small_model: Path, start: Start, layout: str) -> None:
    wanted = learn(plan_of(small_model, dtype="bfloat16"), start)
    seen = crew.run(in_bfloat16, small_model, start, LAYOUTS[layout])[0]
    for name, gradient in wanted.gradients.items():
        assert seen.gradients[name].dtype == torch.float32
        assert close(seen.gradients[name], gradient, 0.2), name
    for name, tensor in seen.adapter.items():
        master = seen.state["weight." + name.replace(".weight", ".default.weight")]
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(master.bfloat16(), tensor)
        assert not torch.equal(master, tensor.float())


# ---------------------------------------------------------------- checkpoints go from layout to layout


def go_on(model: Path, state: dict[str, torch.Tensor], start: Start, options: dict[str, object], folder: Path) -> Learnt:
    """Load, make one more update, and say what came of it."""
    plan = plan_of(model, **options)
    ranks = Ranks.of_world(role="actor", tp=Layout.parse(plan.layout).tp) if options.get("size", 2) == 2 else None
    actor = Actor(plan, ranks)
    actor.load_trainer_state(state, 3)
    before = {name: tensor.clone() for name, tensor in actor.trainer_state().items()}
    update = actor.update(shares(start.data, ALGO, actor.ranks.data_size)[actor.ranks.data_index], ALGO, 1e-2)
    actor.save(folder)
    return Learnt(before, dict(actor.adapter()), actor.trainer_state(), [update], [])


@pytest.mark.parametrize("layout", ["ddp", "fsdp", "tp"])
def test_a_checkpoint_of_any_layout_is_read_by_any(
    crew: Crew, small_model: Path, start: Start, alone: Learnt, layout: str, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    seen = crew.run(go_on, small_model, alone.state, start, LAYOUTS[layout], tmp_path / "there")[0]
    assert seen.gradients.keys() == alone.state.keys()
    assert all(torch.equal(seen.gradients[name], tensor) for name, tensor in alone.state.items())  # as it was written
    actor = Actor(plan_of(small_model))
    actor.load_trainer_state(seen.state, 6)
    assert all(torch.equal(tensor, seen.state[name]) for name, tensor in actor.trainer_state().items())  # and back
    actor.save(tmp_path / "back")
    there, back = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("there", "back"))
    assert there.keys() == back.keys()
    assert all(torch.equal(tensor, back[name]) for name, tensor in there.items())
    assert (tmp_path / "there" / "adapter_config.json").exists()


# ---------------------------------------------------------------- a second adapter on the same base


def critics_gradient(model: Path, start: Start, options: dict[str, object], size: int) -> dict[str, torch.Tensor]:
    """Gradients of the adapter called critic, of the sum of all log-probabilities of a rank's rows."""
    layout = str(options.get("layout", "ddp"))
    ranks = Ranks.of_world(role="critic", tp=Layout.parse(layout).tp) if size > 1 else Ranks.alone()
    plan = BasePlan(model, "cpu", "float32", token_budget=60, **options)
    base = Base(plan, ranks, {"default": (LoRA(rank=4, alpha=8), 0), "critic": (LoRA(rank=4, alpha=8), 1)})
    learner = Learner(base, base.parameters_of("critic"), Optimizer())
    actor = Learner(base, base.parameters_of("default"), Optimizer())
    base.model.set_adapter("critic")
    learner.load({f"weight.{name.replace('default', 'critic')}": t for name, t in start_weights(start).items()})
    share = shares(start.data, ALGO, base.ranks.data_size)[base.ranks.data_index]
    for packed in base.packed(share.rows, range(len(share.rows)), lambda: False):
        (base.logp(packed, 0.7).sum() * bool(packed.rows)).backward()
    learner.sum_gradients()
    actor.sum_gradients()
    assert not any(gradient.any() for gradient in actor.whole_gradients().values())
    return {name: gradient.clone() for name, gradient in learner.whole_gradients().items()}


def start_weights(start: Start) -> dict[str, torch.Tensor]:
    return {name.removeprefix("weight."): tensor for name, tensor in start.state.items()}


@pytest.mark.parametrize("layout", ["ddp", "fsdp", "grad_op", "tp"])
def test_gradients_of_a_second_adapter(crew: Crew, small_model: Path, start: Start, layout: str) -> None:
    wanted = critics_gradient(small_model, start, {}, 1)
    assert any(gradient.any() for gradient in wanted.values())
    for seen in crew.run(critics_gradient, small_model, start, LAYOUTS[layout], 2):
        assert seen.keys() == wanted.keys()
        assert all(close(seen[name], gradient, 1e-5) for name, gradient in wanted.items())


# ---------------------------------------------------------------- a base by itself, and four ranks


def scored(model: Path, rows: list[Row], options: dict[str, object]) -> list[torch.Tensor]:
    """By a base without adapters; rank 0 has all rows but the last, rank 1 the last, or under tp both all."""
    layout = str(options.get("layout", "ddp"))
    ranks = Ranks.of_world(role="reference", tp=Layout.parse(layout).tp)
    base = Base(BasePlan(model, "cpu", "float32", token_budget=60, **options), ranks)
    mine = rows if ranks.tp > 1 else [rows[:-1], rows[-1:]][ranks.rank]
    return base.score(mine, 0.7)


@pytest.mark.parametrize("layout", ["ddp", "fsdp", "grad_op", "tp"])
def test_a_base_scores_what_the_actor_scores_without_its_adapter(crew: Crew, small_model: Path, start: Start, layout: str) -> None:
    first, second = crew.run(scored, small_model, start.data.rows, LAYOUTS[layout])
    seen = first if layout == "tp" else first + second
    assert start.data.ref_logp is not None
    for mine, wanted in zip(seen, start.data.ref_logp, strict=True):
        torch.testing.assert_close(mine, wanted, atol=1e-4, rtol=0)


def test_tensor_and_data_parallel_together(small_model: Path, start: Start, alone: Learnt) -> None:
    four = Crew(4)
    try:
        learnt = four.run(in_crew, small_model, start, {"layout": "tp=2"})
    finally:
        four.close()
    for name, gradient in alone.gradients.items():
        assert close(learnt[3].gradients[name], gradient, 3e-5), name
    assert all(each.updates == learnt[0].updates for each in learnt)
    assert learnt[0].updates[0].tokens == alone.updates[0].tokens
    assert learnt[0].updates[0].grad_norm == pytest.approx(alone.updates[0].grad_norm, rel=1e-4)


# ---------------------------------------------------------------- all or none


def stop_one(model: Path, start: Start, options: dict[str, object]) -> tuple[str, bool]:
    """Rank 1 is stopped in its second micro-batch."""
    plan = plan_of(model, **options)
    ranks = Ranks.of_world(role="actor")
    actor = Actor(plan, ranks)
    before = actor.trainer_state()
    asked = iter([False] + [ranks.rank == 1] * 100)
    share = shares(start.data, GRPO(group_size=4), 2)[ranks.rank]
    try:
        actor.update(share, GRPO(group_size=4), 1e-2, should_stop=lambda: next(asked))
    except Stopped as stop:
        return str(stop), all(torch.equal(tensor, before[name]) for name, tensor in actor.trainer_state().items())
    return "went on", False


@pytest.mark.parametrize("layout", ["ddp", "fsdp"])
def test_a_stop_on_one_rank_stops_both(crew: Crew, small_model: Path, start: Start, layout: str) -> None:
    assert crew.run(stop_one, small_model, start, LAYOUTS[layout]) == [("update", True)] * 2


def diverge_one(model: Path, start: Start) -> str:
    """Rank 1 has an advantage that is not finite."""
    ranks = Ranks.of_world(role="actor")
    actor, algo = Actor(plan_of(model), ranks), GRPO(group_size=4)
    share = shares(start.data, algo, 2)[ranks.rank]
    if ranks.rank == 1:
        share.advantages[0][:] = float("inf")
    try:
        actor.update(share, algo, 1e-2)
    except DivergedError as error:
        return str(error)
    return "went on"


def test_a_gradient_that_is_not_finite_on_one_rank_is_refused_on_both(crew: Crew, small_model: Path, start: Start) -> None:
    said = crew.run(diverge_one, small_model, start)
    assert said[0] == said[1]
    assert "the gradient's norm is nan" in said[0]


# ---------------------------------------------------------------- what can't be is said


def refusal(function: Callable[[], object]) -> str:
    try:
        function()
    except ConfigError as error:
        return str(error)
    return "nothing"


def refused_tp(model: Path, family: Path) -> tuple[str, str]:
    two = Ranks.of_world(role="actor", tp=2)
    return (
        refusal(lambda: Base(BasePlan(family, "cpu", "float32", "tp=2"), two)),
        refusal(lambda: Base(BasePlan(model, "cpu", "float32", "ddp"), two)),
    )


def test_a_family_without_a_plan_is_refused(crew: Crew, small_model: Path, tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=40, n_positions=32)
    GPT2LMHeadModel(config).save_pretrained(tmp_path)
    family, grouped = crew.run(refused_tp, small_model, tmp_path)[0]
    assert "layout='tp=2' of a gpt2 model: transformers has no plan for this family" in family
    assert "layout with tp=1: the ranks are grouped for tp=2" in grouped


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"layout": "zero3"}, "layout='zero3': no layout is called so"),
        ({"layout": "fsdp", "sharding": "HYBRID"}, "sharding='HYBRID'.*no such strategy"),
        ({"compression": "int8"}, "no hook has this name\n  fix: use one of fp16, bf16, powersgd"),
        ({"compression": "fp16", "layout": "fsdp"}, "layout 'fsdp' sends no gradients through DistributedDataParallel"),
        ({"compression": "bf16"}, "needs NCCL, and on a CPU there is gloo"),
    ],
)
def test_layouts_that_cannot_be_are_refused_when_written(options: dict[str, str], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        plan_of(Path(), **options)


def test_compression_of_one_rank_is_refused(small_model: Path) -> None:
    with pytest.raises(ConfigError, match="the actor has one rank, so no gradient is sent"):
        Actor(plan_of(small_model, compression="fp16"))


def test_one_rank_of_fsdp_holds_everything(small_model: Path) -> None:
    assert Actor(plan_of(small_model, layout="fsdp")).layout == Layout("ddp")
