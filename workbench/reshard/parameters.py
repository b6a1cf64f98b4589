"""What a reshard has to know of a weight: its shape, and how tensor parallelism cuts it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import prod

from workbench.errors import ConfigError, check_kind
from workbench.reshard.slices import Box, Span, whole


@dataclass(frozen=True)
class Block:
    """``rows`` of a dimension that tensor parallelism cuts into equal shares.

    ``heads``: the rows are that many heads, of which none is cut; 0: they are cut anywhere. ``repeated``: where there are more shards
    than heads, several hold the same head (grouped keys and values); else that is an error. ``padded``: rows are filled up to that
    many before they are cut (a vocabulary), so that the last shares hold fewer rows, or none; 0: they are not.
    """

    rows: int
    heads: int = 0
    repeated: bool = False
    padded: int = 0

    def __post_init__(self) -> None:
        for name in ("rows", "heads", "padded"):
            check_kind(name, getattr(self, name), int, "a whole number")
        asked = f"a block of {self.rows} rows, heads={self.heads}, padded={self.padded}"
        if self.rows < 1 or self.heads < 0 or (self.heads and self.rows % self.heads):
            raise ConfigError(asked, "rows are 1 or more, and a multiple of the heads", "give heads=4 for rows=512")
        if self.repeated and not self.heads:
            raise ConfigError(asked, "only whole heads are repeated", "give the number of key-value heads")
        if self.padded and (self.heads or self.padded < self.rows):
            raise ConfigError(asked, "padding adds rows, and only to those that are no heads", "give the padded vocabulary, or 0")

    def divides(self, shards: int) -> bool:
        """Whether ``shards`` equal shares can be made of it."""
        units = self.heads or self.padded or self.rows
        return units % shards == 0 or (self.repeated and shards % units == 0)

    def extent(self, shards: int) -> int:
        """Rows that one of ``shards`` has room for, padding included."""
        return (self.padded or self.rows) // (min(shards, self.heads) if self.repeated else shards)

    def share(self, shard: int, shards: int) -> Span:
        """The block's rows that a shard holds, without padding; start == stop where it has padding only."""
        room = self.extent(shards)
        copies = max(1, shards // self.heads) if self.repeated else 1
        start = min(shard // copies * room, self.rows)
        return start, min(start + room, self.rows)


@dataclass(frozen=True)
class Cut:
    """Tensor parallelism along ``dim``: each of ``blocks`` by itself, so that a shard of a fused matrix is one slice of each."""

    dim: int
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Fused:
    """A parameter that an engine keeps inside the tensor ``into``, after its shares of the blocks ``before``."""

    into: str
    before: tuple[Block, ...]


@dataclass(frozen=True)
class Piece:
    """A slice that one rank holds: where it lies in the parameter, and where in the rank's own tensor."""

    part: Box
    local: Box


@dataclass(frozen=True)
class Shard:
    """What one rank holds of a parameter. ``padding``: elements of its tensor that are none of the parameter's."""

    pieces: tuple[Piece, ...] = ()
    padding: int = 0


@dataclass(frozen=True)
class Parameter:
    """A weight.

    ``cut``: how tensor parallelism cuts it; None: every shard has it whole. ``stage``: its pipeline stage in training, from 0.
    ``fused``: where an engine keeps it inside a larger tensor.
    """

    name: str
    shape: tuple[int, ...]
    element_bytes: int
    cut: Cut | None = None
    stage: int = 0
    fused: Fused | None = None

    def __post_init__(self) -> None:
        asked = f"parameter {self.name!r} of shape {self.shape}"
        if not self.shape or any(type(size) is not int or size < 1 for size in self.shape):
            raise ConfigError(asked, "a weight has one dimension or more, each 1 or longer", "give a tuple of sizes")
        if self.element_bytes < 1 or self.stage < 0:
            found = f"it has {self.element_bytes} bytes an element, and stage {self.stage}"
            raise ConfigError(asked, found, "give 2 for bfloat16, and stages from 0")
        if self.cut is not None:
            rows = sum(block.rows for block in self.cut.blocks)
            if not 0 <= self.cut.dim < len(self.shape) or rows != self.shape[self.cut.dim]:
                raise ConfigError(
                    asked, f"its blocks have {rows} rows along dimension {self.cut.dim}", "give blocks that make up the dimension"
                )
        elif self.fused is not None:
            raise ConfigError(asked, f"it is fused into {self.fused.into} and has no cut", "say along which dimension it is cut")

    @property
    def bytes(self) -> int:
        """Of the whole weight."""
        return prod(self.shape) * self.element_bytes

    def uncut(self) -> Shard:
        """The parameter whole on a rank, in a tensor of its own."""
        return Shard((Piece(whole(self.shape), whole(self.shape)),))

    def share(self, shard: int, shards: int, *, fused: bool = False) -> Shard:
        """What shard number ``shard`` of ``shards`` holds. ``fused``: inside the engine's fused tensor, where there is one.

        Raises ConfigError where a block can't be cut into so many.
        """
        if self.cut is None:
            return self.uncut()
        at = sum(self._room(block, shards) for block in self.fused.before) if fused and self.fused else 0
        pieces, first, padding = [], 0, 0
        for block in self.cut.blocks:
            room, (start, stop) = self._room(block, shards), block.share(shard, shards)
            if start < stop:
                pieces.append(Piece(self._along((first + start, first + stop)), self._along((at, at + stop - start))))
            padding += (room - (stop - start)) * prod(self.shape) // self.shape[self.cut.dim]
            at, first = at + room, first + block.rows
        return Shard(tuple(pieces), padding)

    def chunk(self, rank: int, ranks: int) -> Shard:
        """Rank number ``rank``'s part along dimension 0, as FSDP2 cuts: equal chunks rounded up, the last ones short or empty."""
        rows = self.shape[0]
        length = -(-rows // ranks)
        start, stop = min(rank * length, rows), min((rank + 1) * length, rows)
        if start == stop:
            return Shard()
        return Shard((Piece(((start, stop), *whole(self.shape[1:])), whole((stop - start, *self.shape[1:]))),))

    def _along(self, span: Span) -> Box:
        """``span`` along the cut, everything along the other dimensions."""
        dim = self.cut.dim if self.cut else 0
        return (*whole(self.shape[:dim]), span, *whole(self.shape[dim + 1 :]))

    def _room(self, block: Block, shards: int) -> int:
        if not block.divides(shards):
            what = f"{block.heads} heads" if block.heads else f"{block.padded or block.rows} rows"
            raise ConfigError(f"{self.name} in {shards} tensor-parallel shards", f"it has {what}", "use a size that divides them")
        return block.extent(shards)


def fuse(into: str, parts: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """``parts`` (queries, keys, values) as an engine keeps them: one after the other in its tensor ``into``, each cut by itself.

    Raises ConfigError unless all are cut along one dimension.
    """
    cuts = [part.cut for part in parts if part.cut is not None]
    if len(cuts) != len(parts) or any(one.dim != other.dim for one, other in pairwise(cuts)):
        raise ConfigError(
            f"fuse {', '.join(part.name for part in parts)} into {into}", "they are not all cut along one dimension", "fuse others"
        )
    before = [tuple(block for cut in cuts[:at] for block in cut.blocks) for at in range(len(parts))]
    return tuple(replace(part, fused=Fused(into, blocks)) for part, blocks in zip(parts, before, strict=True))
