"""Maps to begin with. recipes/maps/ has them as files."""

from collections.abc import Callable

from workbench.errors import ConfigError, check_kind
from workbench.mapping.device_map import DeviceMap


def template(name: str, gpus: int = 0) -> DeviceMap:
    """A map to begin with, for ``gpus`` GPUs of one machine; the reference is the actor with its adapter off.

    "cpu": everything on the CPU, no GPU.
    For a model that fits on one GPU: "colocated": actor and rollout take turns on all GPUs, each with a whole model. "split": the actor on
    the first half, the rollout on the second (of an odd number it has one more: generating takes most of a step).
    For one that does not, the actor in shards and the engine over pairs of GPUs (of an odd number on each): "hybrid": they take turns on
    all. "rollout_apart": as "split". "critic_isolated", for PPO: the critic on the last quarter, the others take turns on the rest.
    "reward_service": as "hybrid", and a service on port 8080 of this machine gives the rewards.
    Raises ConfigError on a number of GPUs that doesn't fit.
    """
    check_kind("template: gpus", gpus, int, "a number of GPUs such as 2")
    if name not in _MAPS:
        raise ConfigError(f"template({name!r})", f"the templates are {', '.join(_MAPS)}", "use one of these")
    least, made = _MAPS[name]
    if gpus < least or (name == "cpu" and gpus):
        found = f"it takes {'no GPU' if name == 'cpu' else f'at least {least}'}"
        fix = "leave gpus out" if name == "cpu" else f"write template({name!r}, gpus={least}) or more"
        raise ConfigError(f"template({name!r}, gpus={gpus})", found, fix)
    return made(gpus)


def _cpu(gpus: int) -> DeviceMap:
    return DeviceMap()


def _colocated(gpus: int) -> DeviceMap:
    return DeviceMap(actor=_span(0, gpus))


def _split(gpus: int) -> DeviceMap:
    return DeviceMap(actor=_span(0, gpus // 2), rollout=_span(gpus // 2, gpus))


def _hybrid(gpus: int) -> DeviceMap:
    return DeviceMap(actor=_sharded(0, gpus), rollout=_paired(0, gpus))


def _rollout_apart(gpus: int) -> DeviceMap:
    return DeviceMap(actor=_sharded(0, gpus // 2), rollout=_paired(gpus // 2, gpus))


def _critic_isolated(gpus: int) -> DeviceMap:
    rest = gpus - max(1, gpus // 4)
    return DeviceMap(actor=_sharded(0, rest), critic=_sharded(rest, gpus), rollout=_paired(0, rest))


def _reward_service(gpus: int) -> DeviceMap:
    return DeviceMap(actor=_sharded(0, gpus), rollout=_paired(0, gpus), reward="http://localhost:8080")


def _span(first: int, end: int) -> str:
    """ "0-3" for the devices 0, 1, 2, 3; "0" for one."""
    return f"{first}-{end - 1}" if end - first > 1 else str(first)


def _sharded(first: int, end: int) -> str:
    return _span(first, end) + " fsdp" * (end - first > 1)


def _paired(first: int, end: int) -> str:
    return _span(first, end) + " tp2" * ((end - first) % 2 == 0)


_MAPS: dict[str, tuple[int, Callable[[int], DeviceMap]]] = {  # with how many GPUs each takes at least
    "cpu": (0, _cpu),
    "colocated": (1, _colocated),
    "split": (2, _split),
    "hybrid": (2, _hybrid),
    "rollout_apart": (2, _rollout_apart),
    "critic_isolated": (2, _critic_isolated),
    "reward_service": (2, _reward_service),
}
