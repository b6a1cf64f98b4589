"""From a map to a team: which runtime, which pools, and the plan of the workers in them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.roles import Role
from workbench.runtime.groups import grouped
from workbench.runtime.inline import Inline
from workbench.runtime.plans import WorkerPlan
from workbench.runtime.pools import Pool, machine_of, split
from workbench.runtime.settings import Ray
from workbench.runtime.team import Team
from workbench.topology import Topology

Choice = Literal["inline"] | Ray
Recipe = Callable[[str], WorkerPlan]  # of "cpu" or "cuda"

REHEARSAL = "CPU slots stand for GPUs: who talks to whom is rehearsed, memory is not; nothing sleeps, wakes or runs out as on a GPU"


def check_runtime(asked: object) -> "str | Ray":
    """``Run(runtime=...)`` as it was written. Raises ConfigError on anything else."""
    if isinstance(asked, Ray) or asked in ("auto", "inline", "ray"):
        return asked
    raise ConfigError(f"Run(runtime={asked!r})", "there are two runtimes", "write 'auto', 'inline', 'ray', or wb.Ray(address=...)")


def choose(asked: "str | Ray", devices: DeviceMap, machine: Topology | None) -> Choice:
    """The runtime of a map. "auto": in this process where all of it is one CPU, else Ray."""
    if isinstance(asked, Ray):
        return asked
    pools = split(devices, machine_of(devices, machine))
    alone = len(pools) == 1 and pools[0].size == 1
    if asked == "inline":
        check_inline(devices, pools)
    return "inline" if asked == "inline" or (asked == "auto" and alone and devices.device == "cpu") else Ray()


def is_here(choice: Choice) -> bool:
    """Whether a runtime works on this machine alone."""
    return choice == "inline" or not (isinstance(choice, Ray) and (choice.address or os.environ.get("RAY_ADDRESS")))


def check_inline(devices: DeviceMap, pools: Sequence[Pool]) -> None:
    """Raise ConfigError where one process on the first device can't do what the map says."""
    asked = f"Run(runtime='inline') with {', '.join(f'{role}: {str(place)!r}' for role, place in devices.places.items())}"
    if len(pools) > 1 or pools[0].size > 1:
        found = (
            f"the map has {sum(pool.size for pool in pools)} worker processes ({', '.join(pool.name for pool in pools)}), and this is one"
        )
        raise ConfigError(asked, found, "leave runtime out, or write runtime='ray'")
    if pools[0].devices[0] not in ("cpu:0", "local:0"):
        number = pools[0].devices[0].rpartition(":")[2]
        fix = f"start the kernel with CUDA_VISIBLE_DEVICES={number} and write '0', or leave runtime out"
        raise ConfigError(asked, "in this process every model is on the first visible GPU", fix)


def assemble(devices: DeviceMap, machine: Topology | None, asked: "str | Ray", run: str, recipe: Recipe) -> Team:
    """The team of a map, not yet open. ``machine``: CPU slots that stand for GPUs, or None for what is there."""
    choice, machine = choose(asked, devices, machine), machine_of(devices, machine)
    pools = split(devices, machine)
    if not isinstance(choice, Ray):
        plan = recipe("cpu" if pools[0].on_cpu or devices.device == "cpu" else "cuda")
        return Team(plan, pools, Inline(plan, pools[0]))
    from workbench.runtime.ground import Ground
    from workbench.runtime.ray import RayRuntime

    ground = Ground(choice, run, sum(pool.size for pool in pools))
    try:
        pools = ground.stand(pools)
        actor = next(pool for pool in pools if Role.ACTOR in pool.roles)
        plan = replace(recipe("cpu" if actor.on_cpu else "cuda"), compression=choice.compression, timeouts=choice.timeouts)
        pools = tuple(grouped(pool, plan.mode, near=ground.is_even(pool)) for pool in pools)
    except BaseException:
        ground.release()
        raise
    return Team(plan, pools, RayRuntime(plan, pools, ground), (REHEARSAL,) if all(pool.on_cpu for pool in pools) else ())
