"""How parameters lie over ranks, numbered from 0: ddp, fsdp, and tensor-parallel engines. Grids with pipelines are in grids.py."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from workbench.errors import ConfigError, check_kind
from workbench.reshard.parameters import Parameter, Shard

MOST_RANKS = 2**16


class Lying(ABC):
    """Which slice of which parameter lies on which rank."""

    @property
    @abstractmethod
    def ranks(self) -> int:
        """How many ranks hold something: 0 to ``ranks`` - 1."""

    @abstractmethod
    def shard(self, parameter: Parameter, rank: int) -> Shard:
        """What ``rank`` holds of ``parameter``. Raises ConfigError where it can't be cut so."""

    def group(self, rank: int) -> int:
        """Ranks of one group are near each other: what one of them lacks it takes from another of them, where it can."""
        return 0


def check_sizes(asked: str, sizes: dict[str, int]) -> None:
    """Raise ConfigError unless every size is 1 or more, and their product no more than MOST_RANKS."""
    ranks = 1
    for name, size in sizes.items():
        check_kind(f"{asked}: {name}", size, int, "a whole number such as 2")
        ranks *= size
        if size < 1 or ranks > MOST_RANKS:
            found = f"{name} is {str(size)[:20]}" + ("" if size < 1 else f", and there are at most {MOST_RANKS:,} ranks")
            raise ConfigError(asked, found, "give sizes from 1 on whose product is the number of GPUs")


@dataclass(frozen=True)
class Ddp(Lying):
    """Every rank has everything whole."""

    size: int

    def __post_init__(self) -> None:
        check_sizes("ddp", {"ranks": self.size})

    @property
    def ranks(self) -> int:
        """All."""
        return self.size

    def shard(self, parameter: Parameter, rank: int) -> Shard:
        """The whole."""
        return parameter.uncut()


@dataclass(frozen=True)
class Fsdp(Lying):
    """Every parameter cut along its first dimension, as FSDP2 does: DTensor's Shard(0), the last chunks short or empty."""

    size: int

    def __post_init__(self) -> None:
        check_sizes("fsdp", {"ranks": self.size})

    @property
    def ranks(self) -> int:
        """All."""
        return self.size

    def shard(self, parameter: Parameter, rank: int) -> Shard:
        """One chunk, or nothing."""
        return parameter.chunk(rank, self.size)


@dataclass(frozen=True)
class Split(Lying):
    """A tensor-parallel trainer: ``copies`` models of ``tp`` consecutive ranks each. Parameters in ``whole`` are not split."""

    tp: int
    copies: int = 1
    whole: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        check_sizes("tensor-parallel trainer", {"tp": self.tp, "copies": self.copies})

    @property
    def ranks(self) -> int:
        """Of all copies."""
        return self.tp * self.copies

    def shard(self, parameter: Parameter, rank: int) -> Shard:
        """The rank's share in a tensor of its own."""
        return parameter.uncut() if parameter.name in self.whole else parameter.share(rank % self.tp, self.tp)

    def group(self, rank: int) -> int:
        """Its copy of the model."""
        return rank // self.tp


@dataclass(frozen=True)
class Engine(Lying):
    """``dp`` engines of ``tp`` ranks. A tensor-parallel group is ``tp`` consecutive ranks, as vLLM's external_launcher has it; ``strided``:
    every ``dp``-th rank, which vLLM needs permuted ranks for.
    """

    tp: int
    dp: int = 1
    strided: bool = False

    def __post_init__(self) -> None:
        check_sizes("engine", {"tp": self.tp, "dp": self.dp})

    @property
    def ranks(self) -> int:
        """Of all engines."""
        return self.tp * self.dp

    @property
    def tensor_groups(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each engine, by its lowest."""
        if self.strided:
            return tuple(tuple(range(first, self.ranks, self.dp)) for first in range(self.dp))
        return tuple(tuple(range(first, first + self.tp)) for first in range(0, self.ranks, self.tp))

    def shard(self, parameter: Parameter, rank: int) -> Shard:
        """The rank's share, inside the fused tensor where there is one."""
        return parameter.share(rank // self.dp if self.strided else rank % self.tp, self.tp, fused=True)

    def __str__(self) -> str:
        return f"tp {self.tp} x dp {self.dp}, groups of {'strided' if self.strided else 'consecutive'} ranks"
