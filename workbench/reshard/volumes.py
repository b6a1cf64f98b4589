"""What a reshard costs each GPU by the published formulas: HybridFlow (EuroSys 25, arXiv 2409.19256), section 5.4, table 2.

M: bytes of the whole model; training p·t·d; generation p_g·t_g. Exact fractions, since the formulas know no whole bytes.
"""

from dataclasses import dataclass
from fractions import Fraction

from workbench.reshard.grids import Generation


@dataclass(frozen=True)
class Volume:
    """Bytes per GPU: ``moved`` into it, held at the ``peak``, and ``redundant``: held for training beside what generation needs."""

    moved: Fraction
    peak: Fraction
    redundant: Fraction


def hybrid(grid: Generation, model_bytes: int) -> Volume:
    """HybridFlow: an all-gather inside each micro data-parallel group, (tp - t_g·p_g) / (t_g·p_g·tp)·M; nothing is redundant."""
    have, need = Fraction(model_bytes, grid.training.replica), Fraction(model_bytes, grid.p_g * grid.t_g)
    return Volume(need - have, need, Fraction(0))


def full_gather(grid: Generation, model_bytes: int) -> Volume:
    """DeepSpeed-Chat: sharded over all ranks (ZeRO), an all-gather over all of them, (tpd - 1) / (tpd)·M; M at the peak."""
    have = Fraction(model_bytes, grid.ranks)
    return Volume(model_bytes - have, Fraction(model_bytes), have)


def vanilla(grid: Generation, model_bytes: int) -> Volume:
    """HybridFlow-V: groups of consecutive ranks, an all-gather inside each training replica, (tp - 1) / (tp)·M; M at the peak."""
    have = Fraction(model_bytes, grid.training.replica)
    return Volume(model_bytes - have, Fraction(model_bytes), have)
