"""The adapter: what is trained, said in five words, and how the base it sits on is loaded."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.errors import ConfigError, check_kind, spelled
from workbench.models import attention
from workbench.quiet import no_bars

MAX_RANK = 512  # vLLM's largest slot


@spelled(r="rank", lora_alpha="alpha", target_modules="targets")
@dataclass(frozen=True)
class LoRA:
    """Low-rank adapters (arXiv 2106.09685): W + (alpha / rank)·B·A on every targeted linear layer, B starting at zero.

    ``targets``: "all-linear" (every linear layer but the output head), or names such as ("q_proj", "v_proj").
    """

    rank: int = 16
    alpha: float = 32.0
    targets: str | tuple[str, ...] = "all-linear"

    def __post_init__(self) -> None:
        check_kind("LoRA: rank", self.rank, int, "a whole number such as 16")
        check_kind("LoRA: alpha", self.alpha, float, "a number such as 32")
        if not 1 <= self.rank <= MAX_RANK:
            raise ConfigError(
                f"LoRA(rank={self.rank})", f"the engine holds adapters of rank 1 to {MAX_RANK}", "write 16, or 8 to 64 for most work"
            )
        if self.alpha <= 0:
            raise ConfigError(f"LoRA(alpha={self.alpha})", "the adapter would be scaled by 0 or turned around", "write twice the rank")
        if self.targets != "all-linear":
            object.__setattr__(self, "targets", (self.targets,) if isinstance(self.targets, str) else tuple(self.targets))
        if "lm_head" in self.targets:
            raise ConfigError(
                "LoRA(targets=... 'lm_head')",
                "the output head stays frozen: log-probabilities are taken chunk by chunk from it",
                "leave it out",
            )

    @property
    def scaling(self) -> float:
        """What B·A is multiplied by."""
        return self.alpha / self.rank


def load_base(path: Path, device: torch.device, dtype: torch.dtype, *, head: bool = True) -> Any:
    """The frozen base as a transformers model that reads packed rows. Raises ConfigError on a folder that holds no causal model, or not
    all of one; ``head`` False: it may lack the output head, which a critic doesn't read.
    """
    from transformers import AutoModelForCausalLM

    with no_bars(), refusing(path):
        how = {"dtype": dtype, "attn_implementation": attention.register(), "output_loading_info": True}
        model, told = AutoModelForCausalLM.from_pretrained(path, **how)
    check_complete(path, told["missing_keys"], head=head)
    return frozen_reader(model, path).to(device)


def check_complete(path: Path, missing: Iterable[str], *, head: bool = True) -> None:
    """Raise ConfigError where weights are ``missing`` from a checkpoint: transformers would make them up."""
    lost = sorted(name for name in missing if head or not name.startswith("lm_head"))
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        found = f"its files lack {', '.join(lost[:3])}{more}: they would be random"
        raise ConfigError(f"model {str(path)!r}", found, "get the whole checkpoint, or save it again with save_pretrained")


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Within: what transformers raises where ``path`` holds no causal model comes out as a ConfigError."""
    try:
        yield
    except (OSError, ValueError) as error:
        found = str(error).strip().splitlines()[0]
        raise ConfigError(f"model {str(path)!r}", found, "a folder or hub name of a causal language model") from error


def frozen_reader(model: Any, path: Path) -> Any:
    """``model`` frozen, for reading. Raises ConfigError on a family that packed rows or chunks of logits would make another model of."""
    asked = f"model {str(path)!r}"
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ["full_attention"])
    if layers != {"full_attention"} or getattr(config, "sliding_window", None):
        raise ConfigError(
            asked, "its layers attend within a sliding window", "use a family with full attention: Llama, SmolLM, Qwen2, Qwen3"
        )
    if any(getattr(config, name, None) for name in ("final_logit_softcapping", "logit_scale", "logits_scaling")):
        raise ConfigError(asked, "it scales or caps its logits", "use a family that doesn't: Llama, SmolLM, Qwen2, Qwen3")
    if getattr(model.get_output_embeddings(), "bias", None) is not None:
        raise ConfigError(asked, "its output head has a bias", "use a family without: Llama, SmolLM, Qwen2, Qwen3")
    if not attention.is_told(model):
        found = f"transformers' {config.model_type} doesn't pass on to its attention where rows begin, and packed rows would see each other"
        raise ConfigError(asked, found, "use another family: Llama, SmolLM, Qwen2, Qwen3")
    model.config.use_cache = False
    return model.requires_grad_(False).eval()


def add_adapter(base: Any, lora: LoRA, seed: int, name: str = "default") -> Any:
    """``base`` with one more fresh adapter (peft), in the base's precision, initialised from ``seed`` alone. The first is active."""
    from peft import LoraConfig, PeftModel, get_peft_model

    linear = {name for name, module in base.named_modules() if isinstance(module, torch.nn.Linear)} - {"lm_head"}
    for target in () if lora.targets == "all-linear" else lora.targets:
        if not any(name == target or name.endswith(f".{target}") for name in linear):
            found = f"no linear layer of this model is called so; there are {', '.join(sorted({n.rsplit('.', 1)[-1] for n in linear}))}"
            raise ConfigError(f"LoRA(targets=...{target!r}...)", found, "use these, or 'all-linear'")
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,  # type: ignore[arg-type]
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        task_type="CAUSAL_LM",
    )
    device = next(base.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        # peft would keep float32 adapters on a bfloat16 base; the masters are elsewhere (optimizer.py)
        if not isinstance(base, PeftModel):
            return get_peft_model(base, config, adapter_name=name, autocast_adapter_dtype=False)
        base.add_adapter(name, config, autocast_adapter_dtype=False)
        return base
