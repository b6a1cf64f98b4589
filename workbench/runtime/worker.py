"""What one process does for the roles of its pool. The same class in the driver's process and in one of Ray's.

Every public method is one thing that a team asks for by name. Where several processes train one model, all of them are asked at
once; whatever they have to agree on they agree on before any of them raises.
"""

import copy
import math
import resource
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any

import torch

from workbench.algos import Algorithm, LossSummary
from workbench.batch import Completion
from workbench.errors import DivergedError, MemoryShortError
from workbench.models.actor import Update
from workbench.models.critic import ValueUpdate
from workbench.models.experience import Share, WorthShare
from workbench.models.lora import LoRA
from workbench.models.packing import Row
from workbench.models.tokenizer import Tokenizer
from workbench.ragged import Ragged
from workbench.records import EngineReady
from workbench.reshard.canary import Canary
from workbench.reshard.parcel import Parcel
from workbench.reshard.proof import checksum, expected
from workbench.rewards import Scorer
from workbench.roles import Role
from workbench.rollout.config import TAKES_ADAPTER
from workbench.rollout.engine import Engine, EnginePlan, Request
from workbench.runtime.delivery import ByAdapter, Delivery
from workbench.runtime.kept import Kept
from workbench.runtime.lending import lent
from workbench.runtime.plans import Arrival, CanaryDied, Draw, Opened, Post, Report, Stop, Told, WorkerPlan
from workbench.runtime.recorder import Recorded
from workbench.runtime.seat import seats, uuid_here
from workbench.runtime.shortage import is_shortage, shortage
from workbench.runtime.trainers import Trainers, there
from workbench.runtime.turns import Turns
from workbench.runtime.weights import ByWeights

DATED = 16  # rows of a rank that the canary looks at where the policy that sampled them is not the one in training


