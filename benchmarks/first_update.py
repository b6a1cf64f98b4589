"""The first update of a trainer in a process of its own, and those after it: what compiling takes, without any engine.

    python -m benchmarks.first_update              # layers of Qwen2-1.5B's width, compiled from nothing
    python -m benchmarks.first_update --small      # on a CPU, where nothing is compiled: to try the script

Caches of the compiler are in a folder of this process, so every run of this script begins with none.
"""

import argparse
import os
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp()
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()

import workbench as wb
from benchmarks.common import write
from benchmarks.grpo_step import SHAPES, make_model

ROWS, PROMPT, RESPONSE = 256, 64, 256  # and tokens of each


def measure(layers: int, small: bool) -> dict[str, Any]:
    """Seconds of a pass of the reference, and of three updates."""
    import torch

    from workbench.models.actor import Actor, ActorPlan
    from workbench.models.experience import Experience
    from workbench.models.packing import Row

    cuda = torch.cuda.is_available()
    rows_count, response = (16, 16) if small else (ROWS, RESPONSE)
    SHAPES["measured"] = SHAPES["small" if small else "qwen2-1.5b"] | {"num_hidden_layers": layers}
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder), "measured")
        device, dtype = ("cuda", "bfloat16") if cuda else ("cpu", "float32")
        actor = Actor(ActorPlan(model, wb.LoRA(rank=16, alpha=32), wb.Optimizer(learning_rate=1e-5), device, dtype, 0))
    rows = [Row(tuple(range(3, 3 + PROMPT)), tuple(100 + place + row for place in range(response))) for row in range(rows_count)]
    advantages = [torch.full((response,), row % 3 - 1.0) for row in range(rows_count)]
    data = Experience(rows, [[-12.0] * response for _ in rows], advantages, None, 1.0, response)

    def timed(work: Any) -> float:
        began = time.monotonic()
        work()
        if cuda:
            torch.cuda.synchronize()
        return time.monotonic() - began

    reference = timed(lambda: actor.score(rows, 1.0, adapter=False))
    updates = [timed(lambda: actor.update(data, wb.GRPO(), 1e-5)) for _ in range(3)]
    return {"layers": layers, "reference_seconds": reference, "update_seconds": updates}


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    what = "an actor with LoRA r16 all-linear, no engine in the process; the first update holds the compiling"
    write("first_update_h200", {"what": what, **measure(arguments.layers, arguments.small)}, arguments.out)


if __name__ == "__main__":
    main()
