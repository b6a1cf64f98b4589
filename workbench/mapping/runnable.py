"""Which maps this version can run, beyond those that no version could."""

from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.mapping.resolve import same_devices
from workbench.roles import Role
from workbench.topology import Topology

if TYPE_CHECKING:
    from workbench.mapping.device_map import DeviceMap


def check_present(devices: "DeviceMap") -> None:
    """Raise ConfigError where the map wants GPUs of this machine and torch sees none. Leaves CUDA as it is."""
    import torch

    if devices.device == "cuda" and not torch.cuda.is_available():
        found = "torch sees no GPU here" + ("" if torch.version.cuda else f" (torch {torch.__version__} is built without CUDA)")
        fix = "write 'cpu'; rehearse it with Run(topology=wb.Topology.cpu(slots=4)); or see `workbench doctor`"
        raise ConfigError(f"actor: {str(devices.actor)!r}", found, fix)


def limit(devices: "DeviceMap", *, lora: bool = True) -> str:
    """Why this version can't run a map that is sound; "" where it can."""
    try:
        check_runnable(devices, lora=lora)
    except ConfigError as error:
        return error.found
    return ""


def check_runnable(devices: "DeviceMap", machine: Topology | None = None, *, lora: bool = True) -> None:
    """Raise ConfigError where the map contradicts itself, and where this version can't obey it. ``machine``: CPU slots, if any."""
    errors = [finding for finding in devices.check(machine, lora=lora) if finding.severity == "error"]
    if errors:
        first = errors[0]
        more = f" ({len(errors) - 1} more: devices.check())" if len(errors) > 1 else ""
        raise ConfigError(f"{first.asked} ({first.code})", first.found + more, first.fix.text)
    rollout, actor = devices.places[Role.ROLLOUT], devices.places[Role.ACTOR]  # they have devices: the checks tell else
    mode = rollout.mode if lora or rollout.mode != "auto" else "full"
    if mode == "full" and actor.tp > 1:
        found = "transformers splits a frozen model: gradients of what stays whole would be partial"
        raise ConfigError(f"actor: {str(actor)!r}, mode full", found, "write the actor's layout: fsdp, or train an adapter")
    if mode == "full" and not same_devices(devices, Role.ACTOR, Role.ROLLOUT, machine):
        found = "whole weights reach engines in the trainer's own processes, and this engine has devices of its own"
        raise ConfigError(f"rollout: {str(rollout)!r}, mode full", found, "give actor and rollout the same devices, or train an adapter")
    if mode == "full" and lora:
        found = "every weight would move each step, and only the adapter changes"
        raise ConfigError("rollout: mode 'full'", found, "write mode: merged or adapter, or train all weights: Run(full=True)")
