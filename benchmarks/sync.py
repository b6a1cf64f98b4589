"""One sync in each mode, trainer and engine on the same GPUs: seconds, bytes scheduled and measured, proof, memory; and two baselines.

    python -m benchmarks.sync                              # every case that fits the GPUs that are there
    python -m benchmarks.sync --only zero_copy merged trl
    python -m benchmarks.sync --small                      # a small model on a CPU, to try the script

The shape of Qwen2-1.5B, random weights, LoRA r16 all-linear (or all weights), bfloat16, no sampling. Figures are medians over five syncs
after two that are not counted. ``trl`` is TRL's way (merge the adapter into the base, load every parameter into the engine, take it out
again: trl/generation/vllm_generation.py, 1.16); ``gather`` gathers every weight whole on every rank and lets vLLM load it.
"""

import argparse
import gc
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import workbench as wb
from benchmarks.common import write
from benchmarks.grpo_step import make_model

WARM, TIMED = 2, 5


@dataclass(frozen=True)
class Case:
    """``ranks`` GPUs: the trainer's layout, the engine's tp, and the mode. ``baseline``: instead of ours."""

    ranks: int
    layout: str
    tp: int
    mode: str
    baseline: str = ""


CASES = {
    "adapter": Case(1, "ddp", 1, "adapter"),
    "zero_copy": Case(1, "ddp", 1, "zero_copy"),
    "merged": Case(1, "ddp", 1, "merged"),
    "trl": Case(1, "ddp", 1, "merged", "trl"),
    "ddp_zero_copy": Case(2, "ddp", 1, "zero_copy"),
    "ddp_merged": Case(2, "ddp", 1, "merged"),
    "fsdp_merged": Case(2, "fsdp", 2, "merged"),
    "fsdp_full": Case(2, "fsdp", 2, "full"),
    "fsdp_gather": Case(2, "fsdp", 2, "full", "gather"),
}


def work(rank: int, name: str, model: Path, small: bool, file: str) -> None:
    """One rank of a case; the first writes the figures to ``file``."""
    case = CASES[name]
    if not small:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(rank)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29556", "RANK": str(rank), "WORLD_SIZE": str(case.ranks), "LOCAL_RANK": "0"}
    import torch
    import torch.distributed as dist

    if case.ranks > 1:
        meeting = f"file://{file}.meeting"
        dist.init_process_group("gloo" if small else "cpu:gloo,cuda:nccl", init_method=meeting, rank=rank, world_size=case.ranks)
    free = torch.cuda.mem_get_info()[0] if not small else 0
    sides = Sides(case, model, small)
    held = (free - torch.cuda.mem_get_info()[0]) / 2**30 if not small else 0.0
    sync = {"trl": sides.as_trl, "gather": sides.gather}.get(case.baseline, sides.deliver)
    figures = timed(sync, sides.disturb)
    if rank == 0:
        if sides.beyond_mib is not None:  # what the trainer's side takes beside the engine's weights and its own adapter
            figures["beyond_mib"] = sides.beyond_mib
        torch.save(figures | {"held_gib": held, "tp": case.tp, "layout": case.layout, "ranks": case.ranks, "mode": case.mode}, file)
    sides.close()


