"""Models on tensors fused as an engine fuses them, against the same models loaded from disk."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.algos import GRPO
from workbench.errors import ConfigError
from workbench.models.actor import Actor, ActorPlan
from workbench.models.base import Base, BasePlan
from workbench.models.borrow import borrow
from workbench.models.experience import Experience
from workbench.models.lora import LoRA, load_base
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row

CPU = torch.device("cpu")
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
PADDED = 64  # rows of the engine's embedding
FAMILIES = ("llama", "qwen2", "qwen3")
SIZES = {
    "vocab_size": 40,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "initializer_range": 0.2,
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Llama, Qwen2 (biases, tied embeddings) and Qwen3 (norms of queries and keys), with rotary frequencies that are no default."""
    from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

    scaled = {"rope_type": "llama3", "rope_theta": 5e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    configs = {
        "llama": LlamaConfig(**SIZES, rope_parameters={**scaled, "original_max_position_embeddings": 64}),
        "qwen2": Qwen2Config(**SIZES, tie_word_embeddings=True),
        "qwen3": Qwen3Config(**SIZES, head_dim=32),
    }
    folder = tmp_path_factory.mktemp("families")
    torch.manual_seed(0)
    for family, config in configs.items():
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:  # they start at 0 and 1
                torch.nn.init.normal_(parameter, mean=float("norm" in name), std=0.2)
        model.save_pretrained(folder / family)
    return {family: folder / family for family in configs}


@dataclass(frozen=True)
class Engine:
    """Whole tensors as an engine has them, and the views on them by transformers' names."""

    tensors: dict[str, torch.Tensor]
    views: dict[str, torch.Tensor]

    @property
    def bytes(self) -> int:
        return sum(tensor.untyped_storage().nbytes() for tensor in self.tensors.values())


def engine_of(path: Path, dtype: torch.dtype = torch.float32) -> Engine:
    parameters = dict(load_base(path, CPU, dtype).named_parameters())
    tensors, views = {}, {}
    for name in parameters:
        module = name.split(".")[-2]
        into, parts = next(((into, parts) for into, parts in FUSED.items() if module in parts), (module, (module,)))
        fused = name.replace(module, into)
        if fused in tensors:
            continue
        rows = [parameters[name.replace(module, part)].detach() for part in parts]
        if module in ("embed_tokens", "lm_head"):
            rows.append(torch.zeros(PADDED - len(rows[0]), rows[0].shape[1], dtype=dtype))
        tensors[fused] = torch.nn.Parameter(torch.cat(rows), requires_grad=False)
        for part, view in zip(parts, tensors[fused].split([len(r) for r in rows])[: len(parts)], strict=True):
            views[name.replace(module, part)] = view
    return Engine(tensors, views)


def logits(model: Any, device: torch.device = CPU) -> torch.Tensor:
    with torch.no_grad():
        seen: torch.Tensor = model(input_ids=torch.arange(2, 34, device=device)[None]).logits
    return seen


class Made(TorchDispatchMode):
    """Counts the bytes of storage that operations make on the CPU, whether they are kept or not."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[int] = set()
        self.kept: list[torch.Tensor] = []  # so that no address is used twice
        self.bytes = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            given = {x.untyped_storage().data_ptr() for x in args if isinstance(x, torch.Tensor) and x.device == CPU}
            if isinstance(tensor, torch.Tensor) and tensor.device == CPU and tensor.untyped_storage().data_ptr() not in self.known | given:
                self.known.add(tensor.untyped_storage().data_ptr())
                self.kept.append(tensor)
                self.bytes += tensor.untyped_storage().nbytes()
        return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_have_the_bits_of_the_model_from_disk(checkpoints: dict[str, Path], family: str, dtype: torch.dtype) -> None:
    engine = engine_of(checkpoints[family], dtype)
    model = borrow(checkpoints[family], engine.views, CPU, dtype)
    wanted = logits(load_base(checkpoints[family], CPU, dtype))
    assert wanted.dtype == dtype
    assert torch.equal(logits(model), wanted)
    assert not model.training


@pytest.mark.parametrize("family", FAMILIES)
def test_its_storage_is_the_lenders_and_it_makes_none(checkpoints: dict[str, Path], family: str) -> None:
    engine = engine_of(checkpoints[family])
    with Made() as made:
        model = borrow(checkpoints[family], engine.views, CPU, torch.float32)
    assert 0 < made.bytes < engine.bytes / 20  # rotary frequencies, and two tokens on their way to the first attention
    lent = {tensor.untyped_storage().data_ptr() for tensor in engine.tensors.values()}
    for name, parameter in model.named_parameters():
        assert parameter.untyped_storage().data_ptr() in lent, name
        assert parameter.data_ptr() == engine.views[name].data_ptr(), name
    head, embedding = model.get_output_embeddings().weight, model.get_input_embeddings().weight
    assert (head is embedding) == (family == "qwen2")
    engine.tensors["model.layers.1.self_attn.qkv_proj.weight"].zero_()  # what the lender writes is there at once
    assert not model.model.layers[1].self_attn.v_proj.weight.any()


def rows() -> list[Row]:
    return [Row((2, 3, n), tuple(range(4, 5 + n))) for n in range(5, 13)]


def experience(actor: Actor) -> Experience:
    advantages = [torch.full((len(row.response),), n - 3.5) for n, row in enumerate(rows())]
    return Experience(rows(), [x.tolist() for x in actor.score(rows(), 1.0)], advantages, None, 1.0, 16)


@pytest.mark.parametrize("family", FAMILIES)
def test_an_actor_learns_on_it_as_on_a_base_of_its_own_and_leaves_it_as_it_was(checkpoints: dict[str, Path], family: str) -> None:
    engine = engine_of(checkpoints[family], torch.bfloat16)
    before = {name: tensor.clone() for name, tensor in engine.tensors.items()}
    plan = ActorPlan(checkpoints[family], LoRA(rank=4), Optimizer(), "cpu", "bfloat16", 0)
    shared, own = Actor(plan, storage=engine.views), Actor(plan)
    addresses = {name: tensor.data_ptr() for name, tensor in shared.base_weights().items()}
    assert addresses == {name: view.data_ptr() for name, view in engine.views.items()}
    for actor in (shared, own):
        for _ in range(2):
            assert actor.update(experience(actor), GRPO(group_size=4, minibatches=2), 1e-2).optimizer_steps == 2
    for mine, other in zip(shared.score(rows(), 1.0), own.score(rows(), 1.0), strict=True):
        assert torch.equal(mine, other)
    assert any(not torch.equal(a, b) for a, b in zip(shared.score(rows(), 1.0), shared.score(rows(), 1.0, adapter=False), strict=True))
    assert all(torch.equal(tensor, before[name]) for name, tensor in engine.tensors.items())
    assert addresses == {name: tensor.data_ptr() for name, tensor in shared.base_weights().items()}


def test_a_layer_compiled_over_fused_rows_copies_none_of_them(checkpoints: dict[str, Path]) -> None:
    """What the compiler is given are the views themselves; it would ask for another layout by a copy inside of the graph."""
    engine, inputs = engine_of(checkpoints["qwen2"]), []

    def look(graph: torch.fx.GraphModule, given: list[torch.Tensor]) -> Any:
        inputs.extend(given)
        return graph.forward

    model = borrow(checkpoints["qwen2"], engine.views, CPU, torch.float32)
    wanted = logits(model)
    for layer in model.model.layers:
        layer.compile(backend=look)
    assert torch.equal(logits(model), wanted)
    lent = {view.data_ptr() for name, view in engine.views.items() if ".layers.0." in name}
    assert lent <= {tensor.data_ptr() for tensor in inputs if isinstance(tensor, torch.Tensor)}


# ---------------------------------------------------------------- what can't be lent is said

Q = "model.layers.0.self_attn.q_proj.weight"  # (64, 64)


@torch.inference_mode()
def _inferred(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone()


REFUSED = [
    pytest.param(lambda t: {n: x for n, x in t.items() if n != Q}, f"{Q} is not among them", id="missing"),
    pytest.param(lambda t: {n: x for n, x in t.items() if "k_proj" not in n}, "and 1 more are not among them", id="four missing"),
    pytest.param(
        lambda t: {**t, "lm_head.weight": t["model.embed_tokens.weight"]},
        r"lm_head\.weight is no parameter of it \(a tied",
        id="tied twice",
    ),
    pytest.param(lambda t: {**t, Q: t[Q][:32]}, rf"{Q}: its shape is \(32, 64\), and the model's \(64, 64\)", id="shape"),
    pytest.param(lambda t: {**t, Q: t[Q].half()}, rf"{Q}: its dtype is float16, and the model's float32", id="dtype"),
    pytest.param(lambda t: {**t, Q: t[Q].T}, rf"{Q}: its elements are not one block \(stride \(1, 64\)\)", id="turned"),
    pytest.param(lambda t: {**t, Q: torch.zeros(64, 128)[:, :64]}, rf"{Q}: its elements are not one block", id="columns"),
    pytest.param(lambda t: {**t, Q: t[Q].to("meta")}, rf"{Q}: it is on meta, and the model on cpu", id="elsewhere"),
    pytest.param(lambda t: {**t, Q: _inferred(t[Q])}, rf"{Q}: it was made in inference mode", id="inference"),
]


@pytest.mark.parametrize(("change", "match"), REFUSED)
def test_what_does_not_fit_is_refused_by_name(checkpoints: dict[str, Path], change: Any, match: str) -> None:
    lent = change(engine_of(checkpoints["qwen2"]).views)
    with pytest.raises(ConfigError, match=match):
        borrow(checkpoints["qwen2"], lent, CPU, torch.float32)


def test_a_device_may_go_by_its_number(checkpoints: dict[str, Path]) -> None:
    """As accelerate calls it in a world of several ranks."""
    borrow(checkpoints["qwen2"], engine_of(checkpoints["qwen2"]).views, torch.device("cpu", 0), torch.float32)


def test_a_family_with_buffers_of_another_kind_is_refused(tmp_path: Path) -> None:
    from transformers import GemmaConfig, GemmaForCausalLM

    model = GemmaForCausalLM(GemmaConfig(**SIZES, head_dim=16))
    model.save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"model\.embed_tokens holds embed_scale, which no rule here makes anew"):
        borrow(tmp_path, dict(model.named_parameters()), CPU, torch.float32)


def test_no_checkpoint_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a folder or hub name of a causal language model"):
        borrow(tmp_path, {}, CPU, torch.float32)


def test_a_base_in_pieces_can_not_lie_on_it(checkpoints: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.models.layouts import Layout

    monkeypatch.setattr(Layout, "over", lambda layout, ranks: layout)  # as on several ranks
    with pytest.raises(ConfigError, match="layout='fsdp': this layout keeps its weights in pieces of its own"):
        Base(BasePlan(checkpoints["llama"], "cpu", "float32", "fsdp"), storage={})


def test_a_checkpoint_without_some_weights_is_refused(checkpoints: dict[str, Path], tmp_path: Path) -> None:
    """transformers would make them up, and the engine has others. A critic reads no output head."""
    from shutil import copytree

    from safetensors.torch import load_file, save_file

    views = engine_of(checkpoints["llama"]).views
    for lost in ("lm_head.weight", Q):
        folder = copytree(checkpoints["llama"], tmp_path / lost)
        tensors = load_file(folder / "model.safetensors")
        del tensors[lost]
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        for load in (lambda: load_base(folder, CPU, torch.float32), lambda: borrow(folder, views, CPU, torch.float32)):  # noqa: B023
            with pytest.raises(ConfigError, match=rf"its files lack {lost}: they would be random"):
                load()
    load_base(tmp_path / "lm_head.weight", CPU, torch.float32, head=False)
    with pytest.raises(ConfigError, match=Q):
        load_base(tmp_path / Q, CPU, torch.float32, head=False)
