"""Causal attention inside each row of a packed micro-batch, as an attention function of transformers.

On a GPU it is PyTorch's variable-length flash attention. On a CPU (and in float32) the rows are laid side by side for the
attention alone: with causal masking, padding on the right is never looked at, so no mask is needed and nothing changes.
"""

from typing import Any

import torch
import torch.nn.functional as F

NAME = "workbench_packed"
PROBE = "workbench_probe"


def register() -> str:
    """Make the function known to transformers and return the name to load models with."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, packed_attention)
    return NAME


class _Reached(Exception):  # noqa: N818 - a signal, not a fault
    """A model's first attention was called. ``told``: with what it has to know of the rows."""

    def __init__(self, told: bool) -> None:
        super().__init__(told)
        self.told = told


def is_told(model: Any) -> bool:
    """Whether the attention of ``model`` is told where packed rows begin: some families drop what they don't know on the way to it.

    Nothing behind the first attention is computed. Without memory (on meta) positions that are computed from values can't be, those of
    very long contexts: such a model is let pass, and asked again once it is loaded.
    """
    from transformers import AttentionInterface

    AttentionInterface.register(PROBE, _probe)
    config, ids = model.config.get_text_config(), torch.zeros(1, 2, dtype=torch.long, device=model.device)
    before, config._attn_implementation = config._attn_implementation, PROBE
    try:
        with torch.no_grad():
            model.base_model(input_ids=ids, position_ids=ids, use_cache=False, row_starts=ids[0], row_longest=1)
    except _Reached as reached:
        return reached.told
    except RuntimeError:
        if model.device.type != "meta":
            raise
        return True
    finally:
        config._attn_implementation = before
    return False


def _probe(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: Any, **kwargs: Any) -> None:
    raise _Reached("row_starts" in kwargs and "row_longest" in kwargs)


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,  # (1, heads, T, head_dim)
    key: torch.Tensor,  # (1, kv_heads, T, head_dim)
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within rows; ``row_starts`` (rows + 1,) and ``row_longest`` come as keyword arguments of the model's call.

    Returns (1, T, heads, head_dim). Without ``row_starts`` the T tokens are one row.
    """
    starts, longest = kwargs.get("row_starts"), kwargs.get("row_longest")
    if starts is None:
        out = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        return out.transpose(1, 2), None
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))  # (T, heads, head_dim)
    if q.is_cuda and q.dtype in (torch.float16, torch.bfloat16):
        return _flash(q, k, v, starts, longest, scaling)[None], None
    return _side_by_side(q, k, v, starts, longest, scaling)[None], None


def _flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, longest: int, scale: float | None) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    if k.shape[1] != q.shape[1]:  # the kernel of torch 2.11 takes equal head counts only
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    # window (-1, 0): everything to the left, nothing to the right
    return varlen_attn(q.contiguous(), k, v, starts, starts, longest, longest, scale=scale, window_size=(-1, 0))


def _side_by_side(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor, longest: int, scale: float | None
) -> torch.Tensor:
    rows, lengths, token = len(starts) - 1, starts.diff(), torch.arange(len(q), device=q.device)
    row = torch.repeat_interleave(torch.arange(rows, device=q.device), lengths, output_size=len(q))
    place = row * longest + token - starts[row]  # (T,) where each token lies among rows * longest

    def spread(x: torch.Tensor) -> torch.Tensor:
        laid = x.new_zeros(rows * longest, *x.shape[1:]).index_copy(0, place, x)
        return laid.unflatten(0, (rows, longest)).transpose(1, 2)

    out = F.scaled_dot_product_attention(spread(q), spread(k), spread(v), is_causal=True, scale=scale, enable_gqa=True)
    return out.transpose(1, 2).flatten(0, 1).index_select(0, place)
