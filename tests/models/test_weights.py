"""The names and numbers of weights that leave the trainer, in every layout."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.models.crew import Crew
from workbench.errors import ConfigError
from workbench.models.actor import Actor, ActorPlan
from workbench.models.layouts import Layout
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.ranks import Ranks
from workbench.models.weights import adapted

ROWS = {"q_proj": 0, "gate_proj": 0, "o_proj": 1, "down_proj": 1}  # along which dimension tensor parallelism cuts


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    crew = Crew(2)
    yield crew
    crew.close()


def stirred(model: Path, ranks: Ranks | None = None, layout: str = "ddp", dtype: str = "float32") -> Actor:
    """With a B that does something: it begins at zero."""
    actor = Actor(ActorPlan(model, LoRA(rank=4, alpha=8), Optimizer(), "cpu", dtype, 0, layout), ranks)
    generator, state = torch.Generator().manual_seed(1), actor.trainer_state()
    for name, tensor in sorted(state.items()):
        if "lora_B" in name:
            tensor.normal_(std=0.1, generator=generator)
    actor.load_trainer_state(state, 0)
    return actor


def test_the_base_has_the_names_and_bits_of_its_checkpoint(small_model: Path) -> None:
    actor, saved = stirred(small_model), load_file(small_model / "model.safetensors")
    weights = actor.base_weights()
    assert weights.keys() == saved.keys()  # tied: the checkpoint has no lm_head either
    assert all(torch.equal(weights[name], tensor) for name, tensor in saved.items())
    live = actor.body.model.layers[1].mlp.up_proj.base_layer.weight
    assert weights["model.layers.1.mlp.up_proj.weight"].data_ptr() == live.data_ptr()
    assert not any(tensor.requires_grad for tensor in weights.values())


def test_base_and_deltas_are_what_peft_merges(small_model: Path) -> None:
    actor = stirred(small_model)
    weights, deltas = actor.base_weights(), actor.deltas()
    assert len(deltas) == 2 * 7
    assert {d.scaling for d in deltas.values()} == {2.0}
    merged = {name: tensor + deltas[name].scaling * deltas[name].b @ deltas[name].a for name, tensor in weights.items() if name in deltas}
    for name, tensor in actor.model.merge_and_unload().named_parameters():
        torch.testing.assert_close(merged.get(name, weights.get(name)), tensor.detach(), atol=1e-6, rtol=0)


def test_another_adapter_on_the_base_is_left_out(small_model: Path) -> None:
    plan = ActorPlan(small_model, LoRA(rank=4, targets=("q_proj",)), Optimizer(), "cpu", "float32", 0)
    actor = Actor(plan, beside={"critic": (LoRA(rank=2), 1)})
    assert sorted(actor.deltas()) == [f"model.layers.{n}.self_attn.q_proj.weight" for n in (0, 1)]
    assert actor.base_weights().keys() == load_file(small_model / "model.safetensors").keys()


def in_crew(model: Path, layout: str) -> tuple[dict[str, torch.Tensor], dict[str, tuple[torch.Tensor, torch.Tensor, float]]]:
    actor = stirred(model, Ranks.of_world(role="actor", tp=Layout.parse(layout).tp), layout)
    return {name: tensor.clone() for name, tensor in actor.base_weights().items()}, {n: tuple(d) for n, d in actor.deltas().items()}


@pytest.mark.parametrize("layout", ["ddp", "fsdp", "tp=2"])
def test_pieces_make_up_the_base_and_every_rank_has_whole_deltas(crew: Crew, small_model: Path, layout: str) -> None:
    saved, wanted = load_file(small_model / "model.safetensors"), stirred(small_model).deltas()
    first, second = crew.run(in_crew, small_model, layout)
    for name, tensor in saved.items():
        mine, other = first[0][name], second[0][name]
        if layout == "fsdp" or (layout == "tp=2" and mine.shape != tensor.shape):
            mine = torch.cat([mine, other], ROWS.get(name.split(".")[-2], 0) if layout != "fsdp" else 0)
        assert torch.equal(mine, tensor), name
    for deltas in (first[1], second[1]):
        assert deltas.keys() == wanted.keys()
        for name, (a, b, scaling) in deltas.items():
            assert torch.equal(a, wanted[name].a), name
            assert torch.equal(b, wanted[name].b), name
            assert scaling == 2.0


def test_a_layer_that_keeps_its_weight_the_other_way_round_is_refused() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    from workbench.models.lora import add_adapter

    body = GPT2LMHeadModel(GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=40, n_positions=32))
    with pytest.warns(UserWarning, match="fan_in_fan_out"):
        add_adapter(body, LoRA(rank=2), 0)
    with pytest.raises(ConfigError, match=r"merge the adapter into transformer\.h\.0\.attn\.c_attn: it keeps its weight as \(in, out\)"):
        adapted(body, "default")
