"""An adapter on its way between processes: one flat tensor on the CPU, with what it takes to read and to prove it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from workbench.errors import SyncError


@dataclass(frozen=True)
class Parcel:
    """The adapter of one version. ``checksum``: the trainer's, of what has to be resident in the engine (scaling folded in)."""

    config: dict[str, Any]  # as peft writes it
    shapes: dict[str, tuple[int, ...]]  # name -> shape, in the order in which they lie in ``flat``
    flat: torch.Tensor  # (sum of sizes,), on the CPU
    checksum: str

    @classmethod
    def of(cls, tensors: Mapping[str, torch.Tensor], config: dict[str, Any], checksum: str) -> "Parcel":
        """Pack ``tensors``, all of one precision: one kernel and one copy from the device."""
        kinds = {tensor.dtype for tensor in tensors.values()}
        if len(kinds) != 1:
            raise SyncError(f"send an adapter of {len(tensors)} tensors", f"they have {len(kinds)} precisions", "train it in one")
        flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors.values()]).cpu()
        return cls(config, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, flat, checksum)

    def __reduce__(self) -> tuple[Any, ...]:
        """As plain memory: torch's own way of pickling a tensor takes several times as long."""
        raw = self.flat.contiguous().view(torch.uint8).numpy()
        return _unpacked, (self.config, self.shapes, raw, str(self.flat.dtype).removeprefix("torch."), self.checksum)

    @property
    def bytes(self) -> int:
        """Of the weights."""
        return int(self.flat.numel() * self.flat.element_size())

    def tensors(self, device: torch.device) -> dict[str, torch.Tensor]:
        """The adapter's tensors on ``device``: views on one copy."""
        sizes = [torch.Size(shape).numel() for shape in self.shapes.values()]
        parts = self.flat.to(device, non_blocking=True).split(sizes)
        return {name: part.view(shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}


def _unpacked(config: dict[str, Any], shapes: dict[str, tuple[int, ...]], raw: Any, dtype: str, checksum: str) -> Parcel:
    return Parcel(config, shapes, torch.from_numpy(raw).view(getattr(torch, dtype)), checksum)
