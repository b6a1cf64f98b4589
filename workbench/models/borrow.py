"""A model on weights that somebody else holds: its parameters are views on the engine's tensors, and it has none of its own."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from workbench.errors import ConfigError
from workbench.models import attention
from workbench.models.lora import check_complete, frozen_reader, refusing
from workbench.models.shards import over_as, piece
from workbench.quiet import no_bars

FIX = "lend what Engine.laid() names, or use mode='merged', which keeps a base of its own"


def borrow(
    path: Path,
    tensors: Mapping[str, torch.Tensor],
    device: torch.device,
    dtype: torch.dtype,
    split: Callable[[Any], None] = lambda model: None,
) -> Any:
    """The frozen model of ``path`` on ``tensors``, by transformers' names, tied weights once: no weight is read, none is copied.

    ``split`` lays a model without memory out over ranks; ``tensors`` are then this rank's pieces.

    Only rotary frequencies are made anew, on the CPU as transformers makes them, so that their bits are the same. A row slice of a
    fused tensor is contiguous, so nothing that reads it has to copy it. Raises ConfigError where a tensor is missing, not the
    model's, of another shape, type or device, not contiguous, or made in inference mode, and on a family with other buffers.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    with refusing(path), torch.device("meta"):
        config = AutoConfig.from_pretrained(path)
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation=attention.register())
    asked = f"a model on borrowed weights, {str(path)!r}"
    split(model)
    wanted = dict(model.named_parameters())
    _check_names(asked, wanted, tensors)
    for name, parameter in wanted.items():
        _check_tensor(f"{asked}: {name}", tensors[name], parameter, device)
        owner, _, own_name = name.rpartition(".")
        held = over_as(tensors[name].detach(), parameter)
        model.get_submodule(owner).register_parameter(own_name, torch.nn.Parameter(held, requires_grad=False))
    check_complete(path, _missing(path))
    model.tie_weights()
    _remake_buffers(asked, model, device)
    return frozen_reader(model, path)


def _missing(path: Path) -> set[str]:
    """The weights that the checkpoint's files lack: what the lender made of them nobody knows. Nothing is read."""
    from transformers import AutoModelForCausalLM

    with no_bars(), refusing(path):
        _, told = AutoModelForCausalLM.from_pretrained(path, device_map="meta", output_loading_info=True)
    missing: set[str] = told["missing_keys"]
    return missing


def _check_names(asked: str, wanted: Iterable[str], lent: Iterable[str]) -> None:
    missing, strange = sorted({*wanted} - {*lent}), sorted({*lent} - {*wanted})
    if missing:
        raise ConfigError(asked, f"{_few(missing)} not among them", FIX)
    if strange:
        raise ConfigError(asked, f"{_few(strange)} no parameter of it (a tied one has one name)", FIX)


def _few(names: list[str]) -> str:
    verb = "is" if len(names) == 1 else "are"
    return f"{', '.join(names[:3])}{f' and {len(names) - 3} more' if len(names) > 3 else ''} {verb}"


def _check_tensor(asked: str, lent: torch.Tensor, wanted: torch.Tensor, device: torch.device) -> None:
    for what in ("shape", "dtype"):
        seen, right = getattr(lent, what), getattr(piece(wanted), what)
        if seen != right:
            raise ConfigError(asked, f"its {what} is {_plain(seen)}, and the model's {_plain(right)}", FIX)
    if (lent.device.type, lent.device.index or 0) != (device.type, device.index or 0):  # accelerate says "cpu:0" in a world of ranks
        raise ConfigError(asked, f"it is on {lent.device}, and the model on {device}", "put actor and engine on the same devices")
    if not lent.is_contiguous():
        found = f"its elements are not one block (stride {lent.stride()}): kernels would copy it at each use"
        raise ConfigError(asked, found, "lend slices of rows")
    if lent.is_inference():
        found = "it was made in inference mode, and autograd refuses to save it for a backward pass"
        raise ConfigError(asked, found, "make it, and slice it, outside of torch.inference_mode()")


def _plain(value: Any) -> str:
    return str(tuple(value)) if isinstance(value, torch.Size) else str(value).removeprefix("torch.")


def _remake_buffers(asked: str, model: Any, device: torch.device) -> None:
    """Rotary frequencies are computed, not loaded; on meta they were not."""
    for name, module in list(model.named_modules()):
        held = [key for key, _ in module.named_buffers(recurse=False)]
        if not held:
            continue
        if next(module.parameters(), None) is not None or not hasattr(module, "config"):
            found = f"{name} holds {', '.join(held)}, which no rule here makes anew"
            raise ConfigError(asked, found, "use mode='merged' or 'adapter', or a family without: Llama, SmolLM, Qwen2, Qwen3")
        model.set_submodule(name, type(module)(module.config).to(device))
