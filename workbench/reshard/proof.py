"""The exact layer of the proof: what is *resident* in the engine is what the trainer sent, bit for bit.

It catches an adapter that is stale, half written, in the wrong layer, of the wrong precision, or scaled twice; faults.py
names which. The other layer, on what only shows in the samples, is in canary.py. Either stops the run.
"""

import hashlib
from collections.abc import Mapping

import torch

from workbench.errors import SyncError
from workbench.reshard.faults import Adapter, Pair, diagnose, some

PREFIX, SUFFIX_A, SUFFIX_B = "base_model.model.", ".lora_A.weight", ".lora_B.weight"


def expected(tensors: Mapping[str, torch.Tensor], scaling: float, dtype: torch.dtype) -> dict[str, Pair]:
    """What has to be resident after ``tensors`` (peft's names) were sent: rounded to ``dtype`` first, then scaled, as vLLM does."""
    pairs: dict[str, Pair] = {}
    for name, a in tensors.items():
        if name.endswith(SUFFIX_A):
            b = tensors[name.removesuffix(SUFFIX_A) + SUFFIX_B]
            module = name.removeprefix(PREFIX).removesuffix(SUFFIX_A)
            pairs[module] = (a.detach().to(dtype), b.detach().to(dtype) * scaling)
    return pairs


def checksum(adapter: Adapter) -> str:
    """16 hex digits over names, shapes, precisions and every bit. Positions count: two swapped values change it.

    Each tensor is summed on its own device, bits times a weight that depends on the place (modulo 2^64); one copy at the end.
    """
    sums = [_fingerprint(tensor) for name in sorted(adapter) for tensor in adapter[name]]
    values = torch.stack(sums).tolist() if sums else []
    names = [(name, *((tuple(t.shape), str(t.dtype)) for t in adapter[name])) for name in sorted(adapter)]
    return hashlib.blake2b(repr((names, values)).encode(), digest_size=8).hexdigest()


def _fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    # -0.0 and 0.0 are the same weight; adding 0 makes them the same bits
    flat = (tensor.detach() + 0).contiguous().view(bits).flatten().long()
    place = torch.arange(1, flat.numel() + 1, device=flat.device)
    return (flat * (place * 2654435761 % 2147483647)).sum()


def cut(resident: Adapter, sent: Adapter) -> tuple[dict[str, Pair], list[str]]:
    """The resident pairs in the sizes that were sent (slots are padded to a larger rank), and the modules that hold more than that."""
    ranks = {name: sent[name][0].shape[0] if name in sent else 0 for name in resident}
    pairs = {name: (a[: ranks[name]], b[:, : ranks[name]]) for name, (a, b) in resident.items()}
    rest = [a[ranks[name] :].any() | b[:, ranks[name] :].any() for name, (a, b) in resident.items()]
    full = torch.stack(rest).tolist() if rest else []  # one copy from the device
    return pairs, [name for name, more in zip(resident, full, strict=True) if more]


def prove(sent: Adapter, resident: Adapter, *, version: int, previous: str = "") -> str:
    """Compare, bit for bit; returns the checksum of both. Raises SyncError that names the fault.

    ``previous`` is the checksum of the version before, so that a stale adapter is told from a damaged one. A resident module
    that was not sent has to be zero; everything in a slot beyond the sent rank too.
    """
    seen, beyond = cut(resident, sent)
    targeted = {name: pair for name, pair in seen.items() if name in sent}
    want, have = checksum(sent), checksum(targeted)
    if want == have and not beyond:
        return want
    asked = f"sync of adapter version {version} ({len(sent)} modules, checksum {want})"
    if previous and have == previous and previous != want:
        found = f"stale adapter: the engine still holds the version before ({have})"
        raise SyncError(asked, found, "the push did not reach the slot: nothing was written since the last sync")
    unsent = [name for name in beyond if name not in sent]
    if unsent:
        found = f"modules that were never sent are not zero: {some(unsent)}"
        raise SyncError(asked, found, "an older adapter was not cleared from the slot")
    if beyond:
        found = f"slots are not empty beyond the sent rank: {some(beyond)}"
        raise SyncError(asked, found, "an older adapter of larger rank was not cleared from the slot")
    raise SyncError(asked, *diagnose(sent, targeted))
