"""An adapter as vLLM's slots want it: of a matrix that transformers keeps in one and the engine's table in several, one for each."""

from collections.abc import Mapping
from typing import Any

import torch

from workbench.rollout.inner import Pair, runner

PEFT = "base_model.model."
Parts = dict[str, tuple[int, ...]]  # a part's name -> its rows of B: (first, last + 1)


def cut_tensors(llm: Any, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """``tensors`` (names as peft saves them), those of fused matrices in parts: A is the same for each, B has the part's rows."""
    found = dict(tensors)
    for name, parts in _fused(llm).items():
        a, b = (found.pop(f"{PEFT}{name}.lora_{factor}.weight", None) for factor in "AB")
        if a is not None and b is not None:
            for part, (first, last) in parts.items():
                found |= {f"{PEFT}{part}.lora_A.weight": a, f"{PEFT}{part}.lora_B.weight": b[first:last]}
    return found


def cut_pairs(llm: Any, pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """The same of ``pairs``, by the names of modules."""
    found = dict(pairs)
    for name, parts in _fused(llm).items():
        if name in found:
            a, b = found.pop(name)
            found |= {part: (a, b[first:last]) for part, (first, last) in parts.items()}
    return found


def _fused(llm: Any) -> dict[str, Parts]:
    """Matrix -> its parts, of those that aren't part of themselves (as Phi-3's are)."""
    slots = runner(llm).lora_manager._adapter_manager
    found: dict[str, Parts] = {}
    for name, parts in slots.packed_modules.items():
        rows = getattr(slots.modules[name].base_layer, "output_sizes", ())
        if name not in parts and len(parts) == len(rows):
            ends = [sum(rows[: at + 1]) for at in range(len(rows))]
            found[name] = {part: (end - size, end) for part, size, end in zip(parts, rows, ends, strict=True)}
    return found
