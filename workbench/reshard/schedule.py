"""The schedule of a reshard: which slice goes from which rank to which, and what that costs each of them. Plain data, no torch.

A rank keeps what it holds already, so never more moves than in a full gather. What it lacks it takes, slice by slice, from the
best of the ranks that hold the slice:
    1. one of its own group in the source layout (its training replica), and among those
    2. one of its own group in the target layout (its micro data-parallel group), and among those
    3. the one that has to send least so far, then the one with the nearest rank, then the lowest.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from workbench.errors import ConfigError
from workbench.reshard.lying import Engine, Lying
from workbench.reshard.parameters import Parameter, Piece
from workbench.reshard.slices import Box, elements, meet, shifted, without


@dataclass(frozen=True)
class Copy:
    """One slice on its way. ``part``: in the parameter; ``source_slice``, ``target_slice``: in the tensors of the two ranks."""

    parameter: str
    source_rank: int
    target_rank: int
    part: Box
    source_slice: Box
    target_slice: Box
    bytes: int


@dataclass(frozen=True)
class Load:
    """One rank's bytes of parameters. ``held``: before; ``stays``: what of that it needs after, too. ``padding``: of tensors, after."""

    rank: int
    held: int
    stays: int
    received: int
    sent: int
    padding: int = 0

    @property
    def needs(self) -> int:
        """Of parameters, after."""
        return self.stays + self.received

    @property
    def redundant(self) -> int:
        """Held for the source layout, and no part of what is needed, while both layouts live."""
        return self.held - self.stays

    def peak(self, bucket_bytes: int = 0) -> int:
        """Held at the end, both layouts alive, and one bucket. What stays counts once: where the layouts share no memory, add ``stays``."""
        return self.needs + self.redundant + self.padding + bucket_bytes


@dataclass(frozen=True)
class Schedule:
    """``copies``: between ranks, by parameter and then by target rank. ``stays``: from a rank to itself. ``loads``: one for each rank."""

    copies: tuple[Copy, ...]
    stays: tuple[Copy, ...]
    loads: tuple[Load, ...]

    def __hash__(self) -> int:
        """Of the sums alone: what is made of a schedule is kept by it, and a schedule has thousands of copies."""
        return hash(self.loads)

    @property
    def bytes(self) -> int:
        """That move between ranks."""
        return sum(copy.bytes for copy in self.copies)

    @property
    def sources(self) -> tuple[tuple[int, ...], ...]:
        """For each rank, the ranks from which it takes something."""
        found: list[set[int]] = [set() for _ in self.loads]
        for copy in self.copies:
            found[copy.target_rank].add(copy.source_rank)
        return tuple(tuple(sorted(ranks)) for ranks in found)

    def __str__(self) -> str:
        """A table, one row for each rank."""
        from workbench.reshard.drawing import table

        return table(self)


def schedule(parameters: Sequence[Parameter], source: Lying, target: Lying) -> Schedule:
    """What has to move so that ``parameters`` that lie as ``source`` lie as ``target``, too. Rank n is the same GPU in both.

    Raises ConfigError where a layout can't cut a parameter, two parameters have one name, or ``source`` does not hold everything.
    """
    if len({parameter.name for parameter in parameters}) != len(parameters):
        raise ConfigError(f"a schedule of {len(parameters)} parameters", "two of them have one name", "name each once")
    planner = _Planner(source, target)
    for parameter in parameters:
        planner.add(parameter)
    return Schedule(tuple(planner.copies), tuple(planner.stays), planner.loads())


@dataclass(frozen=True)
class Grouping:
    """An engine's groups of ranks, and the schedule into them."""

    engine: Engine
    schedule: Schedule


def groupings(parameters: Sequence[Parameter], source: Lying, tp: int, dp: int = 1) -> tuple[Grouping, ...]:
    """Engines with groups of consecutive and of strided ranks: first the one into which fewer bytes move, consecutive ranks on a tie."""
    engines = [Engine(tp, dp)] + ([Engine(tp, dp, strided=True)] if tp > 1 and dp > 1 else [])
    found = [Grouping(engine, schedule(parameters, source, engine)) for engine in engines]
    return tuple(sorted(found, key=lambda grouping: grouping.schedule.bytes))


