"""The weights of a model by the names that transformers gives them, however the model is wrapped: what a sync sends."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from workbench.errors import ConfigError
from workbench.models.shards import all_whole, piece


class Factors(NamedTuple):
    """What an adapter adds to one weight: scaling·B·A, in the trainer's precision."""

    a: torch.Tensor  # (r, in)
    b: torch.Tensor  # (out, r)
    scaling: float


def named(body: Any) -> dict[str, torch.nn.Parameter]:
    """Every weight by its name in a checkpoint of transformers, adapters left out, tied weights once."""
    parameters = {name: parameter for name, parameter in body.named_parameters() if "lora_" not in name}
    return {name.replace(".base_layer.", "."): parameter for name, parameter in parameters.items()}


def pieces(parameters: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """This rank's piece of each, live."""
    return {name: piece(parameter.detach()) for name, parameter in parameters.items()}


def adapted(body: Any, adapter: str) -> dict[str, Factors]:
    """What ``adapter`` adds to which weight, by the weight's name as in ``named``: the live factors as they lie, maybe in pieces.

    Raises ConfigError on a layer that keeps its weight the other way round.
    """
    found = {}
    for name, module in body.named_modules():
        if adapter not in getattr(module, "lora_A", {}):
            continue
        if module.fan_in_fan_out:
            what = "it keeps its weight as (in, out), and B·A is (out, in)"
            raise ConfigError(f"merge the adapter into {name}", what, "use a family of linear layers: Llama, SmolLM, Qwen2, Qwen3")
        a, b = (layer[adapter].weight for layer in (module.lora_A, module.lora_B))
        found[f"{name}.weight"] = Factors(a, b, float(module.scaling[adapter]))
    return found


def whole_factors(factors: Mapping[str, Factors]) -> dict[str, Factors]:
    """Each of ``factors``, whole; live where it is whole already. Every rank has to call this."""
    tensors = all_whole([half.detach() for one in factors.values() for half in (one.a, one.b)])
    pairs = zip(tensors[::2], tensors[1::2], strict=True)
    return {name: Factors(a, b, one.scaling) for (name, one), (a, b) in zip(factors.items(), pairs, strict=True)}
