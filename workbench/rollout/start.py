"""How an engine starts: every argument that vLLM is given, and what a failed start means."""

import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.errors import ConfigError, EngineError
from workbench.rollout import inner, inner_cpu, inner_gpu, inner_groups, inner_transformers
from workbench.rollout.config import TAKES_ADAPTER, VLLM, check_device, check_mode
from workbench.rollout.world import EngineRanks

GIB = 2**30
CPU_KV_CACHE_GIB = 0.5


@dataclass(frozen=True)
class EnginePlan:
    """Everything the engine is built from."""

    model: Path
    tokenizer: Any  # a transformers tokenizer
    rank: int  # of the adapter
    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"
    seed: int
    config: VLLM
    tp: int = 1  # ranks of torch's default group that hold one engine together
    strided: bool = False  # they are every n-th of it, where n engines are; else consecutive ones
    mode: str = "adapter"  # how the actor's weights come in: "adapter", "zero_copy", "merged" or "full"

    def __post_init__(self) -> None:
        check_mode(self.config, self.mode)
        check_device(self.config, self.device)

    @property
    def takes_adapter(self) -> bool:
        """Whether the actor's adapter goes into a slot of its own, rather than into the weights."""
        return self.mode in TAKES_ADAPTER


def start(plan: EnginePlan, ranks: EngineRanks) -> Any:
    """Build the LLM; in a world of several ranks all of them at once. Raises EngineError or ConfigError."""
    shares_memory = plan.device == "cpu" and plan.tp > 1
    names = inner_cpu.own_shared_memory(ranks.of_first(inner_cpu.block_name())) if shares_memory else nullcontext()
    packs = plan.device != "cpu" or plan.mode == "adapter"
    with inner.untouched_process(), names, nullcontext() if packs else inner_cpu.unpacked_weights():
        _prepare(plan, ranks)
        arguments = _arguments(plan, ranks)
        try:
            with inner_transformers.own_classes(), inner_groups.groups_of(ranks):
                return _build(plan, ranks, arguments)  # never a local variable: something of vLLM's keeps this frame
        except (ValueError, RuntimeError, MemoryError, AttributeError) as error:
            raise _explain(error, plan, arguments) from error


def _prepare(plan: EnginePlan, ranks: EngineRanks) -> None:
    """What vLLM has to know, or to do otherwise, before it looks at any argument."""
    if plan.device == "cpu":
        inner_cpu.without_a_compiler()
        inner_cpu.quick_cpu_lora()
    else:
        inner_gpu.allow_graphs()
        if plan.config.sleep:
            inner_gpu.check_sleeper()
        if "GPU-" in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
            inner_gpu.read_gpu_by_uuid()
    if ranks.world > 1:
        inner.as_launched(ranks.rank)
    plan.config.check_extra(inner.known_arguments())
    plan.config.check_quantization(inner.known_quantizations())


def _build(plan: EnginePlan, ranks: EngineRanks, arguments: dict[str, Any]) -> Any:
    from vllm import LLM

    return LLM(
        str(plan.model),
        dtype=plan.dtype,
        # without seeds of their own, two engines must not draw the same completions
        seed=plan.seed + ranks.copy,
        logprobs_mode="processed_logprobs",
        disable_log_stats=True,
        use_tqdm_on_load=False,
        **arguments,
    )


def _arguments(plan: EnginePlan, ranks: EngineRanks) -> dict[str, Any]:
    """What depends on the plan, the device and the ranks."""
    config, cpu = plan.config, plan.device == "cpu"
    window = _window(plan)
    return {
        "max_model_len": window,
        "max_num_seqs": config.max_sequences,
        "max_num_batched_tokens": max(8192, window),
        "enable_prefix_caching": config.prefix_caching,
        **_memory(config, plan.device),
        **({"quantization": config.quantization} if config.quantization else {}),
        **({"enable_sleep_mode": True} if config.sleep else {}),
        # A seeded prompt that is split in two crashes on CPUs, whose generators have no offset.
        **({"enable_chunked_prefill": False} if cpu else {"async_scheduling": True}),
        **(_among_ranks(plan.tp) if ranks.world > 1 else {}),
        **({"enable_lora": True, "max_loras": 1, "max_lora_rank": inner.slot_rank(plan.rank)} if plan.takes_adapter else {}),
        **config.extra,
        **_graphs(config, plan.device),
    }


