"""Attention within rows: as each row alone, with gradient, and in one piece of compiled code."""

import pytest
import torch
import torch.nn.functional as F

from workbench.models.attention import packed_attention

LENGTHS = (3, 1, 5)
STARTS = torch.tensor([0, 3, 4, 9])


def heads(count: int, seed: int) -> torch.Tensor:
    """(1, count, T, 4)."""
    return torch.randn(1, count, sum(LENGTHS), 4, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def packed(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = packed_attention(torch.nn.Module(), q, k, v, None, 0.5, row_starts=STARTS, row_longest=5)[0]
    return out


def one_by_one(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    rows = zip(*(x.split(LENGTHS, dim=2) for x in (q, k, v)), strict=True)
    outs = [F.scaled_dot_product_attention(*row, is_causal=True, scale=0.5, enable_gqa=True) for row in rows]
    return torch.cat(outs, dim=2).transpose(1, 2)


@pytest.mark.parametrize("compiled", [False, True])
def test_rows_see_themselves_only(compiled: bool) -> None:
    """Compiled without a break: where the compiler gives up it says nothing, and the layer is slow."""
    attend = torch.compile(packed, fullgraph=True, backend="aot_eager") if compiled else packed
    mine, theirs = ([heads(4, 0), heads(2, 1), heads(2, 2)] for _ in range(2))
    seen, wanted = attend(*mine), one_by_one(*theirs)
    torch.testing.assert_close(seen, wanted)
    weights = torch.randn(seen.shape, generator=torch.Generator().manual_seed(3))
    for out in (seen, wanted):
        (out * weights).sum().backward()
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)
