"""The engine's tensors as plain data: which of the model's parameters lie in which, one after the other, and how they are cut."""

from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError


@dataclass(frozen=True)
class Part:
    """A parameter, by its name in transformers, inside an engine's tensor.

    ``rows``: its size, whole, along the dimension in which the tensor is cut. ``heads``: these rows are that many heads, of which
    none is cut; 0: they are cut anywhere. ``repeated``: where an engine has more ranks than heads, several hold the same one.
    ``padded``: rows are filled up to that many before they are cut (a vocabulary); 0: they are not.
    """

    name: str
    rows: int
    heads: int = 0
    repeated: bool = False
    padded: int = 0


@dataclass(frozen=True)
class Laid:
    """One tensor of the engine: ``parts`` one after the other along ``dim``, each cut along it by itself; None: whole on each rank.

    Parts of one name are one parameter, which transformers keeps fused itself (GLM-4's gate and up, Phi-3's queries, keys and values).
    """

    tensor: str
    dim: int | None
    parts: tuple[Part, ...]
    is_vocabulary: bool = False  # a row a token: the embedding, the output layer

    @property
    def parameters(self) -> dict[str, tuple[Part, ...]]:
        """Parameter -> its parts."""
        found: dict[str, tuple[Part, ...]] = {}
        for part in self.parts:
            found[part.name] = (*found.get(part.name, ()), part)
        return found


Shapes = dict[str, tuple[int, ...]]  # parameter -> shape


def parameter_shapes(model: Path) -> Shapes:
    """Every parameter that transformers makes of the checkpoint's configuration, a tied one once, without memory for any."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(model))
    return {name: tuple(parameter.shape) for name, parameter in skeleton.named_parameters()}


def check_laid(laid: tuple[Laid, ...], shapes: Shapes, family: str) -> None:
    """Refuse a family whose parameters the engine's tensors do not hold exactly once each, in their full sizes."""
    asked = f"weights written into the engine's tensors of {family}"
    fix = "mode: adapter, if vLLM has LoRA for this family; Llama, SmolLM, Qwen2 and Qwen3 are tested in every mode"
    held = [name for one in laid for name in one.parameters]
    strange = sorted({name for name in held if held.count(name) > 1} | (set(held) ^ shapes.keys()))
    if strange:
        few = ", ".join(strange[:3]) + (f" and {len(strange) - 3} more" if len(strange) > 3 else "")
        raise ConfigError(asked, f"vLLM's tables and transformers name different parameters: {few}", fix)
    for one in laid:
        for name, parts in one.parameters.items():
            rows = sum(part.rows for part in parts)
            if rows != shapes[name][one.dim or 0]:
                raise ConfigError(asked, f"{name} is {shapes[name]} in transformers, and {rows} long in {one.tensor}", fix)
