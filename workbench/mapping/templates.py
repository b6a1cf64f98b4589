"""Maps to begin with."""

from workbench.errors import ConfigError, check_kind
from workbench.mapping.device_map import DeviceMap

LEAST = {"cpu": 0, "colocated": 1, "split": 2, "hybrid": 2, "critic_isolated": 4, "reward_service": 2}  # GPUs


def template(name: str, gpus: int = 0) -> DeviceMap:
    """A map to begin with, for ``gpus`` GPUs of one node.

    "cpu": everything on the CPU, no GPU. "colocated": actor and rollout take turns on all GPUs, whole models on each. "hybrid": the same,
    the actor in shards (fsdp) and the engine in pairs (tp2): for models that don't fit on one GPU. "split": the actor on the first half,
    the rollout on the second (of an odd number it has one more: generating takes most of a step). "critic_isolated": for PPO, the
    critic on the last quarter, actor and rollout take turns on the rest. "reward_service": as "hybrid", the reward asked of a service on this
    machine. Else the reference is the actor with its adapter off, the reward a function on the CPU. Raises ConfigError on a number of
    GPUs that doesn't fit.
    """
    check_kind("template: gpus", gpus, int, "a number of GPUs such as 2")
    _check_fit(name, gpus)
    everything, half = _span(0, gpus), gpus // 2
    hybrid = {"actor": f"{everything} fsdp", "rollout": everything if gpus % 2 else f"{everything} tp2"}
    if name == "colocated":
        return DeviceMap(actor=everything)
    if name == "split":
        return DeviceMap(actor=_span(0, half), rollout=_span(half, gpus))
    if name == "hybrid":
        return DeviceMap(**hybrid)
    if name == "critic_isolated":
        rest = gpus - gpus // 4
        return DeviceMap(actor=_span(0, rest), critic=_span(rest, gpus))
    if name == "reward_service":
        return DeviceMap(**hybrid, reward="http://localhost:8080")
    return DeviceMap()


def _check_fit(name: str, gpus: int) -> None:
    if name not in LEAST:
        raise ConfigError(f"template({name!r})", f"the templates are {', '.join(LEAST)}", "use one of these")
    least = LEAST[name]
    if gpus < least or (name == "cpu" and gpus):
        found = f"it takes {'no GPU' if name == 'cpu' else f'at least {least}'}"
        fix = "leave gpus out" if name == "cpu" else f"write template({name!r}, gpus={least}) or more"
        raise ConfigError(f"template({name!r}, gpus={gpus})", found, fix)


def _span(first: int, end: int) -> str:
    """ "0-3" for the devices 0, 1, 2, 3; "0" for one."""
    return f"{first}-{end - 1}" if end - first > 1 else str(first)
