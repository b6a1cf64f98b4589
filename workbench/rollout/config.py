"""What of vLLM matters here: ``VLLM`` says how the engine is built, ``Sampling`` what is asked of it."""

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from workbench.errors import ConfigError, check_kind, spelled

# What this package sets itself, and what a user writes instead.
RESERVED = {
    "model": "Run(model=...)",
    "tokenizer": "the model's own tokenizer",
    "enable_lora": "the run's mode: on where the actor's adapter stays one",
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
    "cudagraph_capture_sizes": "VLLM(cuda_graphs=(1, 8, 64))",
    "max_cudagraph_capture_size": "VLLM(cuda_graphs=64)",
    "enable_prefix_caching": "VLLM(prefix_caching=...)",
    "gpu_memory_utilization": "VLLM(memory_share=...), or VLLM(memory_gib=...)",
    "kv_cache_memory_bytes": "VLLM(kv_cache_gib=...)",
    "kv_cache_dtype": "VLLM(kv_dtype=...)",
    "kv_offloading_size": "VLLM(kv_offload_gib=...)",
    "block_size": "VLLM(block_size=...)",
    "enable_sleep_mode": "VLLM(sleep=True)",
    "quantization": "VLLM(quantization=...)",
    "dtype": "bfloat16 on a GPU, float32 on a CPU, as the trainer",
}

MODES = ("adapter", "zero_copy", "merged", "full")  # how the actor's weights come into the engine
TAKES_ADAPTER = ("adapter", "zero_copy")  # those that keep the adapter beside the weights

# Decoding is bound by memory: a batch padded up to the next of these costs little, and each graph costs seconds of every start.
GRAPH_SIZES = (1, 4, 16, 64, 128, 256, 384, 512)


@spelled(
    max_model_len="window",
    max_num_seqs="max_sequences",
    gpu_memory_utilization="memory_share",
    enable_prefix_caching="prefix_caching",
    enforce_eager="cuda_graphs",
    cudagraph_capture_sizes="cuda_graphs",
    kv_cache_dtype="kv_dtype",
    kv_offloading_size="kv_offload_gib",
    enable_sleep_mode="sleep",
)
@dataclass(frozen=True)
class VLLM:
    """How the engine is built. ``extra`` is passed to vLLM's EngineArgs as it stands; an unknown key is an error.

    On a GPU that the trainer shares, ``memory_share`` (or ``memory_gib``) is what the engine may take of it, weights, graphs and KV
    cache together; ``kv_cache_gib`` fixes the cache instead (always so on a CPU, where the default is 0.5 GiB).

    ``kv_dtype="fp8"`` halves the cache's bytes a token: twice the sequences, at log-probabilities that differ more from the trainer's.
    ``kv_offload_gib`` of the host's memory, for all ranks of an engine together, keep prefixes that the GPU has no room for; a sync drops
    them like the others. ``quantization`` is a method of vLLM's ("fp8"): the engine samples from coarser weights than the trainer has.
    It goes with mode adapter alone, and with GPUs alone.
    """

    window: int | None = None  # tokens, prompt and completion; None: the model's own, at most 4096
    max_sequences: int = 512  # decoded together
    memory_share: float = 0.4  # of one GPU's memory
    memory_gib: float | None = None  # of one GPU's memory, instead of a share
    kv_cache_gib: float | None = None
    kv_dtype: str | None = None  # "fp8"; None: as the weights
    kv_offload_gib: float | None = None  # refused on a CPU, where the cache is in the host's memory already
    block_size: int | None = None  # tokens per KV block, a multiple of 16 (of 32 on a CPU); None: vLLM's choice
    prefix_caching: bool = True
    # True: for eight batch sizes, or fewer, up to max_sequences. A number: for those up to it. A tuple: for these. False: none, and
    # nothing is compiled. A batch runs in the next larger one, and without above the largest. No effect on a CPU, which has none.
    cuda_graphs: bool | int | tuple[int, ...] = True
    quantization: str | None = None
    sleep: bool = False  # while the trainer on its GPU learns, the engine leaves the GPU's memory, and the trainer's state while it samples
    extra: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 < self.memory_share < 1:
            raise ConfigError(f"VLLM(memory_share={self.memory_share})", "a share lies between 0 and 1", "write 0.4 for 40 % of the GPU")
        for name in ("memory_gib", "kv_cache_gib", "kv_offload_gib"):
            self._check_gib(name)
        if self.window is not None and self.window < 2:
            raise ConfigError(f"VLLM(window={self.window})", "a window holds a prompt and a completion", "write 2 or more, or leave it out")
        if self.max_sequences < 1:
            raise ConfigError(f"VLLM(max_sequences={self.max_sequences})", "the engine decodes at least one sequence", "write 1 or more")
        if self.kv_dtype not in (None, "fp8"):
            raise ConfigError(f"VLLM(kv_dtype={self.kv_dtype!r})", "the cache is kept in fp8 or as the weights are", 'write "fp8", or None')
        if self.block_size is not None and (self.block_size < 16 or self.block_size % 16):
            found = "attention kernels take blocks of 16, 32, 48, ... tokens"
            raise ConfigError(f"VLLM(block_size={self.block_size})", found, f"write {max(16, self.block_size // 16 * 16)}, or leave it out")
        self._check_graphs()
        for key in self.extra.keys() & RESERVED.keys():
            raise ConfigError(f"VLLM(extra={{{key!r}: ...}})", "that argument is set by the workbench", f"use {RESERVED[key]}")

    def _check_gib(self, name: str) -> None:
        gib = getattr(self, name)
        if gib is None:
            return
        check_kind(f"VLLM: {name}", gib, float, "a number of GiB such as 8.0")
        if gib <= 0:
            raise ConfigError(f"VLLM({name}={gib})", "that takes more than 0 GiB", "leave it out for the default")

    def _check_graphs(self) -> None:
        sizes = self.cuda_graphs if isinstance(self.cuda_graphs, tuple) else (self.cuda_graphs,)
        if not sizes or not all(isinstance(size, int) for size in sizes) or (self.cuda_graphs is not False and min(sizes) < 1):
            found = "graphs are made for batches of 1 sequence or more"
            raise ConfigError(f"VLLM(cuda_graphs={self.cuda_graphs!r})", found, "write True, False, a number such as 64, or (1, 8, 64)")

    def graph_sizes(self) -> tuple[int, ...]:
        """The batch sizes that CUDA graphs are made for, in ascending order; none where there are none."""
        if isinstance(self.cuda_graphs, tuple):
            return tuple(sorted(set(self.cuda_graphs)))
        if self.cuda_graphs is False:
            return ()
        largest = min(self.max_sequences, GRAPH_SIZES[-1]) if self.cuda_graphs is True else self.cuda_graphs
        return (*(size for size in GRAPH_SIZES if size < largest), largest)

    def check_extra(self, known: set[str]) -> None:
        """Refuse a key that this version of vLLM doesn't know, naming the nearest one."""
        for key in self.extra.keys() - known:
            fix = nearest(key, known, "see vLLM's EngineArgs")
            raise ConfigError(f"VLLM(extra={{{key!r}: ...}})", "this version of vLLM has no such argument", fix)

    def check_quantization(self, known: set[str]) -> None:
        """Refuse a method that this version of vLLM doesn't know, naming the nearest one."""
        if self.quantization and self.quantization not in known:
            fix = nearest(self.quantization, known, f"one of {', '.join(sorted(known))}")
            raise ConfigError(f"VLLM(quantization={self.quantization!r})", "this version of vLLM has no such method", fix)


