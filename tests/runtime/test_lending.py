"""A trainer split over two ranks, on the storage of an engine split over them; and what can't be lent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.rollout.families import loaded
from tests.rollout.ranks import Ranks, say
from workbench.errors import ConfigError
from workbench.rollout.config import VLLM
from workbench.rollout.engine import Engine, EnginePlan
from workbench.rollout.tensors import Laid, Part
from workbench.runtime.lending import _views, lent, parameters_of


def work(rank: int, model: Path) -> None:
    """What of the trainer's weights lies where, in pieces and joined."""
    from workbench.models.actor import Actor, ActorPlan
    from workbench.models.lora import LoRA
    from workbench.models.optimizer import Optimizer
    from workbench.models.ranks import Ranks as Trained
    from workbench.models.shards import whole
    from workbench.models.tokenizer import Tokenizer

    config = VLLM(window=64, block_size=32, max_sequences=8, kv_cache_gib=0.05)
    engine = Engine(EnginePlan(model, Tokenizer(model).raw, 4, "cpu", "float32", 0, config, tp=2, mode="zero_copy"))
    plan = ActorPlan(model, LoRA(rank=4, alpha=8), Optimizer(), "cpu", "float32", 0, "tp=2")
    actor = Actor(plan, Trained.of_world(role="actor", tp=2), storage=lent(engine))
    storages = {tensor.untyped_storage().data_ptr() for tensor in engine.tensors().values()}
    own = {name for name, piece in actor.base_weights().items() if piece.untyped_storage().data_ptr() not in storages}
    joined = {name.replace(".base_layer.", "."): whole(p.detach()) for name, p in actor.body.named_parameters() if "lora_" not in name}
    there = dict(loaded(model).named_parameters())
    say({"own": own, "equal": {name for name, tensor in joined.items() if torch.equal(tensor, there[name])}, "all": set(there)})
    engine.close()


@pytest.fixture(scope="module")
def seen(small_model: Path) -> Iterator[list[dict[str, Any]]]:
    """What both ranks say."""
    ranks = Ranks(work, small_model)
    try:
        yield ranks.all()
    finally:
        ranks.kill()


def test_all_but_the_vocabulary_is_the_engines_own_storage(seen: list[dict[str, Any]]) -> None:
    for said in seen:
        assert said["own"] == {"model.embed_tokens.weight"}
        assert said["equal"] == said["all"]  # of the checkpoint's weights every bit, the gathered ones too


# ---------------------------------------------------------------- without an engine


class Place:
    """As much of an engine as says which rank of how many this is."""

    def __init__(self, rank: int, tp: int) -> None:
        self.ranks = self.plan = self
        self.rank, self.tp = rank, tp


def test_views_by_hand() -> None:
    """Of 4 queries' rows and 2 keys', one rank of two has rows 2 and 3, and row 1, in a tensor of three rows."""
    held, laid = torch.arange(6.0).view(3, 2), Laid("qk", 0, (Part("q", 4), Part("k", 2)))
    views = _views(laid, held, Place(1, 2))
    assert {name: view.tolist() for name, view in views.items()} == {"q": [[0, 1], [2, 3]], "k": [[4, 5]]}
    assert all(view.untyped_storage().data_ptr() == held.untyped_storage().data_ptr() for view in views.values())


def test_what_is_fused_in_transformers_too_is_lent_whole_or_not_at_all() -> None:
    held, laid = torch.zeros(4, 2), Laid("gate_up", 0, (Part("gate_up", 2), Part("gate_up", 2)))
    assert _views(laid, held, Place(0, 1))["gate_up"].shape == (4, 2)
    assert [parameter.shape for parameter in parameters_of(laid, held)] == [(4, 2)]
    with pytest.raises(ConfigError, match=r"gate_up is cut in 2 parts there, each by itself.*\n  fix: mode: merged or adapter"):
        _views(laid, held[:2], Place(0, 2))
