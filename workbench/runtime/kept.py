"""The adapters of the last two versions, kept by the trainer while batches of the older one are still on their way to it."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from workbench.errors import StateError


class Kept:
    """Copies of the trained parameters as they were sent. ``versions``: how many are kept; 0 where every batch is of the newest."""

    def __init__(self, versions: int) -> None:
        self.versions = versions
        self.version = 0  # the newest that was sent
        self._copies: dict[int, list[torch.Tensor]] = {}

    def keep(self, version: int, parameters: Sequence[torch.Tensor]) -> None:
        """Remember ``parameters`` as ``version``, and forget the oldest."""
        self.version = version
        if self.versions:
            self._copies[version] = [parameter.detach().clone() for parameter in parameters]
        for old in sorted(self._copies)[: -self.versions or None]:
            del self._copies[old]

    @contextmanager
    def again(self, version: int, parameters: Sequence[torch.Tensor]) -> Iterator[None]:
        """Within: ``parameters`` are those of ``version``. Raises StateError where it is not kept."""
        if version not in self._copies:
            found = f"the trainer keeps {', '.join(map(str, sorted(self._copies))) or 'none'}"
            raise StateError(f"train on a batch of adapter version {version}", found, "start the run again: its step is made anew")
        now = [parameter.detach().clone() for parameter in parameters]
        _write(parameters, self._copies[version])
        try:
            yield
        finally:
            _write(parameters, now)


def _write(parameters: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    for parameter, value in zip(parameters, values, strict=True):
        parameter.detach().copy_(value)
