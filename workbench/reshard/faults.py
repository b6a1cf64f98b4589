"""What is wrong with an adapter that arrived differently from how it was sent: one small test per fault, the surest first.

An adapter maps a module's name to its pair: A (rank, in) and B (out, rank), the scaling folded into B.
"""

from collections.abc import Iterable, Mapping

import torch

Pair = tuple[torch.Tensor, torch.Tensor]
Adapter = Mapping[str, Pair]
Verdict = tuple[str, str]  # what is wrong, what to do

HALVES = ((torch.bfloat16, 2.0**-8), (torch.float16, 2.0**-11))  # with the rounding step of each


def diagnose(sent: Adapter, resident: Adapter) -> Verdict:
    """The fault's name, where it is, and what to do. ``resident`` differs from ``sent``."""
    missing = [name for name in sent if name not in resident]
    if missing:
        found = f"half an adapter: {len(missing)} of {len(sent)} modules have no slot in the engine: {some(missing)}"
        return found, "does this vLLM support LoRA on these modules?"
    wrong = sorted(name for name in sent if not _same(sent[name], resident[name]))
    for test in (_other_dtype, _rounded, _empty, _scaled, _swapped):
        verdict = test(sent, resident, wrong)
        if verdict is not None:
            return verdict
    return f"{len(wrong)} of {len(sent)} modules differ: {some(wrong)}", "half-written tensors: was the slot read while it was written?"


def _other_dtype(sent: Adapter, resident: Adapter, wrong: list[str]) -> Verdict | None:
    other = [name for name in wrong if any(s.dtype != r.dtype for s, r in _tensors(sent, resident, name))]
    if not other:
        return None
    found = f"wrong dtype: {resident[other[0]][0].dtype} where {sent[other[0]][0].dtype} was sent, in {len(other)} modules"
    return found, "the engine's lora_dtype has to be the trainer's precision"


def _rounded(sent: Adapter, resident: Adapter, wrong: list[str]) -> Verdict | None:
    """Every wrong tensor is the sent one rounded to a half precision (before or after scaling, hence a tolerance)."""
    for half, step in HALVES:
        pairs = [(s, r) for name in wrong for s, r in _tensors(sent, resident, name) if not torch.equal(s, r)]
        if all(
            s.dtype == torch.float32 and s.shape == r.shape and torch.allclose(r, s.to(half).float(), rtol=step, atol=0) for s, r in pairs
        ):
            return f"wrong dtype: {len(wrong)} modules went through {half} on the way", "push the trainer's tensors as they are"
    return None


def _empty(sent: Adapter, resident: Adapter, wrong: list[str]) -> Verdict | None:
    empty = [name for name in wrong if any(bool(s.any()) and not bool(r.any()) for s, r in _tensors(sent, resident, name))]
    if not empty:
        return None
    return f"half an adapter: {len(empty)} of {len(sent)} modules are zero in the engine: {some(empty)}", "the push broke off: sync again"


def _scaled(sent: Adapter, resident: Adapter, wrong: list[str]) -> Verdict | None:
    """Every wrong B is off by one and the same factor, every A is right."""
    factors = []
    for name in wrong:
        (a, b), (seen_a, seen_b) = sent[name], resident[name]
        if not torch.equal(a, seen_a) or not bool(b.any()):
            return None
        peak = int(b.abs().argmax())
        factor = float(seen_b.flatten()[peak]) / float(b.flatten()[peak])
        if not torch.allclose(seen_b.float(), b.float() * factor, rtol=1e-2, atol=1e-8):
            return None
        factors.append(factor)
    if max(factors) - min(factors) > 1e-2 * abs(factors[0]):
        return None
    return (
        f"scaling: B is {factors[0]:.3g} times what it should be in {len(wrong)} modules",
        "alpha / rank was applied twice, or not at all",
    )


def _swapped(sent: Adapter, resident: Adapter, wrong: list[str]) -> Verdict | None:
    for i, one in enumerate(wrong):
        for other in wrong[i + 1 :]:
            if _same(sent[one], resident[other]) and _same(sent[other], resident[one]):
                return f"swapped layers: {one} holds what was sent for {other}, and the reverse", "names are mapped wrongly"
    return None


def _tensors(sent: Adapter, resident: Adapter, name: str) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
    return zip(sent[name], resident[name], strict=True)


def _same(one: Pair, other: Pair) -> bool:
    return all(x.shape == y.shape and x.dtype == y.dtype and torch.equal(x, y) for x, y in zip(one, other, strict=True))


def some(names: list[str]) -> str:
    """The first three names, and how many more."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
