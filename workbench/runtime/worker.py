"""What one process does for its roles. The loop speaks to this class alone, wherever it lives.

Actor, reference and rollout are here: one base in the trainer, the adapter on it, an engine with its own copy of the base
(mode ``adapter``: a sync moves the adapter, nothing else).
"""

import math
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch

from workbench.algos import Algorithm, LossSummary
from workbench.batch import Batch, Completion
from workbench.errors import DivergedError
from workbench.models.actor import Actor, ActorPlan, Experience, Update
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Row
from workbench.models.tokenizer import Tokenizer
from workbench.records import EngineReady, Sync
from workbench.reshard.canary import Canary
from workbench.reshard.proof import expected, prove
from workbench.rollout.config import VLLM, Sampling
from workbench.rollout.engine import Engine, EnginePlan, Request

Stop = Callable[[], bool]
Report = Callable[[str, float, float, str], None]  # what, done, total, note


@dataclass(frozen=True)
class WorkerPlan:
    """Everything a worker is built from."""

    model: Path
    lora: LoRA
    optimizer: Optimizer
    engine: VLLM
    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"
    seed: int


@dataclass(frozen=True)
class Draw:
    """How completions are drawn. ``key`` is their place in the run ("step", 3): it seeds each of them apart."""

    key: tuple[object, ...]
    temperature: float
    max_tokens: int
    seeded: bool | None = None  # None: on a CPU
    adapter: bool = True  # False: the base


@dataclass(frozen=True)
class Signal:
    """What a batch teaches, row by row: one value per response token, on the CPU."""

    advantages: Sequence[torch.Tensor]  # (length,) each
    ref_logp: Sequence[torch.Tensor] | None = None  # (length,) each, where the algorithm needs the reference


