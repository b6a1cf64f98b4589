"""What of vLLM matters here: ``VLLM`` says how the engine is built, ``Sampling`` what is asked of it."""

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from workbench.errors import ConfigError, check_kind, spelled

# What this package sets itself, and why a user must not set it too.
RESERVED = {
    "model": "Run(model=...)",
    "tokenizer": "the model's own tokenizer",
    "enable_lora": "always on: the actor is an adapter",
    "max_lora_rank": "LoRA(rank=...)",
    "max_loras": "one adapter, the actor's",
    "logprobs_mode": "processed_logprobs: the canary compares them at the sampling temperature",
    "seed": "Run(seed=...)",
    "tensor_parallel_size": "the device map",
    "pipeline_parallel_size": "the device map",
    "data_parallel_size": "the device map",
    "max_model_len": "VLLM(window=...)",
    "max_num_seqs": "VLLM(max_sequences=...)",
    "enforce_eager": "VLLM(cuda_graphs=...)",
    "enable_prefix_caching": "VLLM(prefix_caching=...)",
    "gpu_memory_utilization": "VLLM(memory_share=...)",
    "kv_cache_memory_bytes": "VLLM(kv_cache_gib=...)",
    "dtype": "bfloat16 on a GPU, float32 on a CPU, as the trainer",
}

MODES = ("adapter", "zero_copy", "merged", "full")  # how the actor's weights come into the engine
TAKES_ADAPTER = ("adapter", "zero_copy")  # those that keep the adapter beside the weights


@spelled(
    max_model_len="window",
    max_num_seqs="max_sequences",
    gpu_memory_utilization="memory_share",
    enable_prefix_caching="prefix_caching",
    enforce_eager="cuda_graphs",
)
@dataclass(frozen=True)
class VLLM:
    """How the engine is built. ``extra`` is passed to vLLM's EngineArgs as it stands; an unknown key is an error.

    On a GPU that the trainer shares, ``memory_share`` is what the engine may take of it, weights and KV cache together;
    ``kv_cache_gib`` fixes the cache instead (always so on a CPU, where the default is 0.5 GiB).
    """

    window: int | None = None  # tokens, prompt and completion; None: the model's own, at most 4096
    max_sequences: int = 512  # decoded together
    memory_share: float = 0.4  # of one GPU's memory
    kv_cache_gib: float | None = None
    block_size: int | None = None  # tokens per KV block; None: vLLM's choice
    prefix_caching: bool = True
    cuda_graphs: bool = True  # no effect on a CPU, where the engine always runs eagerly
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.memory_share < 1:
            raise ConfigError(f"VLLM(memory_share={self.memory_share})", "a share lies between 0 and 1", "write 0.4 for 40 % of the GPU")
        if self.kv_cache_gib is not None and self.kv_cache_gib <= 0:
            raise ConfigError(f"VLLM(kv_cache_gib={self.kv_cache_gib})", "a cache has more than 0 GiB", "leave it out for the default")
        if self.window is not None and self.window < 2:
            raise ConfigError(f"VLLM(window={self.window})", "a window holds a prompt and a completion", "write 2 or more, or leave it out")
        if self.max_sequences < 1:
            raise ConfigError(f"VLLM(max_sequences={self.max_sequences})", "the engine decodes at least one sequence", "write 1 or more")
        for key in self.extra.keys() & RESERVED.keys():
            raise ConfigError(f"VLLM(extra={{{key!r}: ...}})", "that argument is set by the workbench", f"use {RESERVED[key]}")

    def check_extra(self, known: set[str]) -> None:
        """Refuse a key that this version of vLLM doesn't know, naming the nearest one."""
        for key in self.extra.keys() - known:
            near = get_close_matches(key, known, n=1)
            raise ConfigError(
                f"VLLM(extra={{{key!r}: ...}})",
                "this version of vLLM has no such argument",
                f"did you mean {near[0]!r}?" if near else "see vLLM's EngineArgs",
            )


@spelled(max_new_tokens="max_tokens", max_completion_length="max_tokens", batch_size="prompts", num_prompts="prompts")
@dataclass(frozen=True)
class Sampling:
    """What is sampled in a step: ``prompts`` questions, each answered as often as the algorithm's group size says.

    ``seeded``: every completion has a seed of its own, from (run's seed, step, prompt, sample), so that a run can be repeated.
    None: on a CPU; on GPUs it slows decoding down, and kernels there are not repeatable anyway.
    """

    prompts: int = 32
    temperature: float = 1.0
    max_tokens: int = 32
    seeded: bool | None = None

    def __post_init__(self) -> None:
        for name in ("prompts", "max_tokens"):
            check_kind(f"Sampling: {name}", getattr(self, name), int, "a whole number such as 32")
        check_kind("Sampling: temperature", self.temperature, float, "a number such as 1.0")
        if self.prompts < 1:
            raise ConfigError(f"Sampling(prompts={self.prompts})", "a step has at least one prompt", "write 1 or more")
        if not self.temperature > 0:
            raise ConfigError(
                f"Sampling(temperature={self.temperature})",
                "a policy that does not explore has no policy gradient",
                "write 1.0, or at least something above 0 (greedy decoding is for Run.generate)",
            )
        if self.temperature > 2:
            raise ConfigError(f"Sampling(temperature={self.temperature})", "vLLM samples at temperatures up to 2", "write 1.0")
        if self.max_tokens < 1:
            raise ConfigError(f"Sampling(max_tokens={self.max_tokens})", "a completion has at least one token", "write 1 or more")


def check_mode(config: VLLM, mode: str) -> None:
    """Refuse a mode that isn't one, with ConfigError."""
    if mode not in MODES:
        raise ConfigError(f"mode: {mode}", "the actor's weights come into the engine in no such way", f"one of {', '.join(MODES)}")
