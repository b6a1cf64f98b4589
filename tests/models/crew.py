"""A few processes with a gloo world of their own, started once, that run functions together."""

import os
import socket
import tempfile
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from tests.forks import forks


class Crew:
    """``size`` processes. ``run`` calls one function on all of them and returns what each gave, by rank.

    ``gpus``: each process sees one GPU, the one of its rank, and the world has NCCL beside gloo.
    """

    def __init__(self, size: int, *, gpus: bool = False) -> None:
        context = get_context("spawn") if gpus else forks()
        self.pipes: list[Connection] = []
        self.processes: list[BaseProcess] = []
        meeting = tempfile.mktemp(prefix="crew-")
        for rank in range(size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_live, args=(theirs, rank, size, meeting, gpus), daemon=True)
            process.start()
            self.pipes.append(ours)
            self.processes.append(process)

    def run(self, function: Callable[..., Any], *args: Any, seconds: float = 120) -> list[Any]:
        """What ``function(*args)`` gave on each rank. What one raised is raised here, with its traceback."""
        for pipe in self.pipes:
            pipe.send((function, args))
        answers = []
        for rank, pipe in enumerate(self.pipes):
            if not pipe.poll(seconds):
                raise TimeoutError(f"rank {rank} gave no answer within {seconds} s")
            answers.append(pipe.recv())
        for rank, (_, error) in enumerate(answers):
            if error:
                raise AssertionError(f"rank {rank}: {error}")
        return [value for value, _ in answers]

    def close(self) -> None:
        """End the processes."""
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(10)
            process.kill()


def _live(pipe: Connection, rank: int, size: int, meeting: str, gpus: bool) -> None:
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    with socket.socket() as unused:  # nobody listens there: the world meets in a file
        unused.bind(("", 0))
        port = unused.getsockname()[1]
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpus else "gloo", init_method=f"file://{meeting}", rank=rank, world_size=size)
    while (task := pipe.recv()) is not None:
        function, args = task
        try:
            pipe.send((function(*args), None))
        except BaseException:
            pipe.send((None, traceback.format_exc()))
    dist.destroy_process_group()