def _memory(config: VLLM, device: str) -> dict[str, Any]:
    """What the engine may take, and how the KV cache lies in it."""
    kv_gib = config.kv_cache_gib or (CPU_KV_CACHE_GIB if device == "cpu" else None)
    return {
        "gpu_memory_utilization": _share(config),
        **({"kv_cache_memory_bytes": int(kv_gib * GIB)} if kv_gib else {}),
        **({"kv_cache_dtype": config.kv_dtype} if config.kv_dtype else {}),
        **({"kv_offloading_size": config.kv_offload_gib} if config.kv_offload_gib else {}),
        **({"block_size": config.block_size} if config.block_size else {}),
    }


def _share(config: VLLM) -> float:
    """Of this process's GPU: what is written as a share or in GiB."""
    if config.memory_gib is None:
        return config.memory_share
    total = torch.cuda.get_device_properties(0).total_memory / GIB
    if config.memory_gib >= total:
        raise ConfigError(f"VLLM(memory_gib={config.memory_gib})", f"the GPU has {total:.1f} GiB", "write less, or memory_share=0.4")
    return config.memory_gib / total


def _graphs(config: VLLM, device: str) -> dict[str, Any]:
    """Few CUDA graphs, of which none is made twice for batches without an adapter; a user's own compilation settings go before them."""
    sizes = config.graph_sizes()
    if device == "cpu" or not sizes:
        return {"enforce_eager": True}
    asked = config.extra.get("compilation_config", {})
    if not isinstance(asked, dict):  # a level, or vLLM's own object: nothing to mix it with
        return {"enforce_eager": False}
    few = {"cudagraph_capture_sizes": list(sizes), "cudagraph_specialize_lora": False}
    return {"enforce_eager": False, "compilation_config": few | asked}


def _among_ranks(tp: int) -> dict[str, Any]:
    """Arguments of an engine that adopts torch's default group, which exists already.

    Also for tp 1: the plain executor calls itself rank 0 everywhere, and all ranks would write one folder of compiled code at once.
    Ranks meet while they start, and afterwards only those of one engine do.
    """
    # vLLM's own all-reduce maps the peers' memory, and counts GPUs to do so; a process that is pinned sees one GPU. NCCL does it.
    return {"distributed_executor_backend": "external_launcher", "tensor_parallel_size": tp, "disable_custom_all_reduce": True}


def out_of_memory(error: Exception) -> bool:
    """Whether ``error`` says that memory was missing, on a GPU or of the host."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "memory" in str(error).lower()


def _explain(error: Exception, plan: EnginePlan, arguments: dict[str, Any]) -> EngineError:
    asked = f"start the engine with a window of {arguments['max_model_len']} tokens on {plan.device}"
    text = told(error)
    if out_of_memory(error):
        knob = "kv_cache_gib" if arguments.get("kv_cache_memory_bytes") else "memory_share"
        fix = f"a smaller VLLM(window=...), another VLLM({knob}=...), or close what else holds memory"
        return EngineError(asked, f"it does not fit in memory ({text})", fix)
    if "support LoRA" in text:
        return EngineError(asked, text, "another family; Llama, SmolLM, Qwen2 and Qwen3 are tested")
    return EngineError(asked, text, "see the error above; `workbench doctor` checks versions and devices")


def told(error: Exception) -> str:
    """The line of ``error`` that says most: how many bytes were missing, else what is called an error."""
    # pydantic's first line only counts its errors
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "validation error" not in line]
    by_weight = [line for word in ("memory", "rror", "") for line in lines if word in line]
    return by_weight[0] if by_weight else type(error).__name__


def _window(plan: EnginePlan) -> int:
    """Tokens of prompt and completion: what was asked for, at most what the model was made for."""
    from transformers import AutoConfig

    longest = int(getattr(AutoConfig.from_pretrained(plan.model), "max_position_embeddings", 4096))
    window = plan.config.window or min(4096, longest)
    if window > longest:
        raise ConfigError(f"VLLM(window={window})", f"the model has {longest} positions", f"write {longest} or less")
    return window
