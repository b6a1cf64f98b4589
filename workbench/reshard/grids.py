"""Grids of pipeline, tensor and data parallelism, and the groups of ranks in them, for training and for generation.

The groups are those of HybridFlow (EuroSys 25, arXiv 2409.19256, section 5.3), ranks from 0. A training replica is p·t consecutive
ranks, the tensor-parallel ranks of a stage first. For generation each replica makes d_g = p·t / (p_g·t_g) smaller ones.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from workbench.errors import ConfigError
from workbench.reshard.lying import Lying, check_sizes
from workbench.reshard.parameters import Parameter, Shard

Groups = tuple[tuple[int, ...], ...]
"""Ranks in groups, by the lowest of each."""


@dataclass(frozen=True)
class Training(Lying):
    """``p`` pipeline stages x ``t`` tensor-parallel shards x ``d`` data-parallel replicas."""

    p: int
    t: int
    d: int

    def __post_init__(self) -> None:
        check_sizes(f"training grid {self}", {"p": self.p, "t": self.t, "d": self.d})

    def __str__(self) -> str:
        return f"{self.p}-{self.t}-{self.d}"

    @property
    def ranks(self) -> int:
        """p·t·d."""
        return self.p * self.t * self.d

    @property
    def replica(self) -> int:
        """Ranks of one replica, p·t."""
        return self.p * self.t

    def where(self, rank: int) -> tuple[int, int]:
        """The stage and the tensor-parallel shard of ``rank``."""
        return rank // self.t % self.p, rank % self.t

    def group(self, rank: int) -> int:
        """Its replica."""
        return rank // self.replica

    def shard(self, parameter: Parameter, rank: int) -> Shard:
        """Its share of the parameters of its stage. Raises ConfigError for a parameter of a stage that the grid lacks."""
        if parameter.stage >= self.p:
            raise ConfigError(
                f"{parameter.name} in stage {parameter.stage}", f"the grid {self} has {self.p}", f"give stages 0 to {self.p - 1}"
            )
        stage, shard = self.where(rank)
        return parameter.share(shard, self.t) if stage == parameter.stage else Shard()


@dataclass(frozen=True)
class Generation(Lying):
    """``p_g`` stages x ``t_g`` shards, in each replica of ``training`` d_g times.

    A generation group is made of every (t/t_g)-th rank of a stage and every (p/p_g)-th stage, so that each rank goes on with what it
    has: what it lacks lies in its micro data-parallel group. ``consecutive``: groups of consecutive ranks instead, as training makes
    them (the paper's HybridFlow-V); some ranks then have nothing of what they need.
    """

    training: Training
    p_g: int
    t_g: int
    consecutive: bool = False

    def __post_init__(self) -> None:
        asked = f"generation groups of {self.p_g} stages x {self.t_g} tensor shards from training grid {self.training}"
        check_sizes(asked, {"p_g": self.p_g, "t_g": self.t_g})
        for name, have, want in (("pipeline", self.training.p, self.p_g), ("tensor", self.training.t, self.t_g)):
            if have % want:
                fits = ", ".join(str(size) for size in range(1, have + 1) if have % size == 0)
                raise ConfigError(asked, f"the training {name} size {have} is no multiple of {want}", f"give one of {fits}")

    def __str__(self) -> str:
        return f"{self.p_g}-{self.t_g}-{self.d_g}-{self.training.d}"

    @property
    def ranks(self) -> int:
        """Those of training."""
        return self.training.ranks

    @property
    def d_g(self) -> int:
        """Micro data-parallel copies in a replica, p·t / (p_g·t_g)."""
        return self.training.replica // (self.p_g * self.t_g)

    def where(self, rank: int) -> tuple[int, int, int]:
        """The generation stage, the tensor-parallel shard, and which of the d_g copies ``rank`` belongs to."""
        stages, shards = self.training.p // self.p_g, self.training.t // self.t_g
        if self.consecutive:
            inside = rank % self.training.replica
            return inside // self.t_g % self.p_g, inside % self.t_g, inside // (self.p_g * self.t_g)
        stage, shard = self.training.where(rank)
        return stage // stages, shard // shards, stage % stages * shards + shard % shards

    def group(self, rank: int) -> int:
        """Its micro data-parallel group."""
        stage, shard, _ = self.where(rank)
        return (self.training.group(rank) * self.p_g + stage) * self.t_g + shard

    def shard(self, parameter: Parameter, rank: int) -> Shard:
        """Its share of the parameters of its stage, inside fused tensors where there are some."""
        stage, shard, _ = self.where(rank)
        mine = parameter.stage * self.p_g // self.training.p == stage
        return parameter.share(shard, self.t_g, fused=True) if mine else Shard()

    @property
    def micro_data_groups(self) -> Groups:
        """Ranks that hold the same in generation; all that moves moves inside them."""
        return _grouped(self.ranks, self.group)

    @property
    def tensor_groups(self) -> Groups:
        """Ranks that share out the layers of a generation stage."""
        return _grouped(self.ranks, lambda rank: (self.training.group(rank), self.where(rank)[0], self.where(rank)[2]))

    @property
    def pipeline_groups(self) -> Groups:
        """Ranks that hand on to each other in generation."""
        return _grouped(self.ranks, lambda rank: (self.training.group(rank), *self.where(rank)[1:]))


def _grouped(ranks: int, key: Callable[[int], Hashable]) -> Groups:
    found: dict[Hashable, list[int]] = {}
    for rank in range(ranks):
        found.setdefault(key(rank), []).append(rank)
    return tuple(tuple(group) for group in found.values())
