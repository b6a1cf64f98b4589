"""Which ranks of a pool hold an engine together: consecutive ones, or where fewer bytes of weights move so, every n-th."""

from dataclasses import replace

from workbench.reshard.lying import Ddp, Fsdp, Lying, Split
from workbench.reshard.parameters import Block, Cut, Parameter
from workbench.reshard.schedule import groupings
from workbench.rollout.config import TAKES_ADAPTER
from workbench.runtime.pools import Pool


def grouped(pool: Pool, mode: str, *, near: bool) -> Pool:
    """``pool`` with the groups of its engines. ``mode``: how they get the weights; ``near``: whether all its devices are linked alike.

    Engines decode over the links of their ranks all the time, and weights move once a step: where some pairs are nearer than others,
    groups stay consecutive, as the map's checks look at them.
    """
    if mode in TAKES_ADAPTER or pool.engine_tp == 1 or pool.size == pool.engine_tp or not near:
        return pool
    # What a transformer's weights are: matrices that tensor parallelism cuts by rows, and by columns. Which groups move less follows from
    # the layouts, whatever their sizes.
    kinds = [Parameter(f"cut along {dim}", (pool.size, pool.size), 1, Cut(dim, (Block(pool.size),))) for dim in (0, 1)]
    best = groupings(kinds, lying(pool.layout, pool.size), pool.engine_tp, pool.size // pool.engine_tp)[0]
    return replace(pool, strided=best.engine.strided)


def lying(layout: str, size: int, whole: frozenset[str] = frozenset()) -> Lying:
    """How the weights of a trainer lie over ``size`` ranks. ``layout``: "ddp", "fsdp" or "tp=2"; ``whole``: what tp leaves whole."""
    if not layout.startswith("tp="):
        return Fsdp(size) if layout == "fsdp" else Ddp(size)
    tp = int(layout.removeprefix("tp="))
    return Split(tp, size // tp, whole)
