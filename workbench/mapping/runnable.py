"""Which maps this version can run, beyond those that no version could."""

from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.mapping.resolve import same_devices
from workbench.roles import Role
from workbench.topology import Topology

if TYPE_CHECKING:
    from workbench.mapping.device_map import DeviceMap

SYNC_MODE = "WB208"


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
    if all(error.code == SYNC_MODE for error in errors):  # what no mode mends, before what another mode does
        same = same_devices(devices, Role.ACTOR, Role.ROLLOUT, machine)
        _check_full(devices, same) if not lora else _check_adapter(devices, same)
    if errors:
        first = errors[0]
        more = f" ({len(errors) - 1} more: devices.check())" if len(errors) > 1 else ""
        raise ConfigError(f"{first.asked} ({first.code})", first.found + more, first.fix.text)


def _check_full(devices: "DeviceMap", same: bool) -> None:
    """Raise ConfigError where all weights can't be trained. ``same``: actor and rollout have the same devices."""
    rollout, actor = devices.places[Role.ROLLOUT], devices.places[Role.ACTOR]  # they have devices: the checks tell else
    fitting = "" if rollout.mode in ("auto", "full") else " and leave the rollout's mode out"
    other = f"or train an adapter{' and leave the mode out' if rollout.mode == 'full' or not _takes(devices, same) else ''}"
    shared = "give actor and rollout the same devices"
    if actor.tp > 1:
        found = "transformers splits a frozen model: gradients of what stays whole would be partial"
        fix = f"write the actor's layout: fsdp{'' if same else f' and {shared}'}{fitting}"
        raise ConfigError(f"actor: {str(actor)!r}, all weights trained", found, f"{fix}, {other}")
    if not same:
        found = "whole weights reach engines in the trainer's own processes, and this engine has devices of its own"
        raise ConfigError(f"rollout: {str(rollout)!r}, all weights trained", found, f"{shared}{fitting}, {other}")


def _check_adapter(devices: "DeviceMap", same: bool) -> None:
    """Raise ConfigError where whole weights would be moved for an adapter."""
    if devices.places[Role.ROLLOUT].mode == "full":
        found = "every weight would move each step, and only the adapter changes"
        fix = f"write mode: {'merged or adapter' if same else 'adapter'}"
        fits = same and devices.places[Role.ACTOR].tp == 1
        raise ConfigError("rollout: mode 'full'", found, f"{fix}, or train all weights: Run(full=True)" if fits else fix)


def _takes(devices: "DeviceMap", same: bool) -> bool:
    """Whether an adapter could reach the engine in the mode that is written."""
    rollout, actor = devices.places[Role.ROLLOUT], devices.places[Role.ACTOR]
    alike = (actor.layout, actor.tp) == ("ddp", rollout.tp)
    return rollout.mode in ("auto", "adapter") or (same and (rollout.mode == "merged" or (rollout.mode == "zero_copy" and alike)))
