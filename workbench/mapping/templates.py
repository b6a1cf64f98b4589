"""Maps to begin with."""

from workbench.errors import ConfigError, check_kind
from workbench.mapping.device_map import DeviceMap

LEAST = {"cpu": 0, "colocated": 1, "split": 2}  # GPUs


def template(name: str, gpus: int = 0) -> DeviceMap:
    """A map to begin with, for ``gpus`` GPUs.

    "cpu": everything on the CPU, no GPU. "colocated": actor and rollout take turns on all GPUs. "split": the actor on the
    first half, the rollout on the second (of an odd number it has one more: generating takes most of a step). The reference is
    the actor with its adapter off, the reward a function on the CPU. Raises ConfigError on a number of GPUs that doesn't fit.
    """
    check_kind("template: gpus", gpus, int, "a number of GPUs such as 2")
    if name not in LEAST:
        raise ConfigError(f"template({name!r})", f"the templates are {', '.join(LEAST)}", "use one of these")
    least = LEAST[name]
    if gpus < least or (name == "cpu" and gpus):
        found = f"it takes {'no GPU' if name == 'cpu' else f'at least {least}'}"
        fix = "leave gpus out" if name == "cpu" else f"write template({name!r}, gpus={least}) or more"
        raise ConfigError(f"template({name!r}, gpus={gpus})", found, fix)
    if name == "cpu":
        return DeviceMap()
    if name == "colocated":
        return DeviceMap(actor=f"0-{gpus - 1}")
    return DeviceMap(actor=f"0-{gpus // 2 - 1}", rollout=f"{gpus // 2}-{gpus - 1}")