def nearest(word: str, known: set[str], otherwise: str) -> str:
    """A fix for a misspelled ``word``."""
    near = get_close_matches(word, known, n=1)
    return f"did you mean {near[0]!r}?" if near else otherwise


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
    """Refuse a mode that isn't one, and one that writes weights which the engine keeps quantized, with ConfigError."""
    if mode not in MODES:
        raise ConfigError(f"mode: {mode}", "the actor's weights come into the engine in no such way", f"one of {', '.join(MODES)}")
    if config.sleep and mode == "zero_copy":
        found = "the trainer learns on the very weights that would leave the GPU"
        raise ConfigError("mode: zero_copy with VLLM(sleep=True)", found, "mode: merged or adapter, or leave sleep out")
    if config.quantization and mode != "adapter":
        found = "the engine keeps other weights than the trainer has, and the trainer's can't be written into them"
        fix = "no quantization, or train an adapter and write mode: adapter" if mode == "full" else "mode: adapter, or no quantization"
        raise ConfigError(f"mode: {mode} with VLLM(quantization={config.quantization!r})", found, fix)


def check_device(config: VLLM, device: str) -> None:
    """Refuse what has no effect, or fails, on a CPU, with ConfigError."""
    if device != "cpu":
        return
    if config.memory_gib is not None:
        fix = "VLLM(kv_cache_gib=...), what the cache takes of the host's memory"
        raise ConfigError(f"VLLM(memory_gib={config.memory_gib}) on a CPU", "that is a bound on a GPU's memory", fix)
    if config.sleep:
        found = "its memory is the host's: nothing could leave it"
        raise ConfigError("VLLM(sleep=True) on a CPU", found, "leave it out: phases of memory are not rehearsed there")
    if config.kv_offload_gib is not None:
        fix = "leave it out, or a larger VLLM(kv_cache_gib=...)"
        raise ConfigError(f"VLLM(kv_offload_gib={config.kv_offload_gib}) on a CPU", "the cache is in the host's memory already", fix)
    if config.quantization:
        found = "the engine computes in float32 there, which vLLM's methods don't take"
        raise ConfigError(f"VLLM(quantization={config.quantization!r}) on a CPU", found, "leave it out, or a GPU")
    if config.block_size is not None and config.block_size % 32:
        found = "the CPU's attention kernels take blocks of 32, 64, 96, ... tokens"
        raise ConfigError(f"VLLM(block_size={config.block_size}) on a CPU", found, "write 32, or leave it out")
