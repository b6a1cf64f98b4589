"""Real processes in one torch.distributed world, each with an engine; what they saw comes back, rank by rank."""

import multiprocessing as mp
import os
import socket
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

World = dict[str, Any]  # what a check saw, by name


def free_port() -> int:
    """One that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Ranks:
    """``size`` spawned processes that each run ``work(rank, model)`` in a gloo world of their own."""

    def __init__(self, work: Callable[[int, Path], World], model: Path, size: int = 2) -> None:
        context, port = mp.get_context("spawn"), free_port()
        self.ends, self.processes = [], []
        for rank in range(size):
            ours, theirs = context.Pipe()
            self.processes.append(context.Process(target=_live, args=(work, rank, size, port, model, theirs), daemon=True))
            self.ends.append(ours)
            self.processes[-1].start()
            theirs.close()

    def results(self, seconds: float = 240) -> list[World]:
        """What each rank returned; raises what one of them raised."""
        found = [self.hear(rank, seconds) for rank in range(len(self.ends))]
        for process in self.processes:
            process.join(20)
        return found

    def hear(self, rank: int, seconds: float = 240) -> Any:
        """The next thing that ``rank`` says."""
        if not self.ends[rank].poll(seconds):
            self.kill()
            raise TimeoutError(f"rank {rank} said nothing in {seconds} s")
        said = self.ends[rank].recv()
        if isinstance(said, str) and said.startswith("Traceback"):
            self.kill()
            raise RuntimeError(f"rank {rank}: {said}")
        return said

    def kill(self) -> None:
        """kill -9 all of them."""
        for process in self.processes:
            process.kill()
            process.join(20)


def _live(work: Callable[[int, Path], World], rank: int, size: int, port: int, model: Path, end: Connection) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), LOCAL_RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo")
        _SAY.append(end)
        end.send(work(rank, model))
        dist.destroy_process_group()
    except BaseException:
        end.send(traceback.format_exc())
        raise


_SAY: list[Connection] = []


def say(what: Any) -> None:
    """Tell the test, from inside a rank, before the end."""
    _SAY[0].send(what)