class Sides:
    """Trainer and engine of one rank."""

    def __init__(self, case: Case, model: Path, small: bool) -> None:
        from workbench.models.actor import Actor, ActorPlan
        from workbench.models.ranks import Ranks
        from workbench.models.tokenizer import Tokenizer
        from workbench.rollout.engine import Engine, EnginePlan
        from workbench.runtime.delivery import ByAdapter
        from workbench.runtime.weights import ByWeights, borrowed

        device, dtype = ("cpu", "float32") if small else ("cuda", "bfloat16")
        lora = None if case.mode == "full" else wb.LoRA(rank=16, alpha=32)
        self.ranks = Ranks.of_world(role="actor") if case.ranks > 1 else Ranks.alone()
        config = wb.VLLM(window=320, cuda_graphs=False, **({"kv_cache_gib": 0.1} if small else {"memory_share": 0.2}))
        plan = EnginePlan(model, Tokenizer(model).raw, 16, device, dtype, 0, config, tp=case.tp, mode=case.mode)

        def actor(storage: Any = None) -> Actor:
            return Actor(ActorPlan(model, lora, wb.Optimizer(), device, dtype, 0, case.layout), self.ranks, None, storage)

        self.beyond_mib: float | None = None
        if case.mode == "zero_copy":
            self.engine = Engine(plan)
            before = allocated_mib()
            self.actor = actor(borrowed(self.engine.laid(), self.engine.tensors()))
            self.beyond_mib = allocated_mib() - before - self._trained_mib()
        else:
            self.actor, self.engine = actor(), Engine(plan)
        whole = case.mode in ("merged", "full")
        self.delivery = ByWeights(self.engine, self.actor) if whole else ByAdapter(self.engine, wb.LoRA(rank=16, alpha=32).scaling)
        self.version = 0

    def _trained_mib(self) -> float:
        """Of the adapter and its float32 masters."""
        trained = {tensor.data_ptr(): tensor.nbytes for pair in self.actor.masters.pairs for tensor in pair}
        return sum(trained.values()) / 2**20

    def disturb(self) -> None:
        """A change of what is trained, in place of an update."""
        import torch

        with torch.no_grad():
            for master in self.actor.masters.parameters:
                master.add_(torch.full_like(master, 1e-3))
        self.actor.masters.write_back()

    def deliver(self) -> dict[str, float]:
        """Ours, proof included."""
        self.version += 1
        arrival = self.delivery.deliver(self.actor, self.version)
        return {
            "seconds": arrival.seconds,
            "proof_seconds": arrival.proof_seconds,
            "bytes": arrival.bytes,
            "scheduled": arrival.scheduled,
            "written": arrival.written,
            "rounding": arrival.rounding or 0.0,
        }

    def as_trl(self) -> dict[str, float]:
        """Merge, load every parameter one by one, unmerge."""
        began = time.monotonic()
        self.actor.model.merge_adapter()
        names = [(name, parameter) for name, parameter in self.actor.body.named_parameters() if "lora_" not in name]
        for name, parameter in names:
            self._load([(name.replace(".base_layer", ""), parameter.data)])
        self.actor.model.unmerge_adapter()
        self.engine.forget_prefixes()
        return self._since(began)

    def gather(self) -> dict[str, float]:
        """Every weight whole on every rank, then vLLM's loader."""
        from workbench.models.shards import whole

        began = time.monotonic()
        self._load((name, whole(parameter.data)) for name, parameter in self.actor.body.named_parameters())
        self.engine.forget_prefixes()
        return self._since(began)

    def _load(self, weights: Any) -> None:
        from workbench.rollout.inner import runner

        runner(self.engine._llm).model.load_weights(weights)

    def _since(self, began: float) -> dict[str, float]:
        import torch

        if self.actor.device.type == "cuda":
            torch.cuda.synchronize()
        return {"seconds": time.monotonic() - began}

    def close(self) -> None:
        """End the engine; the groups go with the process."""
        self.engine.close()


def allocated_mib() -> float:
    """Of the GPU, by torch in this process; 0 on a CPU."""
    import torch

    gc.collect()
    return torch.cuda.memory_allocated() / 2**20 if torch.cuda.is_available() else 0.0


def timed(sync: Callable[[], dict[str, float]], disturb: Callable[[], None]) -> dict[str, Any]:
    """Medians, and most memory that torch held meanwhile, beyond what it held before."""
    import torch

    seen = []
    for number in range(WARM + TIMED):
        disturb()
        if number == WARM and torch.cuda.is_available():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        seen.append(sync())
    figures: dict[str, Any] = {kind: median(one[kind] for one in seen[WARM:]) for kind in seen[-1]}
    if torch.cuda.is_available():
        figures["peak_beyond_gib"] = (torch.cuda.max_memory_allocated() - before) / 2**30
    return figures | {"all_seconds": [round(one["seconds"], 4) for one in seen]}


def measure(name: str, model: Path, small: bool) -> dict[str, Any]:
    """One case, in processes of its own."""
    import torch

    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(work, (name, model, small, f"{folder}/figures"), nprocs=CASES[name].ranks)
        figures: dict[str, Any] = torch.load(f"{folder}/figures")
    if figures.get("bytes") and figures["ranks"] > 1:
        figures["gb_per_second"] = figures["bytes"] / figures["seconds"] / 1e9  # received by one rank
    return figures


def main() -> None:
    """Parse, measure, write after every case: a later one may fail."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=CASES, default=[])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    arguments = parser.parse_args()
    gpus = 2 if arguments.small else torch.cuda.device_count()
    figures: dict[str, Any] = {"what": "one sync, trainer and engine on the same GPUs, no sampling", "gpus": gpus, "cases": {}}
    shape = "small" if arguments.small else "qwen2-1.5b"
    with tempfile.TemporaryDirectory() as folder:
        model = make_model(Path(folder), shape)
        for name in arguments.only or [name for name, case in CASES.items() if case.ranks <= gpus]:
            figures["cases"][name] = measure(name, model, arguments.small)
            write("sync_h200", figures | {"shape": shape}, arguments.out)


if __name__ == "__main__":
    main()
