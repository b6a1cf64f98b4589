"""Log-probabilities of given tokens without ever holding the logits of a whole batch.

R: response tokens, D: hidden size, V: vocabulary. The logits of 16k tokens with a vocabulary of 152k are 10 GB in float32;
here they exist for one chunk at a time. What the backward pass needs is small: d logp / d hidden is one row of D per token,
(W[target] - softmax @ W) / temperature, and it is computed while the chunk's logits are at hand (as in fused linear
cross-entropy, Liger Kernel, arXiv 2410.10989). A head that is trained too has a gradient that depends on all tokens' upstream
gradients at once, (onehot(target) - softmax).T @ (upstream * hidden) / temperature: for it the backward pass makes the logits again.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

CHUNK_BYTES = 256 * 2**20  # of float32 logits


def token_logp(hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """log softmax(hidden @ head.T / temperature)[target]: hidden (R, D), head (V, D), target (R,) -> (R,) float32."""
    kind = _WithHead if head.requires_grad and torch.is_grad_enabled() else _TokenLogp
    out: torch.Tensor = kind.apply(hidden, head, target, temperature)
    return out


class _TokenLogp(torch.autograd.Function):
    """With a frozen head."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: float) -> torch.Tensor:
        wanted = ctx.needs_input_grad[0]
        parts = _in_chunks(hidden, head, target, temperature, wanted)
        if wanted:
            ctx.save_for_backward(torch.cat([slope for _, slope in parts]) if parts else torch.zeros_like(hidden))
        return torch.cat([logp for logp, _ in parts]) if parts else hidden.new_zeros(0, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        (slope,) = ctx.saved_tensors
        return (grads[0][:, None] * slope).to(slope.dtype), None, None, None


class _WithHead(torch.autograd.Function):
    """With a head that is trained too."""

    @staticmethod
    def forward(ctx: Any, hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: float) -> torch.Tensor:
        ctx.save_for_backward(hidden, head, target)
        ctx.temperature = temperature
        parts = _in_chunks(hidden, head, target, temperature, False)
        return torch.cat([logp for logp, _ in parts]) if parts else hidden.new_zeros(0, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        hidden, head, target = ctx.saved_tensors
        step, heat = _step(head), torch.full((), ctx.temperature, device=hidden.device)
        slopes = _compiled(_slopes) if hidden.is_cuda else _slopes
        of_hidden, of_head = torch.zeros_like(hidden), torch.zeros_like(head, dtype=torch.float32)  # chunks add up in float32
        for start in range(0, len(hidden), step):
            chosen = slice(start, start + step)
            of_hidden[chosen], more = slopes(hidden[chosen], head, target[chosen], heat, grads[0][chosen])
            of_head += more
        return of_hidden, of_head.to(head.dtype), None, None


def _step(head: torch.Tensor) -> int:
    return max(1, CHUNK_BYTES // (4 * head.shape[0]))


def _in_chunks(
    hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: float, wanted: bool
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """``_chunk`` of each chunk; none of no tokens."""
    chunk = _compiled(_chunk) if hidden.is_cuda else _chunk
    heat = torch.full((), temperature, device=hidden.device)  # a tensor: another temperature is no other code
    parts = zip(hidden.split(_step(head)), target.split(_step(head)), strict=True)
    return [chunk(h, head, t, heat, wanted) for h, t in parts]


def _slopes(
    hidden: torch.Tensor, head: torch.Tensor, target: torch.Tensor, temperature: torch.Tensor, upstream: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of a chunk's hidden states (C, D) and of the head (V, D) from those of its log-probabilities (C,)."""
    share = ((hidden @ head.T).float() / temperature).softmax(-1)
    hit = target[:, None] == torch.arange(len(head), device=head.device)
    slope = ((hit.float() - share) * (upstream / temperature)[:, None]).to(head.dtype)  # (C, V)
    return slope @ head, slope.T @ hidden


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
def _compiled(function: Callable[..., tuple[torch.Tensor, torch.Tensor]]) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """The same, compiled. Only where it is used: importing the compiler takes seconds."""
    compiled: Callable[..., tuple[torch.Tensor, torch.Tensor]] = torch.compile(function, dynamic=True)
    return compiled