class Worker(Trainers, Recorded):
    """One process of a pool. ``open`` before use, ``close`` to give the memory back."""

    def __init__(self, plan: WorkerPlan, post: Post) -> None:
        super().__init__(plan, post)
        self.stop: Stop = lambda: False  # set by whoever runs the worker, as is
        self.tell: Told = lambda row, text: None  # who wants to know of each completion as it ends
        self.canary = Canary.for_dtype(plan.dtype)
        self.engine: Engine | None = None
        self.scorer: Scorer | None = None
        self.delivery: Delivery | None = None
        self.turns: Turns | None = None
        self._kept = Kept(plan.kept)

    def open(self, report: Report) -> Opened:
        """Load the base and start the engine. ``sync`` and ``warm_up`` come next."""
        self.check()
        roles = self.post.pool.roles
        lends = self.plan.mode == "zero_copy" and Role.ACTOR in roles  # the engine's storage is the trainer's too
        ready = self._open_engine(report) if lends else None
        self._open_models(report, lends)
        ready = ready or self._open_engine(report)
        if self.engine is not None:
            self.delivery = self._way(self.engine)
            learners = (one.learner for one in (self.actor, self.critic) if one is not None)
            self.turns = Turns(self.engine, *learners)
        if Role.REWARD in roles and self.plan.reward is not None:
            self.scorer = Scorer(self.plan.reward, device=self.plan.device)
            self.scorer.prepare()
        return Opened(seats(self.post.pool, self.post.rank, self.plan.device), ready)

    def _open_models(self, report: Report, lends: bool) -> None:
        if self.has_models:
            report("model", 0, 1, f"loading {self.plan.model.name}")
            self.load(lent(self._engine) if lends else None)
            report("model", 1, 1, "")

    def _open_engine(self, report: Report) -> EngineReady | None:
        if Role.ROLLOUT not in self.post.pool.roles:
            return None
        report("engine", 0, 1, "starting vLLM")
        plan, began = self.plan, time.monotonic()
        raw, rank, pool = Tokenizer(plan.model).raw, plan.lora.rank if plan.lora else 1, self.post.pool
        how = (plan.device, plan.dtype, plan.seed, plan.engine, pool.engine_tp, pool.strided, plan.mode)
        self.engine = Engine(EnginePlan(plan.model, raw, rank, *how))
        report("engine", 1, 1, "")
        return EngineReady(self.engine.name, self.engine.vllm_version, time.monotonic() - began, self.engine.window)

    def _way(self, engine: Engine) -> Delivery:
        """How this engine gets its weights."""
        return ByAdapter(engine, self._lora.scaling) if self.plan.mode in TAKES_ADAPTER else ByWeights(engine, self._actor)

    def attend(self, method: str, args: Sequence[Any]) -> Any:
        """``method(*args)``. Raises MemoryShortError where memory does not suffice, saying whose, and what would help."""
        try:
            work = partial(getattr(self, method), *args)
            return work() if self.recorder is None else self.recorder.during(method, work)
        except (RuntimeError, MemoryError) as error:  # torch's own for GPUs is a RuntimeError, so is its allocator's on CPUs
            if isinstance(error, MemoryShortError) or not is_shortage(error):
                raise
            raise shortage(error, method, self.post.pool, self.post.rank, uuid_here(self.plan.device)) from error

    def warm_up(self) -> None:
        """Sample a few tokens: an engine's first ones are slow."""
        self._engine.generate([Request((0,), seed=0)] * 4, temperature=1.0, max_tokens=2)

    def close(self) -> None:
        """End the engine, drop the model."""
        engine, self.engine, self.delivery, self.turns = self.engine, None, None, None
        self.drop()
        if self.scorer is not None:
            self.scorer.close()
        if engine is not None:
            engine.close()

    # ------------------------------------------------------------ phases

    def rollout(self, prompts: Sequence[tuple[int, ...]], first: int, group_size: int, draw: Draw) -> list[Completion]:
        """``group_size`` completions of every prompt, grouped. ``first``: the place of the first one among all prompts of the step."""
        seeded = self.plan.device == "cpu" if draw.seeded is None else draw.seeded
        places = [(p, g) for p in range(len(prompts)) for g in range(group_size)]
        requests = [Request(prompts[p], self._seed(*draw.key, first + p, g) if seeded else None) for p, g in places]
        if seeded:
            self._engine.forget_prefixes()  # numbers must not hang on what happens to be cached, or a restored run would differ
        self._wake()
        delivery = there(self.delivery)
        if draw.adapter:
            delivery.ready(self.actor)
        with nullcontext() if draw.adapter else delivery.base(self.actor):
            completions = self._engine.generate(
                requests,
                temperature=draw.temperature,
                max_tokens=draw.max_tokens,
                adapter=draw.adapter,
                should_stop=self.stop,
                done=lambda row, completion: self.tell(first * group_size + row, completion.text),
            )
        if not math.isfinite(sum(map(sum, (c.logp for c in completions)))):
            self._engine.wipe()
            fix = "a smaller learning rate" + (", or LoRA(alpha=...)" if self.plan.lora else "") + "; go on from the last checkpoint"
            raise DivergedError("rollout", "the engine's log-probabilities are not finite: the policy has diverged", fix)
        return completions

    def reference(self, rows: Sequence[Row], temperature: float) -> Ragged:
        """Log-probabilities of every response under the base: one (length,) tensor a row, on the CPU."""
        self._make_room()
        if self.base is not None:
            scored = self.base.score(rows, temperature, should_stop=self.stop)
        else:
            scored = self._actor.score(rows, temperature, adapter=False, should_stop=self.stop)
        return Ragged.of(scored).cpu()

    def values(self, rows: Sequence[Row]) -> Ragged:
        """The critic's value of the state before every response token: one (length,) tensor a row, on the CPU. Raises DivergedError."""
        self._make_room()
        values = Ragged.of(there(self.critic).values(rows, should_stop=self.stop)).cpu()
        if not bool(values.flat.isfinite().all()):
            fix = "a smaller learning rate for it (wb.Critic(optimizer=...)); go on from the last checkpoint"
            raise DivergedError("values", "the critic's values are not finite: it has diverged", fix)
        return values

    def update_critic(self, data: WorthShare, algo: Algorithm, rate: float) -> ValueUpdate:
        """Learn values from this rank's share."""
        self._make_room()
        return there(self.critic).update(data, algo, rate, should_stop=self.stop)

    def update(self, data: Share, algo: Algorithm, rate: float, version: int | None = None) -> Update:
        """Learn from this rank's share; the canary sees engine and trainer side by side before anything is applied.

        ``version``: of the adapter that sampled; None: the one in training.
        """
        self._make_room()
        dated = version is not None and version != self._kept.version
        apart = self._check_dated(data, version) if dated and version is not None else None

        def check(summary: LossSummary) -> None:
            if summary.tokens and not dated and not self.canary.holds(summary.logprob_diff_max, summary.logprob_diff_mean):
                raise CanaryDied(summary.logprob_diff_max, summary.logprob_diff_mean)

        update = self._actor.update(data, algo, rate, check=check, should_stop=self.stop)
        if apart is None:
            return update
        # what a step says of engine and trainer is of one version of the adapter; how far two versions are apart says the importance
        return replace(update, summary=replace(update.summary, logprob_diff_max=apart[0], logprob_diff_mean=apart[1]))

    def score(self, rows: Sequence[tuple[Any, str, Any]], prompt_indices: Sequence[int]) -> list[float]:
        """The reward of every (prompt, completion, answer)."""
        return self._scorer.score(rows, should_stop=self.stop, prompt_indices=prompt_indices)

    # ------------------------------------------------------------ the adapter's way into the engine

    def sync(self, version: int) -> Arrival:
        """The actor's weights from the trainer's memory into the engine's in the same process, and the exact proof that they arrived."""
        self._kept.keep(version, self._trained)
        return there(self.turns).sync(lambda: there(self.delivery).deliver(self._actor, version))

    def export(self, version: int) -> Parcel | None:
        """The adapter for engines elsewhere, from rank 0; the other ranks of a sharded actor take part in gathering it."""
        self._kept.keep(version, self._trained)
        tensors = self._actor.adapter()
        if self.post.rank:
            return None
        sent = expected(tensors, self._lora.scaling, getattr(torch, self.plan.dtype))
        return Parcel.of(tensors, self._actor.adapter_config(), checksum(sent))

    def receive(self, version: int, parcel: Parcel) -> Arrival:
        """An adapter that another process sent, into the engine, and the exact proof against what the trainer meant."""
        tensors = parcel.tensors(torch.device(self.plan.device))
        return self._slot.install(tensors, parcel.config, version, parcel.checksum)

    # ------------------------------------------------------------ what there is to know

    def reward_numbers(self) -> dict[str, float]:
        """What the reward tells of itself since it was last asked."""
        return there(self.scorer).numbers()

    def reward_state(self) -> Any:
        """What the reward's ``state_dict()`` gives; None of a reward without memory."""
        return getattr(self._scorer.fn, "state_dict", lambda: None)()

    def load_reward_state(self, state: Any) -> None:
        """Give the reward its memory back; a copy, since it may write into it."""
        getattr(self._scorer.fn, "load_state_dict", lambda state: None)(copy.deepcopy(state))

    def peak_memory_gib(self) -> float:
        """The most that was held so far: of the GPU by torch's allocator (trainer and engine), else of this process."""
        if self.plan.device == "cuda":
            return float(torch.cuda.max_memory_reserved()) / 2**30
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    # ------------------------------------------------------------ a second look, for a canary that died

    def score_alone(self, rows: Sequence[Row], temperature: float) -> list[list[float]]:
        """The trainer's log-probabilities of each row, in a pass of its own."""
        return [self._actor.score([row], temperature)[0].tolist() for row in rows]

    def score_afresh(self, ids: Sequence[int], prompt_tokens: int) -> list[float]:
        """The engine's log-probabilities of ``ids[prompt_tokens:]`` at temperature 1, without cached prefixes."""
        self._wake()
        self._engine.forget_prefixes()
        return self._engine.score(ids, prompt_tokens)

    # ------------------------------------------------------------ inside

    def _make_room(self) -> None:
        """For what learns, or scores, where the engine beside it can leave the GPU."""
        if self.turns is not None:
            self.turns.learn()

    def _wake(self) -> None:
        """The engine, where it sleeps."""
        there(self.turns).sample(lambda: there(self.delivery).deliver(self._actor, self._engine.version))

    def _check_dated(self, data: Share, version: int) -> tuple[float, float]:
        """The canary for rows of an older adapter: the trainer goes back to it for a few of them, too few to be stopped at.

        Returns the largest and the mean difference in nats. Raises CanaryDied.
        """
        rows = list(range(min(DATED, len(data.rows))))
        with self._kept.again(version, self._trained):
            scored = self._actor.score([data.rows[r] for r in rows], data.temperature)
        apart = [(logp.cpu() - torch.tensor(data.engine_logp[r])).abs() for r, logp in zip(rows, scored, strict=True)]
        mine = torch.cat(apart) if apart else torch.zeros(1)
        sums = self.ranks.agree((float(mine.max()), float(mine.sum()), mine.numel()))
        largest, mean = max(s[0] for s in sums), sum(s[1] for s in sums) / sum(s[2] for s in sums)
        if not self.canary.holds(largest, mean):
            raise CanaryDied(largest, mean)
        return largest, mean

    @property
    def _engine(self) -> Engine:
        return there(self.engine)

    @property
    def _lora(self) -> LoRA:
        return there(self.plan.lora)

    @property
    def _slot(self) -> ByAdapter:
        if not isinstance(self.delivery, ByAdapter):
            raise RuntimeError(f"an engine of mode {self.plan.mode} takes no adapter")
        return self.delivery

    @property
    def _scorer(self) -> Scorer:
        return there(self.scorer)

    def _seed(self, *key: object) -> int:
        """A seed of 63 bits from the run's and ``key``: the same for the same place in the run, whatever came before."""
        digest = blake2b(repr((self.plan.seed, *key)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1
