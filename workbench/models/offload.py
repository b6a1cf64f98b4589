"""What an optimizer keeps, in the host's memory while the engine has the GPU's: float32 masters and Adam's moments."""

from collections.abc import Iterator

import torch

from workbench.models.learner import Learner


class Offload:
    """Moves what ``learners`` keep, 12 bytes a trained bfloat16 parameter, between their device and pinned host memory.

    The host's side is allocated once. Nothing to do on a CPU, and for masters that are the parameters themselves.
    """

    def __init__(self, *learners: Learner) -> None:
        self._learners = learners
        self._host: dict[tuple[int, str], torch.Tensor] = {}
        self.away = False

    @torch.no_grad()
    def leave(self) -> None:
        """To the host. Twice is harmless."""
        if not self.away:
            for place, holder, device in self._kept():
                if device.type != "cpu":
                    if place not in self._host:
                        self._host[place] = torch.empty_like(holder.tensor, device="cpu", pin_memory=True)
                    holder.tensor = self._host[place].copy_(holder.tensor, non_blocking=True)
            self._wait()
            self.away = True

    @torch.no_grad()
    def come_back(self) -> None:
        """To the device. Twice is harmless."""
        if self.away:
            for _, holder, device in self._kept():
                holder.tensor = holder.tensor.to(device, non_blocking=True)
            self._wait()
            self.away = False

    def _kept(self) -> Iterator[tuple[tuple[int, str], "_Holder", torch.device]]:
        """Everything, each with a name of its own; a single number (Adam's count of steps) stays where it is."""
        number = 0
        for learner in self._learners:
            device = learner.base.device
            own = {id(master) for parameter, master in learner.masters.pairs if parameter.dtype != master.dtype}
            for master in learner.masters.parameters:
                number += 1
                if id(master) in own:
                    yield (number, "weight"), _Holder(master, None), device
                moments = learner.optimizer.state.get(master, {})
                for kind, tensor in moments.items():
                    if tensor.dim():
                        yield (number, kind), _Holder(moments, kind), device

    def _wait(self) -> None:
        for learner in self._learners:
            if learner.base.device.type == "cuda":
                torch.cuda.synchronize(learner.base.device)


class _Holder:
    """Where a tensor is kept: a parameter's data, or an entry of an optimizer's state."""

    def __init__(self, holder: "torch.nn.Parameter | dict[str, torch.Tensor]", kind: str | None) -> None:
        self._holder, self._kind = holder, kind

    @property
    def tensor(self) -> torch.Tensor:
        """As it is now."""
        if self._kind is None:
            data: torch.Tensor = self._holder.data  # type: ignore[union-attr]
            return data
        return self._holder[self._kind]  # type: ignore[index]

    @tensor.setter
    def tensor(self, value: torch.Tensor) -> None:
        if self._kind is None:
            self._holder.data = value  # type: ignore[union-attr]
        else:
            self._holder[self._kind] = value  # type: ignore[index]
