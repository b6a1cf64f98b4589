"""What crosses between driver and workers, as frozen dataclasses: how a worker is built, and what it is asked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from workbench.models.critic import CriticPlan
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.records import EngineReady
from workbench.rollout.config import VLLM
from workbench.runtime.pools import Pool
from workbench.runtime.seat import Seat

Stop = Callable[[], bool]
Told = Callable[[int, str], None]  # a completion has ended: its place among all of the step, and its text
Report = Callable[[str, float, float, str], None]  # what, done, total, note


def never() -> bool:
    """A ``Stop`` for calls that nothing stops."""
    return False


@dataclass(frozen=True)
class WorkerPlan:
    """Everything that the workers of a run are built from, whatever their roles."""

    model: Path
    lora: LoRA | None  # None: all of the actor's weights are trained
    optimizer: Optimizer
    engine: VLLM
    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"
    seed: int
    reward: Callable[..., Any] | None = None  # for workers of the reward role
    compression: str | None = None  # of gradients
    critic: CriticPlan | None = None
    mode: str = "adapter"  # how the engine gets the weights: "adapter", "zero_copy", "merged" or "full"
    kept: int = 0  # versions of the adapter that the trainer keeps, for batches that are not of the newest

    def on(self, pool: Pool) -> "WorkerPlan":
        """The plan of ``pool``'s workers: a reference or a reward may be on the CPU beside an actor on GPUs."""
        return replace(self, device="cpu", dtype="float32") if pool.on_cpu else self

    timeouts: Mapping[str, float] = field(default_factory=dict)  # purpose of a group -> seconds


@dataclass(frozen=True)
class Post:
    """Which worker of a plan this is: its pool, and its place in the pool's world."""

    pool: Pool
    rank: int = 0


@dataclass(frozen=True)
class Opened:
    """A worker is ready. ``engine``: None where it has none."""

    seats: tuple[Seat, ...]
    engine: EngineReady | None


@dataclass(frozen=True)
class Draw:
    """How completions are drawn. ``key`` is their place in the run ("step", 3): it seeds each of them apart."""

    key: tuple[object, ...]
    temperature: float
    max_tokens: int
    seeded: bool | None = None  # None: on a CPU
    adapter: bool = True  # False: the base


@dataclass(frozen=True)
class Signal:
    """What a batch teaches, row by row: one value per response token, on the CPU. ``version``: of the adapter that sampled it."""

    advantages: Sequence[torch.Tensor]  # (length,) each
    ref_logp: Sequence[torch.Tensor] | None = None  # (length,) each, where the algorithm needs the reference
    version: int | None = None  # None: the one that the engine has now


@dataclass(frozen=True)
class Estimate:
    """What a batch teaches the critic, row by row: one value per response token, on the CPU."""

    values: Sequence[torch.Tensor]  # (length,) each: the critic's own
    targets: Sequence[torch.Tensor]  # (length,) each: what they should have been


@dataclass(frozen=True)
class Arrival:
    """The actor's weights are in an engine, proved."""

    bytes: int  # an adapter's; of whole weights those that came from other ranks
    seconds: float  # the push itself
    proof_seconds: float
    checksum: str
    written: int = 0  # bytes of the engine's own tensors that were written
    scheduled: int = 0  # bytes that should come from other ranks
    rounding: float | None = None  # of merged weights: the norm of what rounding to their precision loses, in norms of what was added


class CanaryDied(Exception):  # noqa: N818 - a signal between worker and team, which tells the user with its cause
    """Engine and trainer disagree on the sampled tokens. Raised on all ranks alike, before anything was applied."""

    def __init__(self, max_diff: float, mean_diff: float) -> None:
        super().__init__(max_diff, mean_diff)
        self.max_diff, self.mean_diff = max_diff, mean_diff
