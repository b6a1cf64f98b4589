"""An actor without an adapter: all weights learn what a plain model would, on one rank and on several."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.models.crew import Crew
from workbench.algos import GRPO
from workbench.errors import ConfigError
from workbench.models.actor import Actor, ActorPlan, Update
from workbench.models.experience import Experience, shares
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
    "fp16": {"compression": "fp16"},
}
UP = "model.layers.1.mlp.up_proj.weight"
Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2)
    yield crew
    crew.close()


@pytest.fixture(scope="module")
def untied_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen2 with biases and an output head of its own."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    path = tmp_path_factory.mktemp("untied")
    torch.manual_seed(2)
    Qwen2ForCausalLM(Qwen2Config(vocab_size=39, initializer_range=0.1, **sizes)).save_pretrained(path)  # 39: the ranks' pieces differ
    return path


@pytest.fixture(scope="module", params=["tied", "untied"])
def model(request: pytest.FixtureRequest, small_model: Path, untied_model: Path) -> Path:
    return small_model if request.param == "tied" else untied_model


def make(path: Path, ranks: Ranks | None = None, **options: object) -> Actor:
    optimizer = Optimizer(learning_rate=1e-3, token_budget=60)
    return Actor(ActorPlan(path, None, optimizer, **{"device": "cpu", "dtype": "float32", "seed": 0, **options}), ranks)


def experience(actor: Actor) -> Experience:
    """Twelve rows; in the second of three minibatches all but one have no advantage, so that one rank of two has none to learn from."""
    generator = torch.Generator().manual_seed(5)

    def ids(longest: int) -> tuple[int, ...]:
        length = int(torch.randint(1, longest, (1,), generator=generator))
        return tuple(torch.randint(2, 38, (length,), generator=generator).tolist())

    rows = [Row(ids(9), ids(40)) for _ in range(12)]
    values = torch.randn(12, generator=generator)
    values[[2, 5, 6, 7]] = 0
    engine = [logp.tolist() for logp in actor.score(rows, 0.7)]
    advantages = [torch.full((len(row.response),), float(value)) for row, value in zip(rows, values, strict=True)]
    return Experience(rows, engine, advantages, None, 0.7, 40)


def gradients(actor: Actor, data: Experience, part: int) -> Tensors:
    """Of one optimizer step, summed over the ranks and whole, before it is made."""
    share = shares(data, ALGO, actor.ranks.data_size)[actor.ranks.data_index]
    actor.learner.clear()
    together(actor.learner, accumulate(actor.learner, actor.lesson(share, ALGO, share.parts, {}), share.parts[part], lambda: False))
    actor.learner.sum_gradients()
    return {name: gradient.clone().cpu() for name, gradient in actor.learner.whole_gradients().items()}


# ---------------------------------------------------------------- one rank


def test_gradients_are_those_of_a_plain_model_with_full_logits(model: Path) -> None:
    from transformers import AutoModelForCausalLM

    actor = make(model)
    data = experience(actor)
    seen = gradients(actor, data, 0)
    plain = AutoModelForCausalLM.from_pretrained(model, attn_implementation="eager", dtype=torch.float32)
    share = shares(data, ALGO, 1)[0]
    for row in share.parts[0]:
        ids = torch.tensor([data.rows[row].prompt + data.rows[row].response])
        logp = (plain(input_ids=ids).logits[0, :-1] / 0.7).log_softmax(-1)[torch.arange(ids.shape[1] - 1), ids[0, 1:]]
        # on policy the ratio is 1, so the surrogate's gradient is that of -A·logp
        (-share.weights[row] * data.advantages[row] * logp[len(data.rows[row].prompt) - 1 :]).sum().backward()
    wanted = {name: parameter.grad for name, parameter in plain.named_parameters()}
    assert seen.keys() == wanted.keys()
    for name, gradient in wanted.items():
        torch.testing.assert_close(seen[name], gradient, atol=1e-5, rtol=1e-3)
        assert gradient.any()


def test_an_update_moves_every_weight_towards_what_was_rewarded(model: Path) -> None:
    actor = make(model)
    data = experience(actor)
    before, was = {name: tensor.clone() for name, tensor in actor.weights().items()}, actor.score(data.rows, 0.7)
    update = actor.update(data, ALGO, 1e-3)
    assert (update.optimizer_steps, actor.updates) == (3, 3)
    assert all(not torch.equal(tensor, before[name]) for name, tensor in actor.weights().items())
    gained = [
        (after - logp).sum() * advantage[0]
        for after, logp, advantage in zip(actor.score(data.rows, 0.7), was, data.advantages, strict=True)
    ]
    assert sum(gained) > 0


def test_weights_are_live_and_have_the_checkpoints_names(model: Path) -> None:
    actor, saved = make(model), load_file(model / "model.safetensors")
    weights = actor.weights()
    assert weights.keys() == saved.keys()
    assert all(torch.equal(tensor, saved[name]) for name, tensor in weights.items())
    actor.update(experience(actor), ALGO, 1e-3)
    assert torch.equal(weights[UP], actor.trainer_state()[f"weight.{UP}"])  # the storage that was there before
    assert not any(tensor.requires_grad for tensor in weights.values())


def test_bytes_of_a_bfloat16_parameter_are_those_of_the_docstring(small_model: Path) -> None:
    actor = make(small_model, dtype="bfloat16")
    gradients(actor, experience(actor), 0)
    parameters = sum(tensor.numel() for tensor in actor.weights().values())
    held = list(actor.learner.named.values()) + actor.masters.parameters
    assert sum(tensor.nbytes for tensor in held) == 6 * parameters
    assert all(parameter.grad is None for parameter in actor.learner.named.values())
    assert sum(master.grad.nbytes for master in actor.masters.parameters) == 4 * parameters
    actor.update(experience(actor), ALGO, 1e-3)
    moments = [
        tensor for state in actor.learner.optimizer.state_dict()["state"].values() for tensor in state.values() if tensor.numel() > 1
    ]
    assert sum(tensor.nbytes for tensor in moments) == 8 * parameters


def test_float32_masters_keep_what_bfloat16_would_swallow(small_model: Path) -> None:
    actor = make(small_model, dtype="bfloat16")
    name = "model.norm.weight"  # all ones: bfloat16 has nothing between 1 and 1 - 2^-8
    for _ in range(3):
        actor.update(experience(actor), ALGO, 1e-5)
    master = actor.trainer_state()[f"weight.{name}"]
    assert 1e-5 < (master - 1).abs().max() < 1e-3
    assert torch.equal(actor.weights()[name], torch.ones_like(master, dtype=torch.bfloat16))
    assert all(torch.equal(tensor, actor.trainer_state()[f"weight.{n}"].bfloat16()) for n, tensor in actor.weights().items())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_goes_on_from_its_state_bit_for_bit(model: Path, dtype: str) -> None:
    actor = make(model, dtype=dtype)
    data = experience(actor)
    actor.update(data, ALGO, 1e-3)
    resumed = make(model, dtype=dtype)
    resumed.load_trainer_state(actor.trainer_state(), actor.updates)
    assert actor.update(data, ALGO, 1e-3) == resumed.update(data, ALGO, 1e-3)
    mine, other = actor.trainer_state(), resumed.trainer_state()
    assert mine.keys() == other.keys()
    assert all(torch.equal(tensor, other[name]) for name, tensor in mine.items())
    assert resumed.updates == 6


def test_what_is_saved_is_a_model_of_transformers(model: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    actor = make(model)
    actor.update(experience(actor), ALGO, 1e-3)
    actor.save(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    assert all(torch.equal(parameter, actor.weights()[name]) for name, parameter in loaded.named_parameters())
    saved, other = experience(make(tmp_path)), experience(actor)
    assert saved.engine_logp == other.engine_logp


# ---------------------------------------------------------------- several ranks


@dataclasses.dataclass(frozen=True)
class Learnt:
    """What came of an update on one rank."""

    gradients: list[Tensors]
    weights: Tensors  # this rank's pieces
    state: Tensors
    update: Update
    finite: tuple[bool, bool]  # before and after a weight of this rank, where it is the second, was spoilt


def learn(model: Path, data: Experience, options: dict[str, str], folder: Path) -> Learnt:
    actor = make(model, Ranks.of_world(role="actor"), **options)
    before = [gradients(actor, data, part) for part in range(3)]
    update = actor.update(shares(data, ALGO, 2)[actor.ranks.rank], ALGO, 1e-3)
    weights, state, well = {n: t.clone().cpu() for n, t in actor.weights().items()}, actor.trainer_state(), actor.is_finite()
    actor.save(folder)
    if actor.ranks.rank == 1:
        actor.weights()["model.norm.weight"][0] = torch.inf
    return Learnt(before, weights, state, update, (well, actor.is_finite()))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_ranks_learn_what_one_process_would(crew: Crew, model: Path, layout: str, tmp_path: Path) -> None:
    alone = make(model)
    data = experience(alone)
    wanted = [gradients(alone, data, part) for part in range(3)]
    update = alone.update(data, ALGO, 1e-3)
    first, second = crew.run(learn, model, data, LAYOUTS[layout], tmp_path)
    loose = 2e-3 if layout == "fp16" else 1e-5
    assert first.update == second.update
    assert (first.update.tokens, first.update.optimizer_steps) == (update.tokens, 3)
    assert first.update.grad_norm == pytest.approx(update.grad_norm, rel=max(loose, 1e-4))
    for seen, right in zip(first.gradients, wanted, strict=True):
        assert seen.keys() == right.keys()
        for name, gradient in right.items():
            assert (seen[name] - gradient).norm() <= loose * gradient.norm() + 1e-6, name
    for name, tensor in first.state.items():
        assert torch.equal(tensor, second.state[name]), name
    pieces = [first.weights, second.weights]
    for name, tensor in first.weights.items():
        whole = torch.cat([piece[name] for piece in pieces]) if "fsdp" in LAYOUTS[layout].values() else tensor
        assert torch.equal(whole, first.state[f"weight.{name}"]), name
    saved = load_file(tmp_path / "model.safetensors")
    assert saved.keys() == first.weights.keys()
    assert all(torch.equal(tensor, first.state[f"weight.{name}"]) for name, tensor in saved.items())
    assert first.finite == second.finite == (True, False)


def go_on(model: Path, state: Tensors, data: Experience, options: dict[str, str]) -> tuple[Tensors, Tensors]:
    actor = make(model, Ranks.of_world(role="actor"), **options)
    actor.load_trainer_state(state, 3)
    before = actor.trainer_state()
    actor.update(shares(data, ALGO, 2)[actor.ranks.rank], ALGO, 1e-3)
    return before, actor.trainer_state()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_checkpoint_goes_from_layout_to_layout(crew: Crew, untied_model: Path, dtype: str) -> None:
    alone = make(untied_model, dtype=dtype)
    data = experience(alone)
    alone.update(data, ALGO, 1e-3)
    state = alone.trainer_state()
    before, after = crew.run(go_on, untied_model, state, data, {"layout": "fsdp", "dtype": dtype})[0]
    assert before.keys() == state.keys()
    assert all(torch.equal(before[name], tensor) for name, tensor in state.items())
    again = crew.run(go_on, untied_model, state, data, {"layout": "fsdp", "dtype": dtype})[1][1]
    assert all(torch.equal(again[name], tensor) for name, tensor in after.items())
    back = make(untied_model, dtype=dtype)
    back.load_trainer_state(after, 6)
    assert all(torch.equal(tensor, after[name]) for name, tensor in back.trainer_state().items())


def kept(model: Path) -> tuple[int, bool]:
    """How many tensors a rank gets of a state that the first alone keeps, and whether they are the whole of it."""
    actor = make(model, Ranks.of_world(role="actor"), layout="fsdp")
    state, whole = actor.trainer_state(keep=not actor.ranks.rank), actor.trainer_state()
    return len(state), all(torch.equal(tensor, whole[name]) for name, tensor in state.items())


def test_one_rank_may_keep_the_state_of_all(crew: Crew, small_model: Path) -> None:
    assert crew.run(kept, small_model) == [(len(load_file(small_model / "model.safetensors")), True), (0, True)]


# ---------------------------------------------------------------- what can't be is said


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda actor: actor.score([], 1.0, adapter=False), r"score\(adapter=False\)"),
        (lambda actor: actor.adapter(), r"adapter\(\)"),
        (lambda actor: actor.adapter_config(), r"adapter_config\(\)"),
        (lambda actor: actor.base_weights(), r"base_weights\(\)"),
        (lambda actor: actor.deltas(), r"deltas\(\)"),
    ],
)
def test_what_needs_an_adapter_is_refused(small_model: Path, call: Callable[[Actor], object], asked: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{asked} of the actor: all of its weights are trained: there is no adapter, and no base is left"
    ):
        call(make(small_model))


def test_layouts_and_company_that_can_not_be_are_refused(small_model: Path) -> None:
    with pytest.raises(ConfigError, match="train all weights under tp=2: transformers splits a frozen model"):
        ActorPlan(small_model, None, Optimizer(), "cpu", "float32", 0, "tp=2")
    plan = ActorPlan(small_model, None, Optimizer(), "cpu", "float32", 0)
    with pytest.raises(ConfigError, match="critic on the actor's base: all of the actor's weights are trained"):
        Actor(plan, beside={"critic": (LoRA(), 0)})
    with pytest.raises(ConfigError, match="must not sample from weights that are being trained"):
        Actor(plan, storage={})
    with pytest.raises(ConfigError, match="another model or LoRA"):
        Actor(plan).load_trainer_state(Actor(dataclasses.replace(plan, lora=LoRA())).trainer_state(), 0)
