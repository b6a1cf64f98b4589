"""Real processes in one torch.distributed world, each with an engine; what they saw comes back, rank by rank."""

import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from tests.forks import forks


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ranks:
    """``size`` processes that each run ``work(rank, model)`` in a gloo world of their own, and talk by ``say`` and ``hear``.

    ``gpus``: they choose one each, and import nothing before they have.
    """

    def __init__(self, work: Callable[[int, Path], None], model: Path, size: int = 2, *, gpus: bool = False) -> None:
        context, port = get_context("spawn") if gpus else forks(), free_port()
        self.ends: list[Connection] = []
        self.processes: list[Any] = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            self.processes.append(context.Process(target=_live, args=(work, rank, size, port, model, theirs), daemon=True))
            self.ends.append(ours)
            self.processes[-1].start()
            theirs.close()

    def all(self, seconds: float = 240) -> list[Any]:
        """What each rank says next; raises what one of them raised."""
        return [self.next(rank, seconds) for rank in range(len(self.ends))]

    def next(self, rank: int, seconds: float = 240) -> Any:
        """What ``rank`` says next."""
        if not self.ends[rank].poll(seconds):
            self.kill()
            raise TimeoutError(f"rank {rank} said nothing in {seconds} s")
        said = self.ends[rank].recv()
        if isinstance(said, str) and said.startswith("Traceback"):
            self.kill()
            raise RuntimeError(f"rank {rank}: {said}")
        return said

    def tell(self, what: Any) -> None:
        """Say ``what`` to every rank."""
        for end in self.ends:
            end.send(what)

    def kill(self, rank: int | None = None) -> None:
        """kill -9 one of them, or all."""
        for process in self.processes if rank is None else [self.processes[rank]]:
            process.kill()
            process.join(20)


def say(what: Any) -> None:
    """From inside a rank, to the test."""
    _ENDS[0].send(what)


def hear() -> Any:
    """From inside a rank, what the test says."""
    return _ENDS[0].recv()


_ENDS: list[Connection] = []  # of this process, where it is a rank


def _live(work: Callable[[int, Path], None], rank: int, size: int, port: int, model: Path, end: Connection) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    _ENDS.append(end)
    try:
        dist.init_process_group("gloo")
        work(rank, model)
        dist.destroy_process_group()
    except BaseException:
        say(traceback.format_exc())
        raise