class Worker:
    """Actor, reference and rollout in one process. ``open`` before use, ``close`` to give the memory back."""

    def __init__(self, plan: WorkerPlan, tokenizer: Tokenizer) -> None:
        self.plan, self.tokenizer = plan, tokenizer
        self.canary = Canary.for_dtype(plan.dtype)
        self.actor: Actor | None = None
        self.engine: Engine | None = None
        self._version = 0  # of the adapter that was proved to be in the engine
        self._synced = -1  # the actor's updates at that sync
        self._checksum = ""

    def open(self, report: Report) -> EngineReady:
        """Load the base and start the engine. ``sync`` and ``warm_up`` come next."""
        plan = self.plan
        began = time.monotonic()
        report("model", 0, 1, f"loading {plan.model.name}")
        self.actor = Actor(ActorPlan(plan.model, plan.lora, plan.optimizer, plan.device, plan.dtype, plan.seed))
        report("model", 1, 1, "")
        report("engine", 0, 1, "starting vLLM")
        self.engine = Engine(EnginePlan(plan.model, self.tokenizer.raw, plan.lora.rank, plan.device, plan.dtype, plan.seed, plan.engine))
        report("engine", 1, 1, "")
        return EngineReady(self.engine.name, self.engine.vllm_version, time.monotonic() - began, self.engine.window)

    def warm_up(self) -> None:
        """Sample a few tokens: an engine's first ones are slow."""
        self._engine.generate([Request((0,), seed=0)] * 4, temperature=1.0, max_tokens=2)

    def close(self) -> None:
        """End the engine, drop the model."""
        engine, self.engine, self.actor = self.engine, None, None
        if engine is not None:
            engine.close()

    # ------------------------------------------------------------ phases

    def rollout(self, prompts: Sequence[tuple[int, ...]], group_size: int, draw: Draw, stop: Stop) -> list[Completion]:
        """``group_size`` completions of every prompt, grouped."""
        seeded = self.plan.device == "cpu" if draw.seeded is None else draw.seeded
        requests = [
            Request(prompt, self._seed(*draw.key, p, g) if seeded else None) for p, prompt in enumerate(prompts) for g in range(group_size)
        ]
        if seeded:
            self._engine.forget_prefixes()  # numbers must not hang on what happens to be cached, or a restored run would differ
        completions = self._engine.generate(
            requests, temperature=draw.temperature, max_tokens=draw.max_tokens, adapter=draw.adapter, should_stop=stop
        )
        if not math.isfinite(sum(map(sum, (c.logp for c in completions)))):
            self._engine.wipe()
            fix = "a smaller learning rate, or LoRA(alpha=...); go on from the last adapter that was saved"
            raise DivergedError("rollout", "the engine's log-probabilities are not finite: the policy has diverged", fix)
        return completions

    def reference(self, batch: Batch, temperature: float, stop: Stop) -> list[torch.Tensor]:
        """Log-probabilities of every response under the base: the actor with its adapter off."""
        return self._actor.score(rows_of(batch), temperature, adapter=False, should_stop=stop)

    def update(self, batch: Batch, signal: Signal, algo: Algorithm, rate: float, sampling: Sampling, stop: Stop) -> Update:
        """Learn from ``batch``; the canary sees engine and trainer side by side before anything is applied."""
        data = Experience(
            rows=rows_of(batch),
            engine_logp=[c.logp for c in batch.completions],
            advantages=signal.advantages,
            ref_logp=signal.ref_logp,
            temperature=sampling.temperature,
            max_tokens=sampling.max_tokens,
        )

        def check(summary: LossSummary) -> None:
            if summary.tokens and not self.canary.holds(summary.logprob_diff_max, summary.logprob_diff_mean):
                cause = self._cause(batch, sampling)
                raise self.canary.failed(summary.logprob_diff_max, summary.logprob_diff_mean, cause)

        return self._actor.update(data, algo, rate, check=check, should_stop=stop)

    def sync(self, step: int) -> Sync:
        """The adapter from the trainer's memory into the engine's, and the exact proof that it arrived."""
        actor, engine = self._actor, self._engine
        began = time.monotonic()
        tensors = actor.adapter()
        updates, version = actor.updates, engine.version + 1
        engine.push(tensors, actor.adapter_config(), version)
        pushed = time.monotonic()
        sent = expected(tensors, self.plan.lora.scaling, engine.adapter_dtype)
        self._checksum = prove(sent, engine.resident(), version=version, previous=self._checksum)
        self._version, self._synced = version, updates
        done = time.monotonic()
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        return Sync(step, version, "adapter", size, pushed - began, done - pushed, self._checksum)

    def load_state(self, tensors: dict[str, torch.Tensor], updates: int, version: int) -> None:
        """Go on from a checkpoint; the ``sync`` that follows gives the engine the adapter as ``version``, as it was called then."""
        self._actor.load_trainer_state(tensors, updates)
        self._engine.version = version - 1

    def state(self) -> dict[str, torch.Tensor]:
        """What ``load_state`` goes on from: copies on the CPU."""
        return self._actor.trainer_state()

    @property
    def updates(self) -> int:
        """Optimizer steps made so far."""
        return self._actor.updates

    @property
    def version(self) -> int:
        """The adapter version that the engine samples from."""
        return self._engine.version

    @property
    def window(self) -> int:
        """Tokens of prompt and completion that the engine holds."""
        return self._engine.window

    @property
    def in_sync(self) -> bool:
        """Whether the engine holds the adapter as it is in the trainer, proved."""
        return self._engine.version == self._version and self._actor.updates == self._synced

    # ------------------------------------------------------------ beside the loop

    @property
    def is_finite(self) -> bool:
        """Whether the adapter is worth saving: no weight is NaN or infinite."""
        return self._actor.is_finite()

    def save_adapter(self, path: Path) -> None:
        """Write the adapter in peft's format."""
        self._actor.save(path)

    def peak_memory_gib(self) -> float:
        """The most that was held so far: of the GPU by torch's allocator (trainer and engine), else of this process."""
        if self.plan.device == "cuda":
            return torch.cuda.max_memory_reserved() / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    # ------------------------------------------------------------ inside

    @property
    def _actor(self) -> Actor:
        if self.actor is None:
            raise RuntimeError("the worker is not open")
        return self.actor

    @property
    def _engine(self) -> Engine:
        if self.engine is None:
            raise RuntimeError("the worker is not open")
        return self.engine

    def _seed(self, *key: object) -> int:
        """A seed of 63 bits from the run's and ``key``: the same for the same place in the run, whatever came before."""
        digest = blake2b(repr((self.plan.seed, *key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def _cause(self, batch: Batch, sampling: Sampling) -> str:
        """A closer look at a dead canary: the worst completion, scored again by both sides at temperature 1 without cached prefixes."""
        if not self.in_sync:
            count = self._actor.updates - self._synced
            return (
                f"not looked for, since the trainer is ahead: it made {count} updates since the engine got its adapter. Is a sync missing?"
            )
        apart = [self._apart(batch, r, sampling.temperature) for r in range(len(batch.completions))]
        row = max(range(len(apart)), key=apart.__getitem__)
        explained = apart[row] / 4  # what is this much closer in a second look is the cause; noise alone is not
        if self.canary.holds(apart[row], sum(apart) / len(apart)):
            return "the trainer itself: its plain layers agree with the engine, the compiled ones that it trains with do not"
        prompt, completion = batch.prompt_of(row).ids, batch.completions[row]
        trainer = self._actor.score([Row(prompt, completion.ids)], 1.0)[0].tolist()
        if sampling.temperature != 1 and _largest(completion.logp, trainer) <= explained:
            return f"another temperature: the engine's numbers are those of temperature 1, not {sampling.temperature:g}"
        self._engine.forget_prefixes()
        ids = (*prompt, *completion.ids)[: self.window - 1]  # scoring needs room for one token more
        engine = self._engine.score(ids, len(prompt))
        if _largest(engine, trainer[: len(engine)]) <= explained:
            return "a stale prefix cache: scored again without cached prefixes, engine and trainer agree"
        return "neither the prefix cache nor the temperature: the engine computes something else than the trainer"

    def _apart(self, batch: Batch, row: int, temperature: float) -> float:
        completion = batch.completions[row]
        return _largest(completion.logp, self._actor.score([Row(batch.prompt_of(row).ids, completion.ids)], temperature)[0].tolist())


def _largest(one: Sequence[float], other: Sequence[float]) -> float:
    """The largest difference, NaN where there is one."""
    return float((torch.tensor(one) - torch.tensor(other)).abs().max())


def rows_of(batch: Batch) -> list[Row]:
    """The batch as token ids, one row per completion."""
    return [Row(batch.prompt_of(r).ids, c.ids) for r, c in enumerate(batch.completions)]
