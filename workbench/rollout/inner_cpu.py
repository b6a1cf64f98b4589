"""Every contact with the inner parts of vLLM's CPU build: LoRA by one matrix product, no compiler, shared memory that outlives nobody."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex

import torch

SHARED_MEMORY = Path("/dev/shm")
OURS = "workbench-"  # begins the names of this package's blocks: workbench-PID-TOKEN-...


def without_a_compiler() -> None:
    """Let vLLM's small CPU helpers run uncompiled: with ``enforce_eager`` they are compiled all the same, and need g++ for it."""
    from vllm.platforms import current_platform

    type(current_platform).simple_compile_backend = "eager"


def quick_cpu_lora() -> None:
    """Replace vLLM's torch LoRA kernels, which copy an adapter's weights for every token (5x slower on short decodes).

    They also index with -1 for a token that has no adapter, which silently applies the last slot; these leave it alone.
    """
    from vllm.lora.ops.torch_ops import lora_ops
    from vllm.lora.punica_wrapper import punica_cpu

    for module in (lora_ops, punica_cpu):
        module.bgmv_shrink = _shrink
        module.bgmv_expand = _expand
        module.bgmv_expand_slice = _expand_slice


def _product(x: torch.Tensor, weights: torch.Tensor, slots: torch.Tensor) -> torch.Tensor | None:
    """x (T, in) times the weights (slots, 1, out, in) of each token's slot -> (T, out); None where no token has one."""
    weights = weights.flatten(0, -3) if weights.dim() == 4 else weights
    first = int(slots[0])
    if bool((slots == first).all()):
        return None if first < 0 else x @ weights[first].T.to(x.dtype)
    out = x.new_zeros(x.shape[0], weights.shape[-2])
    for slot in slots.unique().tolist():
        if slot >= 0:
            rows = slots == slot
            out[rows] = x[rows] @ weights[slot].T.to(x.dtype)
    return out


def _shrink(inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor, scaling: float = 1.0) -> None:
    y = _product(inputs.to(output.dtype), weights, slots)
    if y is None:
        output.zero_()
    else:
        output[:, : y.shape[1]] = scaling * y


def _expand(inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor, add_inputs: bool = True) -> None:
    y = _product(inputs.to(output.dtype), weights, slots)
    width = min(weights.shape[-2], output.shape[1])
    if y is None:
        y = output.new_zeros(output.shape[0], width)
    if add_inputs:
        output[:, :width] += y[:, :width]
    else:
        output[:, :width] = y[:, :width]


def _expand_slice(
    inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor, offset: int, size: int, add_inputs: bool = True
) -> None:
    _expand(inputs, weights, output[:, offset : offset + size], slots, add_inputs)


# ---------------------------------------------------------------- shared memory of several ranks


def block_name() -> str:
    """A name for this process's blocks of shared memory that no other run, and no later engine, uses."""
    return f"{OURS}{os.getpid()}-{token_hex(4)}"


@contextmanager
def own_shared_memory(name: str) -> Iterator[None]:
    """While engines of several ranks start: their blocks are called ``name``, the same on all ranks of one engine.

    vLLM's own names are constant under an external launcher and survive a kill: the next engine finds them and fails (errno 17)
    or hangs. Here the name goes as soon as every rank has the block open, so that nothing is left, however a process ends.
    """
    from vllm.distributed.device_communicators import cpu_communicator

    plain = cpu_communicator._CPUSHMDistributed

    class Named(plain):  # type: ignore[misc, valid-type]
        @staticmethod
        def make_group_name(communicator: object) -> str:
            return f"{name}-{communicator.unique_name.replace(':', '-')}"  # type: ignore[attr-defined]

        def _init_cpu_shm(self) -> int:
            handle: int = super()._init_cpu_shm()  # ends with a barrier: all ranks have joined
            unlink_blocks(name)
            return handle

    unlink_dead_blocks()
    cpu_communicator._CPUSHMDistributed = Named
    try:
        yield
    finally:
        cpu_communicator._CPUSHMDistributed = plain
        unlink_blocks(name)


def unlink_blocks(name: str) -> None:
    """Remove the names that begin with ``name``; who has a block open keeps it."""
    for path in SHARED_MEMORY.glob(f"{name}*"):
        path.unlink(missing_ok=True)


def unlink_dead_blocks() -> None:
    """Remove this package's blocks whose process is gone: it was killed in the moment of starting."""
    for path in SHARED_MEMORY.glob(f"{OURS}*"):
        owner = path.name.removeprefix(OURS).split("-")[0]
        if not Path(f"/proc/{owner}").exists():
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------- weights that are written


@contextmanager
def unpacked_weights() -> Iterator[None]:
    """While an engine starts: its layers multiply by their weights as they lie there.

    vLLM's CPU build packs a copy for its kernels and empties the weight, so that what is written into it has no effect; of the output
    layer it keeps both, and a write would reach the embedding alone.
    """
    from vllm.model_executor.layers import utils

    packing = utils.dispatch_cpu_unquantized_gemm
    utils.dispatch_cpu_unquantized_gemm = _unpacked
    try:
        yield
    finally:
        utils.dispatch_cpu_unquantized_gemm = packing


def _unpacked(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear  # type: ignore[assignment]
