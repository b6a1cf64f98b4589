"""Log-probabilities of given tokens without ever holding the logits of a whole batch.

R: response tokens, D: hidden size, V: vocabulary. The logits of 16k tokens with a vocabulary of 152k are 10 GB in float32;
here they exist for one chunk at a time. What the backward pass needs is small: d logp / d hidden is one row of D per token,
(W[target] - softmax @ W) / temperature, and it is computed while the chunk's logits are at hand (as in fused linear
cross-entropy, Liger Kernel, arXiv 2410.10989). The head is frozen, so nothing else is differentiated.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

CHUNK_BYTES = 256 * 2**20  # of float32 logits


def token_logp(hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """log softmax(hidden @ head.T / temperature)[target]: hidden (R, D), head (V, D) frozen, target (R,) -> (R,) float32."""
    out: torch.Tensor = _TokenLogp.apply(hidden, head, target, temperature)
    return out


class _TokenLogp(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: float) -> torch.Tensor:
        wanted = ctx.needs_input_grad[0]
        step = max(1, CHUNK_BYTES // (4 * head.shape[0]))
        chunk = _compiled() if hidden.is_cuda else _chunk
        heat = torch.full((), temperature, device=hidden.device)  # a tensor: another temperature is no other code
        parts = [chunk(h, head, t, heat, wanted) for h, t in zip(hidden.split(step), target.split(step), strict=True)]
        if wanted:
            ctx.save_for_backward(torch.cat([slope for _, slope in parts]) if parts else torch.zeros_like(hidden))
        return torch.cat([logp for logp, _ in parts]) if parts else hidden.new_zeros(0, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return (grads[0][:, None] * slope).to(slope.dtype), None, None, None


def _chunk(
    hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: torch.Tensor, wanted: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """(log-probabilities (C,), d logp / d hidden (C, D)) of one chunk."""
    logits = (hidden @ head.T).float() / temperature
    logp = -F.cross_entropy(logits, target, reduction="none")
    if not wanted:
        return logp, hidden[:0]
    mean_row = logits.softmax(-1).to(head.dtype) @ head
    return logp, ((F.embedding(target, head) - mean_row).float() / temperature).to(hidden.dtype)


@functools.cache
def _compiled() -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The same, compiled. Only where it is used: importing the compiler takes seconds."""
    compiled: Callable[..., tuple[torch.Tensor, torch.Tensor]] = torch.compile(_chunk, dynamic=True)
    return compiled
