"""A process becomes a rank of its pool's torch.distributed world."""

import os
from datetime import timedelta

OPEN_SECONDS = 300.0  # for all ranks to meet


def join_world(rank: int, size: int, address: tuple[str, int], device: str) -> None:
    """Rank ``rank`` of ``size``, meeting at ``address`` (host, port).

    ``device``: "cpu" (gloo) or "cuda" (NCCL; gloo for what lies on the CPU). accelerate, vLLM and peft find their place in the
    variables that torchrun would have set. Each process sees one GPU, its 0.
    """
    import torch.distributed as dist

    host, port = address
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {"MASTER_ADDR": host, "MASTER_PORT": str(port)}
    backend = "gloo" if device == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend, init_method=f"tcp://{host}:{port}", rank=rank, world_size=size, timeout=timedelta(seconds=OPEN_SECONDS)
    )
