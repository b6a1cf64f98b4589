"""What to say when a worker is out of memory: who, in which phase, how many bytes, and which change to the map would help."""

from workbench.errors import MemoryShortError
from workbench.roles import Role
from workbench.runtime.pools import Pool

ROLE_OF = {
    "update": Role.ACTOR,
    "reference": Role.REFERENCE,
    "score": Role.REWARD,
    **dict.fromkeys(("values", "update_critic"), Role.CRITIC),
    **dict.fromkeys(("rollout", "warm_up", "score_afresh", "sync", "receive"), Role.ROLLOUT),
}


SIGNS = ("out of memory", "can't allocate memory", "no available memory for the cache blocks", "free memory on device")


def is_shortage(error: BaseException) -> bool:
    """Whether ``error`` says that memory ran out: torch's on a GPU or a CPU, the engine's at its start or while it generates."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in SIGNS)


def shortage(error: BaseException, method: str, pool: Pool, rank: int, uuid: str | None) -> MemoryShortError:
    """The error for an allocation that failed in ``method`` of a pool's rank."""
    role = ROLE_OF.get(method, pool.roles[0])
    role = role if role in pool.roles else pool.roles[0]
    where = f"{role}, rank {rank} of {pool.size}, on {pool.devices[rank]}" + (f" ({uuid})" if uuid else "")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else type(error).__name__
    return MemoryShortError(f"{method.replace('_', ' ')} of the {where}", f"out of memory: {_short(text)}", _fix(role, pool))


def _short(text: str) -> str:
    """torch's message up to what it advises, which is about its allocator and not about the map."""
    return text.split(" If reserved but unallocated")[0].split(" See documentation")[0]


def _fix(role: Role, pool: Pool) -> str:
    """What would help, the cheapest first."""
    words = []
    if role in (Role.ACTOR, Role.CRITIC, Role.REFERENCE):
        words.append("a smaller Optimizer(token_budget=...)")
        if Role.ROLLOUT in pool.roles:
            words.append("a smaller VLLM(memory_share=...), or the rollout on GPUs of its own (rollout: other devices)")
        if pool.layout == "ddp":
            few = "more devices and " if pool.size == 1 else ""
            words.append(f"{few}layout fsdp, which shards the weights ({role}: '... fsdp')")
        else:
            words.append("more devices for it")
    elif role is Role.REWARD:
        words.append("a reward that takes less, or devices of its own (reward: other devices)")
    else:
        words.append("fewer VLLM(max_sequences=...) or a larger VLLM(memory_share=...)")
        if Role.ACTOR in pool.roles:
            words.append("the rollout on GPUs of its own (rollout: other devices)")
        words.append("tp2, which splits an engine's weights over two devices")
    return "; ".join(words)
