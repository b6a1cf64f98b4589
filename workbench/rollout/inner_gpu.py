"""Contacts with vLLM's inner parts that concern GPUs alone: see inner.py."""

import gc
import os
import sys
from typing import Any

import torch

from workbench.errors import EngineError

_ALLOCATORS: list[Any] = []  # of pools that were let go


def read_gpu_by_uuid() -> None:
    """Let vLLM 0.23 start where CUDA_VISIBLE_DEVICES holds UUIDs, as workers are pinned: it reads numbers alone. Newer ones read both.

    Only inside ``untouched_process``: the processes that vLLM starts meanwhile are told the number. This one is pinned by then.
    """
    from vllm.platforms import current_platform

    platform = type(current_platform)
    if hasattr(platform, "device_control_id_to_physical_device_id"):
        return
    platform.device_id_to_physical_device_id = staticmethod(gpu_number)
    torch.cuda.init()
    os.environ.update(CUDA_VISIBLE_DEVICES=str(gpu_number(0)), CUDA_DEVICE_ORDER="PCI_BUS_ID")


def gpu_number(ordinal: int) -> int:
    """NVML's number, in PCI order, of the GPU that CUDA_VISIBLE_DEVICES puts at ``ordinal``."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    name = visible[ordinal] if visible else str(ordinal)
    if name.isdigit():
        return int(name)
    import pynvml

    pynvml.nvmlInit()
    try:
        return int(pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID(name)))
    finally:
        pynvml.nvmlShutdown()


def allow_graphs() -> None:
    """Before an engine starts on a GPU: the one before it in this process has forbidden any further capture of CUDA graphs."""
    from vllm.compilation.monitor import set_cudagraph_capturing_enabled

    set_cudagraph_capturing_enabled(True)


def check_sleeper() -> None:
    """Raise EngineError where memory of an engine that could sleep is still held: vLLM keeps one account of it a process."""
    used = _sleepers_memory()
    if used:
        found = f"an earlier one of this process still holds {used / 2**30:.1f} GiB, and vLLM has one that can sleep at a time"
        raise EngineError("start an engine with VLLM(sleep=True)", found, "close that run; or runtime='ray', where each has a process")


def _sleepers_memory() -> int:
    """Bytes, of engines that can sleep."""
    if "vllm.device_allocator.cumem" not in sys.modules:
        return 0
    from vllm.device_allocator.cumem import CuMemAllocator

    return 0 if CuMemAllocator.instance is None else int(CuMemAllocator.instance.get_current_usage())


def release_pools() -> None:
    """Let go of the memory pools of engines that can sleep, which outlive them; what allocates for them has to stay, it frees too."""
    if not _sleepers_memory():
        return
    from vllm.device_allocator.cumem import CuMemAllocator

    pools = CuMemAllocator.instance.allocator_and_pools
    _ALLOCATORS.extend(allocator for _, allocator in pools.values())
    pools.clear()
    gc.collect()
