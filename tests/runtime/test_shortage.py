"""What is said to a worker out of memory: whose, where, how much, and what would help."""

import pytest
import torch

from workbench.errors import MemoryShortError
from workbench.roles import Role
from workbench.runtime.pools import Pool
from workbench.runtime.shortage import shortage

TORCH = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 1.12 GiB is free. "
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.\nSee documentation"
)
SAID = "out of memory: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 1.12 GiB is free."
ACTOR, CRITIC, ROLLOUT, REFERENCE, REWARD = Role.ACTOR, Role.CRITIC, Role.ROLLOUT, Role.REFERENCE, Role.REWARD
SMALLER = "a smaller Optimizer(token_budget=...)"
APART = "the rollout on GPUs of its own (rollout: other devices)"
ENGINE = "fewer VLLM(max_sequences=...) or a larger VLLM(memory_share=...)"
SPLIT = "tp2, which splits an engine's weights over two devices"


def pool(*roles: Role, size: int = 1, layout: str = "ddp") -> Pool:
    return Pool(roles, tuple(f"node1:{number}" for number in range(size)), layout)


@pytest.mark.parametrize(
    ("method", "where", "who", "fix"),
    [
        (
            "update",
            pool(ACTOR, ROLLOUT, REFERENCE),
            "update of the actor",
            f"{SMALLER}; a smaller VLLM(memory_share=...), or {APART}; "
            "more devices and layout fsdp, which shards the weights (actor: '... fsdp')",
        ),
        ("update", pool(ACTOR, size=2), "update of the actor", f"{SMALLER}; layout fsdp, which shards the weights (actor: '... fsdp')"),
        ("update", pool(ACTOR, size=2, layout="fsdp"), "update of the actor", f"{SMALLER}; more devices for it"),
        (
            "reference",
            pool(REFERENCE),
            "reference of the reference",
            f"{SMALLER}; more devices and layout fsdp, which shards the weights (reference: '... fsdp')",
        ),
        ("rollout", pool(ACTOR, ROLLOUT), "rollout of the rollout", f"{ENGINE}; {APART}; {SPLIT}"),
        ("sync", pool(ACTOR, ROLLOUT), "sync of the rollout", f"{ENGINE}; {APART}; {SPLIT}"),
        ("receive", pool(ROLLOUT), "receive of the rollout", f"{ENGINE}; {SPLIT}"),
        ("warm_up", pool(ACTOR, ROLLOUT), "warm up of the rollout", f"{ENGINE}; {APART}; {SPLIT}"),
        ("score", pool(REWARD), "score of the reward", "a reward that takes less, or devices of its own (reward: other devices)"),
        (
            "score",
            pool(REFERENCE, REWARD),
            "score of the reward",
            "a reward that takes less, or devices of its own (reward: other devices)",
        ),
        # whatever has no role of its own is told of the first one
        ("open", pool(ROLLOUT), "open of the rollout", f"{ENGINE}; {SPLIT}"),
        ("export", pool(ACTOR, layout="fsdp"), "export of the actor", f"{SMALLER}; more devices for it"),
    ],
)
def test_what_would_help(method: str, where: Pool, who: str, fix: str) -> None:
    error = shortage(torch.OutOfMemoryError(TORCH), method, where, where.size - 1, "GPU-1234")
    last = where.size - 1
    assert (error.asked, error.found, error.fix) == (
        f"{who}, rank {last} of {where.size}, on node1:{last} (GPU-1234)",
        SAID,
        fix,
    )
    assert isinstance(error, MemoryShortError)


def test_without_a_gpu_and_without_a_word() -> None:
    error = shortage(MemoryError(), "update", Pool((ACTOR,), ("cpu:1",), on_cpu=True), 0, None)
    assert (error.asked, error.found) == ("update of the actor, rank 0 of 1, on cpu:1", "out of memory: MemoryError")
