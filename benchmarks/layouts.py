"""Updates of an actor in each layout over two GPUs, without any engine: seconds, tokens per second, peak memory.

    python -m benchmarks.layouts                    # Qwen2-1.5B's shape with 8 layers, ddp and fsdp over two GPUs, one GPU beside them
    python -m benchmarks.layouts --small            # two processes on a CPU, to try the script

Every rank has its own rows, as many as its GPU has in a step of ``grpo_step`` over two. The first update compiles.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import workbench as wb
from benchmarks.common import write
from benchmarks.grpo_step import SHAPES, make_model

PROMPT, RESPONSE, ROWS = 64, 256, 256  # tokens, tokens, and rows of a rank
LAYOUTS = {"one": ("ddp", "FULL_SHARD"), "ddp": ("ddp", "FULL_SHARD"), "fsdp": ("fsdp", "FULL_SHARD"), "grad_op": ("fsdp", "SHARD_GRAD_OP")}


def work(rank: int, size: int, name: str, model: Path, small: bool, file: str) -> None:
    """One rank: updates, and their seconds into ``file`` by the first."""
    if not small:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29555", "RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_RANK": "0"}
    import torch
    import torch.distributed as dist

    from workbench.models.actor import Actor, ActorPlan
    from workbench.models.experience import Experience
    from workbench.models.packing import Row
    from workbench.models.ranks import Ranks

    if size > 1:
        dist.init_process_group("gloo" if small else "cpu:gloo,cuda:nccl", init_method=f"file://{file}.meeting", rank=rank, world_size=size)
    device, dtype = ("cpu", "float32") if small else ("cuda", "bfloat16")
    layout, sharding = LAYOUTS[name]
    plan = ActorPlan(model, wb.LoRA(rank=16, alpha=32), wb.Optimizer(learning_rate=1e-5), device, dtype, 0, layout, sharding)
    actor = Actor(plan, Ranks.of_world(role="actor") if size > 1 else None)
    count, length = (16, 16) if small else (ROWS, RESPONSE)
    rows = [Row(tuple(range(3, 3 + PROMPT)), tuple(100 + place + row for place in range(length))) for row in range(count)]
    advantages = [torch.full((length,), row % 3 - 1.0) for row in range(count)]
    data = Experience(rows, [[-12.0] * length for _ in rows], advantages, None, 1.0, length)

    def timed() -> float:
        began = time.monotonic()
        actor.update(data, wb.GRPO(), 1e-5)
        if device == "cuda":
            torch.cuda.synchronize()
        return time.monotonic() - began

    seconds = [timed() for _ in range(4)]
    if rank == 0:
        peak = torch.cuda.max_memory_allocated() / 2**30 if device == "cuda" else 0.0
        torch.save({"update_seconds": seconds, "peak_gib": peak, "tokens_per_second": count * (PROMPT + length) / min(seconds)}, file)


def measure(name: str, model: Path, small: bool) -> dict[str, Any]:
    """One layout, in processes of its own."""
    import torch

    size = 1 if name == "one" else 2
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (size, name, model, small, f"{folder}/figures"), nprocs=size)
        figures: dict[str, Any] = torch.load(f"{folder}/figures")
    return figures


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--only", nargs="*", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    SHAPES["measured"] = SHAPES["small" if arguments.small else "qwen2-1.5b"] | (
        {} if arguments.small else {"num_hidden_layers": arguments.layers}
    )
    figures: dict[str, Any] = {
        "what": "updates of an actor with LoRA r16 all-linear; each rank its own rows",
        "layers": arguments.layers,
        "layouts": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder), "measured")
        for name in arguments.only:
            figures["layouts"][name] = measure(name, model, arguments.small)
            write("layouts_h200", figures, arguments.out)


if __name__ == "__main__":
    main()
