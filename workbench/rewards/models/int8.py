"""Linear layers with weights of eight bits: half of bfloat16's memory, computed in the activations' own type.

Written here and not taken from torchao 0.18: that brings CUDA extensions built for one torch, and vLLM and peft change what they do
where it is installed. What is needed is this: one scale per output channel, W ≈ q · s with s = max|W| / 127.
"""

import torch
from torch import nn


class Int8Linear(nn.Module):  # type: ignore[misc]  # torch is Any to mypy here
    """``y = (x · qᵀ) · s + b``; q (out, in) int8, s (out,) of the layer's own type."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1).clamp(min=1e-12) / 127
        self.register_buffer("q", (weight / scale[:, None]).round().to(torch.int8))
        self.register_buffer("scale", scale.to(linear.weight.dtype))
        self.register_buffer("bias", None if linear.bias is None else linear.bias.detach().clone())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(..., in) to (..., out)."""
        y = nn.functional.linear(x, self.q.to(x.dtype)) * self.scale
        return y if self.bias is None else y + self.bias


def to_int8(model: nn.Module) -> nn.Module:
    """Replace every linear layer inside ``model``, in place."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, Int8Linear(child))
    return model
