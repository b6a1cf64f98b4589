"""Which maps this version can run, beyond those that no version could."""

from typing import TYPE_CHECKING

from workbench.errors import ConfigError
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


def limit(devices: "DeviceMap") -> str:
    """Why this version can't run a map that is sound; "" where it can."""
    try:
        check_runnable(devices)
    except ConfigError as error:
        return error.found
    return ""


def check_runnable(devices: "DeviceMap", machine: Topology | None = None) -> None:
    """Raise ConfigError where the map contradicts itself, and where this version can't obey it. ``machine``: CPU slots, if any."""
    errors = [finding for finding in devices.check(machine) if finding.severity == "error"]
    if errors:
        first = errors[0]
        more = f" ({len(errors) - 1} more: devices.check())" if len(errors) > 1 else ""
        raise ConfigError(f"{first.asked} ({first.code})", first.found + more, first.fix.text)
    places = devices.places  # an actor and a rollout with devices are there: the checks tell else
    if places[Role.ROLLOUT].mode not in ("auto", "adapter"):
        fix = "write mode: adapter, or leave it out"
        raise ConfigError(f"rollout: mode {places[Role.ROLLOUT].mode!r}", "this version's engine gets the adapter", fix)
