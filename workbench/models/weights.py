"""The weights of a model by the names that transformers gives them, however the model is wrapped: what a sync sends."""

from typing import Any, NamedTuple

import torch

from workbench.errors import ConfigError
from workbench.models.shards import piece, whole


class Factors(NamedTuple):
    """What an adapter adds to one weight: scaling·B·A, whole, in the trainer's precision."""

    a: torch.Tensor  # (r, in)
    b: torch.Tensor  # (out, r)
    scaling: float


def pieces(body: Any) -> dict[str, torch.Tensor]:
    """This rank's piece of every weight, by its name in a checkpoint of transformers: live, adapters left out, tied weights once."""
    parameters = {name: parameter for name, parameter in body.named_parameters() if "lora_" not in name}
    return {name.replace(".base_layer.", "."): piece(parameter.detach()) for name, parameter in parameters.items()}


def factors(body: Any, adapter: str) -> dict[str, Factors]:
    """What ``adapter`` adds to which weight, by the weight's name as in ``pieces``; live where a factor is whole already.

    Every rank has to call this. Raises ConfigError on a layer that keeps its weight the other way round.
    """
    found = {}
    for name, module in body.named_modules():
        if adapter not in getattr(module, "lora_A", {}):
            continue
        if module.fan_in_fan_out:
            what = "it keeps its weight as (in, out), and B·A is (out, in)"
            raise ConfigError(f"merge the adapter into {name}", what, "use a family of linear layers: Llama, SmolLM, Qwen2, Qwen3")
        a, b = (whole(layer[adapter].weight.detach()) for layer in (module.lora_A, module.lora_B))
        found[f"{name}.weight"] = Factors(a, b, float(module.scaling[adapter]))
    return found
