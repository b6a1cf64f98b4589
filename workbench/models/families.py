"""Which families of models can be read here, told from a checkpoint's configuration alone, before any weight is loaded."""

from pathlib import Path
from typing import Any

import torch

from workbench.errors import ConfigError
from workbench.models import attention
from workbench.models.lora import LoRA, frozen_reader, refusing

TESTED = "Llama, SmolLM, Qwen2, Qwen3"


def check_family(path: Path, lora: LoRA | None, mode: str, device: str) -> None:
    """Raise ConfigError on a family whose rows can't be packed, or whose experts can't be trained and sampled from as ``mode`` says."""
    asked = f"model {str(path)!r}"
    model = frozen_reader(skeleton(path), path)
    experts = sorted({name.rpartition(".")[0] for name, parameter in model.named_parameters() if parameter.dim() > 2})
    if not experts:
        return
    found = f"a {model.config.model_type} model keeps all experts of a layer in one parameter ({experts[0]})"
    other = f"use a family without experts: {TESTED}"
    if device == "cpu":
        raise ConfigError(f"{asked} on a CPU", f"{found}, and vLLM's adapters beside experts need a GPU", other)
    if mode != "adapter" or lora is None:
        fix = other if lora is None else f"{other}; or mode: adapter"
        raise ConfigError(f"{asked}, mode {mode}", f"{found}, which vLLM's tables don't name", fix)
    if lora.targets == "all-linear":
        linear = dict.fromkeys(name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, torch.nn.Linear))
        names = ", ".join(repr(name) for name in linear if name != "lm_head")
        raise ConfigError(
            f"{asked}, LoRA(targets='all-linear')", f"{found}, and its adapter fits no slot of vLLM's", f"LoRA(targets=({names}))"
        )


def skeleton(path: Path) -> Any:
    """The model of ``path`` without memory for its weights. Raises ConfigError where transformers makes no causal model of it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with refusing(path), torch.device("meta"):
        return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(path), attn_implementation=attention.register())
