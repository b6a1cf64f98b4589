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
    if 2 * len(pairs) != len(tensors) or not pairs:
        other = sorted(name for name in tensors if not name.endswith((SUFFIX_A, SUFFIX_B)))
        found = f"tensors that are no A or B of a linear layer: {some(other)}" if other else "it holds no pair A, B"
        raise SyncError(f"prove an adapter of {len(tensors)} tensors", found, "train linear layers only: LoRA(targets='all-linear')")
    return pairs


def checksum(adapter: Adapter) -> str:
    """16 hex digits over names, shapes, precisions and every bit. Positions count: two swapped values change it.

    The tensors of one precision are laid end to end on their device and summed, bits times a weight that depends on the place
    (modulo 2^64): a few kernels, and one copy of one number.
    """
    shapes, by_dtype = [], dict[torch.dtype, list[torch.Tensor]]()
    for name in sorted(adapter):
        for tensor in adapter[name]:
            shapes.append((name, tuple(tensor.shape), str(tensor.dtype)))
            by_dtype.setdefault(tensor.dtype, []).append(tensor.detach().reshape(-1))
    sums = [int(_fingerprint(torch.cat(flat))) for _, flat in sorted(by_dtype.items(), key=lambda item: str(item[0]))]
    return hashlib.blake2b(repr((shapes, sums)).encode(), digest_size=8).hexdigest()


def _fingerprint(flat: torch.Tensor) -> torch.Tensor:
    bits = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[flat.element_size()]
    # -0.0 and 0.0 are the same weight; adding 0 makes them the same bits
    values = (flat + 0).view(bits).long()
    place = torch.arange(1, values.numel() + 1, device=values.device)
    return (values * (place * 2654435761 % 2147483647)).sum()


def cut(resident: Adapter, sent: Adapter) -> tuple[dict[str, Pair], list[str]]:
    """The resident pairs in the sizes that were sent (slots are padded to a larger rank), and the modules that hold more than that."""
    ranks = {name: sent[name][0].shape[0] if name in sent else 0 for name in resident}
    pairs = {name: (a[: ranks[name]], b[:, : ranks[name]]) for name, (a, b) in resident.items()}
    padded = [name for name, (a, _) in resident.items() if a.shape[0] > ranks[name]]
    rest = [resident[name][0][ranks[name] :].any() | resident[name][1][:, ranks[name] :].any() for name in padded]
    full = torch.stack(rest).tolist() if rest else []  # one copy from the device
    return pairs, [name for name, more in zip(padded, full, strict=True) if more]


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


def check_arrived(arrived: Adapter, meant: str, version: int) -> None:
    """Raise SyncError unless an adapter that came from another process is the one whose checksum the trainer took."""
    found = checksum(arrived)
    if found != meant:
        asked = f"sync of adapter version {version} ({len(arrived)} modules, checksum {meant})"
        raise SyncError(asked, f"what arrived has checksum {found}: it was damaged on the way", "sync again; suspect memory or network")
