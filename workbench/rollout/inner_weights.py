"""Every contact with vLLM's weights: which of the model's parameters lie in which tensor, read from its own tables and layers.

Both versions that are tested (0.23 and 0.32) know the same tables: ``packed_modules_mapping`` of the model says what is fused, the layer
objects say how it is cut. What they can't say is refused by name, never guessed.
"""

from collections.abc import Container, Iterator
from typing import Any

import torch

from workbench.errors import ConfigError, EngineError
from workbench.rollout.inner import runner
from workbench.rollout.tensors import Laid, Part

FIX = "mode: adapter, if vLLM has LoRA for this family; Llama, SmolLM, Qwen2 and Qwen3 are tested in every mode"


def family(llm: Any) -> str:
    """What vLLM calls the model's class."""
    return type(runner(llm).model).__name__


def tensors(llm: Any) -> dict[str, torch.Tensor]:
    """The engine's own weights, live, by its names without LoRA's ".base_layer"; a tied one once.

    Raises EngineError where the engine has packed them away, as it does on a CPU in mode adapter.
    """
    found = {name: parameter.data for name, parameter, _ in _owned(llm)}
    if packed := [name for name, tensor in found.items() if not tensor.numel()]:
        raise EngineError("the engine's weights", f"it keeps {packed[0]} packed for its CPU kernels", "another mode than adapter")
    return found


def laid(llm: Any, known: Container[str]) -> tuple[Laid, ...]:
    """Where each parameter of the model lies. ``known``: the names that transformers has for them.

    Raises ConfigError on quantized weights, and on a layer that is none of those known here.
    """
    quantized = llm.llm_engine.model_config.quantization
    if quantized:
        raise ConfigError(f"weights written into the engine's tensors of {family(llm)}", f"they are quantized ({quantized})", FIX)
    tables = getattr(runner(llm).model, "packed_modules_mapping", {})
    return tuple(_laid(name, parameter, layer, _kept(name, tables, known)) for name, parameter, layer in _owned(llm))


def _kept(name: str, tables: dict[str, list[str]], known: Container[str]) -> dict[str, list[str]]:
    """``tables`` for one weight. What vLLM fuses of parts may be one matrix in transformers, too: then it is a part of itself."""
    last = name.split(".")[-2]
    return tables | {last: [last]} if name in known and last in tables else tables


def _owned(llm: Any) -> Iterator[tuple[str, torch.nn.Parameter, torch.nn.Module]]:
    """Each parameter of the engine's model with its name and the layer that it belongs to; a tied one with the first."""
    seen: set[int] = set()
    for path, layer in runner(llm).model.named_modules():
        for short, parameter in layer.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                yield f"{path}.{short}".replace(".base_layer", ""), parameter, layer


def _laid(name: str, parameter: torch.nn.Parameter, layer: Any, tables: dict[str, list[str]]) -> Laid:
    from vllm.model_executor.layers.linear import ColumnParallelLinear, RowParallelLinear
    from vllm.model_executor.layers.vocab_parallel_embedding import VocabParallelEmbedding

    if isinstance(layer, VocabParallelEmbedding):
        return Laid(name, 0, (_vocabulary(name, layer),), is_vocabulary=True)
    if isinstance(layer, ColumnParallelLinear):
        return Laid(name, 0, _columns(name, layer, tables))
    if isinstance(layer, RowParallelLinear) and name.endswith(".weight"):
        return Laid(name, 1, (Part(name, layer.input_size),))
    return Laid(name, None, (Part(name, parameter.shape[0] if parameter.dim() else 1),))


def _vocabulary(name: str, layer: Any) -> Part:
    if layer.num_added_embeddings:
        raise ConfigError(f"weights written into {name}", f"vLLM has added {layer.num_added_embeddings} rows to it", FIX)
    padded = layer.num_embeddings_padded
    return Part(name, layer.org_vocab_size, padded=padded if padded > layer.org_vocab_size else 0)


def _columns(name: str, layer: Any, tables: dict[str, list[str]]) -> tuple[Part, ...]:
    """The parts of a layer that is cut along its output: queries, keys and values; those of a fused one; itself.

    Where the table calls it a part of itself, all its rows are one parameter, in this order. Without an entry the order isn't known.
    """
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear, QKVParallelLinear

    module, _, kind = name.rpartition(".")
    path, _, last = module.rpartition(".")
    names = [f"{path}.{part}.{kind}" for part in tables.get(last, [last])]
    if isinstance(layer, QKVParallelLinear):
        heads, groups, size, value_size = layer.total_num_heads, layer.total_num_kv_heads, layer.head_size, layer.v_head_size
        # by hand: output_sizes counts repeated heads as often as they are
        rows = [(heads * size, heads, False), (groups * size, groups, True), (groups * value_size, groups, True)]
    elif isinstance(layer, MergedColumnParallelLinear):
        rows = [(size, 0, False) for size in layer.output_sizes]
    else:
        rows = [(layer.output_size, 0, False)]
    names = names * len(rows) if len(names) == 1 and last in tables else names
    if len(names) != len(rows):
        found = f"it holds {len(rows)} matrices, of which vLLM's table names {len(names)} ({', '.join(names)})"
        raise ConfigError(f"weights written into {name}", found, FIX)
    return tuple(Part(part, size, heads=heads, repeated=repeated) for part, (size, heads, repeated) in zip(names, rows, strict=True))
