"""The ranks of torch's default world, and the engines that they hold: ``tp`` ranks hold one, consecutive ones or every n-th."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from workbench.errors import ConfigError

POLL = 16  # engine steps between two looks at a stop that ranks must agree on: 0.2 to 1 ms a look, steps of 2 to 20 ms


@dataclass(frozen=True)
class EngineRanks:
    """This process's place: ``rank`` of ``world`` ranks, in an engine of ``tp`` ranks.

    ``strided``: of n engines each has every n-th rank, instead of consecutive ones.
    """

    rank: int
    world: int
    tp: int
    strided: bool = False

    @classmethod
    def taken(cls, tp: int, strided: bool = False) -> "EngineRanks":
        """The place in torch's default group; without one, a process is alone. ConfigError where ``tp`` doesn't divide the world."""
        inside = dist.is_available() and dist.is_initialized()
        rank, world = (dist.get_rank(), dist.get_world_size()) if inside else (0, 1)
        if tp < 1 or world % tp:
            asked = f"an engine of {tp} ranks (tp={tp})"
            raise ConfigError(asked, f"this pool has {world}", f"a number that {world} is a multiple of, or another number of devices")
        return cls(rank, world, tp, strided)

    @property
    def copies(self) -> int:
        """Engines of the world."""
        return self.world // self.tp

    @property
    def copy(self) -> int:
        """Which of the world's engines this rank is part of."""
        return self.rank % self.copies if self.strided else self.rank // self.tp

    @property
    def engine_by_engine(self) -> tuple[int, ...]:
        """The world's ranks, those of the first engine first."""
        ranks = range(self.world)
        return tuple(sorted(ranks, key=lambda rank: rank % self.copies)) if self.strided else tuple(ranks)

    @property
    def together(self) -> tuple[int, ...]:
        """The ranks of this rank's engine."""
        return self.engine_by_engine[self.copy * self.tp : (self.copy + 1) * self.tp]

    def of_first(self, mine: Any) -> Any:
        """What the first rank of this engine says. All ranks of the world call it."""
        said: list[Any] = [None] * self.world
        dist.all_gather_object(said, mine)
        return said[self.together[0]]


class AgreedStop:
    """A stop that all ranks of one engine see at the same call, whoever was told: they step together or hang.

    They look at every ``POLL``-th call, the first included, and exchange one number by ``group`` (gloo).
    """

    def __init__(self, mine: Callable[[], bool], group: Any) -> None:
        self._mine, self._group, self._calls = mine, group, 0

    def __call__(self) -> bool:
        self._calls += 1
        if self._calls % POLL != 1:
            return False
        told = torch.tensor(int(self._mine()))
        dist.all_reduce(told, op=dist.ReduceOp.MAX, group=self._group)
        return bool(told)


@contextmanager
def same_draws(seed: int, device: str) -> Iterator[None]:
    """Torch's generators begin at ``seed`` inside and go on outside as if nothing had happened.

    Ranks of one engine each sample every token, from torch's global generator unless a request has a seed; the trainer in the
    same process may have drawn from it more often on one rank than on the other.
    """
    with torch.random.fork_rng(devices=[0] if device == "cuda" else []):
        torch.manual_seed(seed)
        yield