class _Planner:
    """Copies as they are found, and each rank's sums: the rule needs what a rank has to send so far."""

    def __init__(self, source: Lying, target: Lying) -> None:
        self._source, self._target = source, target
        self._ranks = range(max(source.ranks, target.ranks))
        self._groups = [(_group(source, rank), _group(target, rank)) for rank in self._ranks]
        self._held, self._stay, self._received, self._sent, self._padding = ([0] * len(self._ranks) for _ in range(5))
        self.copies: list[Copy] = []
        self.stays: list[Copy] = []

    def loads(self) -> tuple[Load, ...]:
        """The sums."""
        sums = zip(self._ranks, self._held, self._stay, self._received, self._sent, self._padding, strict=True)
        return tuple(Load(*row) for row in sums)

    def add(self, parameter: Parameter) -> None:
        """Plan one parameter."""
        holders: dict[Piece, list[int]] = {}
        for rank in range(self._source.ranks):
            for piece in self._source.shard(parameter, rank).pieces:
                holders.setdefault(piece, []).append(rank)
                self._held[rank] += elements(piece.part) * parameter.element_bytes
        offers: dict[Box, list[_Offer]] = {}
        for rank in range(self._target.ranks):
            shard = self._target.shard(parameter, rank)
            self._padding[rank] += shard.padding * parameter.element_bytes
            for piece in shard.pieces:
                if piece.part not in offers:  # many ranks need the same
                    offers[piece.part] = _offers(piece.part, holders)
                self._fill(_Need(parameter, rank, piece), offers[piece.part])

    def _fill(self, need: "_Need", offers: Sequence["_Offer"]) -> None:
        """Keep what the rank has of its need, and fetch the rest."""
        missing = [need.piece.part]
        for part, found in offers:
            for piece in (piece for rank, piece in found if rank == need.rank):
                stays = need.copy(need.rank, piece, part)
                self.stays.append(stays)
                self._stay[need.rank] += stays.bytes
                missing = [rest for box in missing for rest in without(box, part)]
        for part, found in offers if missing else ():
            for box in [common for box in missing if (common := meet(box, part))]:
                self._fetch(need, box, found)
            missing = [rest for box in missing for rest in without(box, part)]
        if missing:
            asked = f"{need.parameter.name}, {missing[0]}, for rank {need.rank}"
            raise ConfigError(asked, "no rank of the source layout holds it", "give a source layout that holds every parameter")

    def _fetch(self, need: "_Need", box: Box, found: Sequence[tuple[int, Piece]]) -> None:
        """Copy ``box`` from the best of those that were ``found`` to hold it."""
        source, piece = found[0] if len(found) == 1 else min(found, key=lambda offer: self._cost(offer[0], need.rank))
        copy = need.copy(source, piece, box)
        self.copies.append(copy)
        self._sent[source] += copy.bytes
        self._received[need.rank] += copy.bytes

    def _cost(self, source: int, rank: int) -> tuple[bool, bool, int, int, int]:
        """The rule at the top of this file: the lowest is taken."""
        (replica, micro), (own_replica, own_micro) = self._groups[source], self._groups[rank]
        return replica != own_replica, micro != own_micro, self._sent[source], abs(source - rank), source


@dataclass(frozen=True)
class _Need:
    """A piece of a parameter that a rank has to have."""

    parameter: Parameter
    rank: int
    piece: Piece

    def copy(self, source: int, piece: Piece, part: Box) -> Copy:
        """The copy of ``part`` out of the ``piece`` that ``source`` holds."""
        return Copy(
            parameter=self.parameter.name,
            source_rank=source,
            target_rank=self.rank,
            part=part,
            source_slice=shifted(part, piece.part, piece.local),
            target_slice=shifted(part, self.piece.part, self.piece.local),
            bytes=elements(part) * self.parameter.element_bytes,
        )


def _group(lying: Lying, rank: int) -> int:
    return lying.group(rank) if rank < lying.ranks else -1


_Offer = tuple[Box, list[tuple[int, Piece]]]
"""A slice, the ranks that hold it, and the piece in which each does."""


def _offers(need: Box, holders: Mapping[Piece, Sequence[int]]) -> list[_Offer]:
    """The slices of ``need`` that some rank holds, first rows first."""
    found: dict[Box, list[tuple[int, Piece]]] = {}
    for piece, ranks in holders.items():
        common = meet(piece.part, need)
        if common is not None:
            found.setdefault(common, []).extend((rank, piece) for rank in ranks)
    return sorted(found.items(), key=lambda offer: offer[0])
