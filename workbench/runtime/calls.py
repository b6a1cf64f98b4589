"""What a team asks of workers, and who carries it out: the one narrow door between policy and mechanism."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from workbench.runtime.account import Account
from workbench.runtime.outpost import Outpost
from workbench.runtime.plans import Report, Stop, Told
from workbench.runtime.pools import Pool
from workbench.runtime.seat import Seat


@dataclass(frozen=True)
class Held:
    """A result that stays where it is until another call carries it there: an adapter goes from worker to worker, past the driver."""

    ref: Any


@dataclass(frozen=True)
class Call:
    """``method(*args)`` of one worker. ``carry``: a held result, handed in as the last argument. ``hold``: the result is to be held."""

    pool: Pool
    rank: int
    method: str
    args: tuple[Any, ...] = ()
    carry: Held | None = None
    hold: bool = False


@dataclass(frozen=True)
class Answer:
    """What came back, how many bytes went there and back between processes, and what it took."""

    value: Any
    bytes_there: int = 0
    bytes_back: int = 0
    account: Account = field(default_factory=Account)


class Runtime(Protocol):
    """Where workers live. All calls of one ``run`` are under way at the same time, as ranks of one world have to be."""

    inline: bool

    def open(self, report: Report, stop: Stop) -> list[Answer]:
        """Make every worker and open it; one ``Opened`` each, pool by pool, rank by rank. Raises Stopped."""
        ...

    def run(self, calls: Sequence[Call], stop: Stop, told: Told | None = None) -> list[Answer]:
        """The answers, in order; meanwhile ``told`` gets what workers tell.

        Raises what a worker raised (Stopped included), and WorkerError where one died."""
        ...

    def outposts(self, seats: Sequence[Seat], hz: float) -> Sequence[Outpost]:
        """Start a sampler on every other machine with devices of the run; none where all of them are on this one."""
        ...

    @property
    def broken(self) -> bool:
        """Whether a worker is gone, or hangs: nothing can be asked any more."""
        ...

    def close(self) -> None:
        """End every worker; the memory is free afterwards. Twice is harmless."""
        ...
