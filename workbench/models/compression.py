"""Gradients that travel compressed: a DistributedDataParallel around the adapter's gradients alone, with a hook by its name.

The model itself stays unwrapped, so micro-batches, adapters and uneven rows are no business of DDP's. What it wraps is a
``Carrier``, whose gradient is the one that was added up; one backward pass through it sends it off.
"""

from collections.abc import Sequence
from typing import Any

import torch

from workbench.errors import ConfigError
from workbench.models.purposes import HOOKS
from workbench.models.ranks import Ranks

# accelerate would leave PowerSGD's first 1000 steps uncompressed, more than most runs have; 2 is the least that torch takes
POWER_SGD = {"matrix_approximation_rank": 4, "start_powerSGD_iter": 2}


def check_compression(name: str | None, layout: str, device: str) -> None:
    """Raise ConfigError unless gradients of this ``layout`` on this ``device`` can be compressed by the hook ``name``."""
    if name is None:
        return
    asked = f"compression={name!r}"
    if name not in HOOKS:
        raise ConfigError(asked, "no hook has this name", f"use one of {', '.join(HOOKS)}, or None")
    if layout != "ddp":
        found = f"layout {layout!r} sends no gradients through DistributedDataParallel, which the hooks belong to"
        raise ConfigError(asked, found, "use layout='ddp', or no compression")
    if name == "bf16" and device == "cpu":
        raise ConfigError(asked, "this hook needs NCCL, and on a CPU there is gloo", "use 'fp16', or no compression")


def check_ranks(name: str | None, ranks: Ranks) -> None:
    """Raise ConfigError where there is nobody to send gradients to."""
    if name is not None and ranks.size == 1:
        raise ConfigError(f"compression={name!r}", "the actor has one rank, so no gradient is sent", "leave it out, or give more devices")


def handlers(name: str | None) -> list[Any]:
    """What accelerate has to be told."""
    if name is None:
        return []
    from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    hook = {"powersgd": DDPCommunicationHookType.POWER_SGD}.get(name) or DDPCommunicationHookType(name)
    return [DistributedDataParallelKwargs(comm_hook=hook, comm_state_option=POWER_SGD if name == "powersgd" else {})]


class Carrier:
    """Adds up gradients over all ranks of the default group on the way that ``accelerator`` was told (``handlers``)."""

    def __init__(self, parameters: Sequence[torch.Tensor], accelerator: Any) -> None:
        self.accelerator, self.size = accelerator, accelerator.num_processes
        self.freight = _Freight(parameters)
        self.wrapped = accelerator.prepare_model(self.freight)

    def sum_gradients(self, parameters: Sequence[torch.Tensor]) -> None:
        """Replace each ``.grad`` by its sum over the ranks, as exact as the hook is. None counts as zeros."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        self.freight.zero_grad()
        self.accelerator.backward(self.wrapped(gradients))
        for parameter, carried in zip(parameters, self.freight.carried, strict=True):
            parameter.grad = carried.grad * self.size  # DDP averages


class _Freight(torch.nn.Module):
    def __init__(self, parameters: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.carried = torch.nn.ParameterList([torch.zeros_like(parameter) for parameter in parameters])

    def forward(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        """A number whose gradient is ``gradients``."""
        return torch.stack([(p * g).sum() for p, g in zip(self.carried, gradients, strict=True)]).sum()
