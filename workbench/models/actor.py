"""The policy in training, an adapter on a frozen base or all of a model's weights: accelerate around it, packed micro-batches through it.

What all weights take beside activations, in bytes a parameter: in bfloat16 2 for the weight, 4 for its float32 master, 8 for Adam's moments
and 4 for the gradient while there is one: 18; in float32, where a weight is its own master, 16. With ddp on every rank; with fsdp shared
out. An adapter takes the same of its own few parameters, and 2 or 4 of each frozen one.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from workbench.algos import Algorithm, Loss, LossStats, LossSummary, TokenTerms, checked_loss
from workbench.errors import ConfigError, Stopped
from workbench.models.base import Base, BasePlan
from workbench.models.compression import check_compression, check_ranks, handlers
from workbench.models.experience import Experience, Share, learns, shares
from workbench.models.learner import Learner
from workbench.models.lora import LoRA
from workbench.models.optimizer import Masters, Optimizer
from workbench.models.packing import Packed, Row
from workbench.models.passes import Lesson, Tally, teach, together
from workbench.models.ranks import Ranks
from workbench.models.shards import all_whole, piece
from workbench.models.weights import Factors, adapted, whole_factors


@dataclass(frozen=True)
class ActorPlan:
    """Everything the actor is built from."""

    model: Path
    lora: LoRA | None  # None: all weights are trained
    optimizer: Optimizer
    device: str  # "cpu" or "cuda"
    dtype: str  # "float32" or "bfloat16"
    seed: int
    layout: str = "ddp"  # "ddp", "fsdp" or "tp=2"
    sharding: str = "FULL_SHARD"  # or "SHARD_GRAD_OP": of fsdp
    compression: str | None = None  # of gradients under ddp: "fp16", "bf16" or "powersgd"

    def __post_init__(self) -> None:
        _ = self.base  # which checks the layout
        check_compression(self.compression, self.layout, self.device)

    @property
    def base(self) -> BasePlan:
        """The model's part of it."""
        trained = "all" if self.lora is None else "adapters"
        return BasePlan(self.model, self.device, self.dtype, self.layout, self.sharding, self.optimizer.token_budget, trained)


@dataclass(frozen=True)
class Update:
    """What came of it."""

    summary: LossSummary
    grad_norm: float
    tokens: int  # that went through the model, prompts included
    optimizer_steps: int


class Actor(Base):
    """Trains the adapter, and gives log-probabilities with it and without it (that is the reference); or trains all weights.

    With several ``ranks`` each has its share of the rows, and all make the same calls.
    """

    def __init__(
        self,
        plan: ActorPlan,
        ranks: Ranks | None = None,
        beside: Mapping[str, tuple[LoRA, int]] | None = None,
        storage: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        """``beside``: adapters of others on the same base; ``storage``: the weights to share with whoever holds them; as of ``Base``."""
        check_ranks(plan.compression, ranks or Ranks.alone())
        if plan.lora is None and beside:
            found = "all of the actor's weights are trained, so there is no frozen base to share"
            raise ConfigError(f"{', '.join(beside)} on the actor's base", found, "give it a model of its own, or the actor an adapter")
        mine = {} if plan.lora is None else {"default": (plan.lora, plan.seed)}
        super().__init__(plan.base, ranks, {**mine, **(beside or {})}, handlers(plan.compression), storage=storage)
        self.plan = plan
        trained = self.parameters_of("default") if mine else self.parameters_whole()
        self.learner = Learner(self, trained, plan.optimizer, plan.compression)

    @property
    def updates(self) -> int:
        """Optimizer steps so far, broken-off ones included."""
        return self.learner.steps

    @property
    def masters(self) -> Masters:
        """The float32 side of what is trained."""
        return self.learner.masters

    def score(
        self, rows: Sequence[Row], temperature: float, *, adapter: bool = True, should_stop: Callable[[], bool] = lambda: False
    ) -> list[torch.Tensor]:
        """As ``Base.score``; with ``adapter`` False of the clean base, bit for bit. Raises ConfigError where none is kept."""
        if not adapter:
            self._check_frozen("score(adapter=False)")
        with nullcontext() if adapter else self.model.disable_adapter():
            return super().score(rows, temperature, should_stop=should_stop)

    # ------------------------------------------------------------ learning

    def update(
        self,
        data: Experience,
        algo: Algorithm,
        learning_rate: float,
        *,
        check: Callable[[LossSummary], None] = lambda summary: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Update:
        """One rollout's optimizer steps on this rank's ``Share``, or on a whole batch where there is one rank.

        ``check`` sees each step's statistics, over all ranks, before it is applied, and may raise: on all ranks alike, as everything
        here. The result is the same on all ranks.

        On policy (one minibatch) the log-probabilities of the old policy are those of the pass with gradient, detached;
        no second pass is made. A stop drops the gradients of the optimizer step that it falls into; steps already made stay.
        Raises DivergedError on a gradient that is not finite, before it is applied.
        """
        share = data if isinstance(data, Share) else shares(data, algo, 1)[0]
        self.learner.set_rate(learning_rate)
        parts = [[row for row in part if learns(share, algo, row)] for part in share.parts]
        old = self._old_logp(share, parts, should_stop)
        learnt = teach(self.learner, self.lesson(share, algo, parts, old), check, should_stop)
        summary = LossStats.merge(learnt.stats).summary()
        # the losses of several optimizer steps add up in the statistics
        summary = replace(summary, loss=summary.loss / max(1, learnt.steps))
        return Update(summary, learnt.grad_norm, learnt.tokens, learnt.steps)

    def lesson(self, share: Share, algo: Algorithm, parts: Sequence[Sequence[int]], old: dict[int, torch.Tensor]) -> Lesson[LossStats]:
        """What the actor learns of ``parts`` of its share. ``old``: the old policy's log-probabilities, of rows seen after a step."""

        def loss(packed: Packed, logp: torch.Tensor) -> Loss:
            return checked_loss(algo, _terms(packed, logp, share, old))

        return Lesson("update of the actor", share.rows, parts, lambda packed: self.logp(packed, share.temperature), loss, LossStats)

    def _old_logp(self, share: Share, parts: Sequence[Sequence[int]], should_stop: Callable[[], bool]) -> dict[int, torch.Tensor]:
        """Of the rows that later steps learn from, before the first step."""
        if not share.parts[1:]:
            return {}
        later = list(dict.fromkeys(row for part in parts[1:] for row in part))
        try:
            scored = self.score([share.rows[row] for row in later], share.temperature, should_stop=should_stop)
        except Stopped:
            together(self.learner, Tally(LossStats.merge([]), 0, stopped=True))
            raise
        return dict(zip(later, scored, strict=True))

    # ------------------------------------------------------------ what was learnt

    def _check_frozen(self, asked: str) -> None:
        if self.plan.lora is None:
            found = "all of its weights are trained: there is no adapter, and no base is left"
            raise ConfigError(
                f"{asked} of the actor", found, "use weights(), give the reference a model of its own, or train with lora=wb.LoRA()"
            )

    def adapter(self) -> dict[str, torch.Tensor]:
        """The adapter's tensors by their names in a peft checkpoint: the live ones, or where they lie in pieces, the whole of them.

        Every rank has to call this.
        """
        self._check_frozen("adapter()")
        from peft import get_peft_model_state_dict

        tensors: dict[str, torch.Tensor] = get_peft_model_state_dict(self.model)
        return dict(zip(tensors, all_whole(list(tensors.values())), strict=True))

    def base_weights(self) -> dict[str, torch.Tensor]:
        """This rank's pieces of the frozen weights, by transformers' names: the W of W + scaling·B·A."""
        self._check_frozen("base_weights()")
        return self.weights()

    def deltas(self) -> dict[str, Factors]:
        """What the adapter adds to which of ``base_weights``: (A (r, in), B (out, r), scaling), whole on every rank.

        Every rank has to call this.
        """
        self._check_frozen("deltas()")
        return whole_factors(self._factors)

    @property
    def adapted(self) -> tuple[str, ...]:
        """The names of ``base_weights`` that the adapter adds to."""
        self._check_frozen("adapted")
        return tuple(self._factors)

    @cached_property
    def _factors(self) -> dict[str, Factors]:
        """As they lie: looked up once, for a model has thousands of modules."""
        return adapted(self.body, "default")

    def adapter_config(self) -> dict[str, Any]:
        """The adapter's configuration as peft writes it."""
        self._check_frozen("adapter_config()")
        config: dict[str, Any] = self.model.peft_config["default"].to_dict()
        return config

    def trainer_state(self, *, keep: bool = True) -> dict[str, torch.Tensor]:
        """What training goes on from, on the CPU: ``weight.NAME`` (float32) and, after an update, Adam's ``exp_avg.NAME`` and so on.

        The same in every layout. Every rank has to call this; with ``keep`` False it takes part and gets nothing.
        """
        return self.learner.state(keep=keep)

    def load_trainer_state(self, state: dict[str, torch.Tensor], updates: int) -> None:
        """Take over what ``trainer_state`` gave after ``updates`` optimizer steps. Raises ConfigError where it is another's."""
        self.learner.load(state)
        self.learner.steps = updates

    def is_finite(self) -> bool:
        """Whether every trained weight is a finite number. Every rank has to call this."""
        mine = [piece(parameter.detach()).isfinite().all() for parameter in self.learner.named.values()]
        return all(self.ranks.agree(bool(torch.stack(mine).all())))

    def save(self, path: Path) -> None:
        """Write the adapter in peft's format, which ``PeftModel.from_pretrained`` and vLLM read, or the whole model in transformers'.

        Every rank has to call this; the first one writes. Raises OSError, also on a full disk.
        """
        if self.plan.lora is None:
            self.save_whole(path)
        else:
            self.save_adapter("default", path)


def _terms(packed: Packed, logp: torch.Tensor, share: Share, old: dict[int, torch.Tensor]) -> TokenTerms:
    repeat = torch.tensor(packed.lengths)
    rows = packed.rows
    engine_logp = torch.tensor([x for r in rows for x in share.engine_logp[r]], dtype=torch.float32)
    return TokenTerms(
        logp=logp,
        old_logp=torch.cat([old[r] for r in rows]) if rows[0] in old else logp.detach(),
        engine_logp=engine_logp.to(logp.device, non_blocking=True),
        advantage=torch.cat([share.advantages[r] for r in rows]).float().to(logp.device, non_blocking=True),
        weight=torch.tensor([share.weights[r] for r in rows]).repeat_interleave(repeat).to(logp.device, non_blocking=True),
        ref_logp=None if share.ref_logp is None else torch.cat([share.ref_logp[r] for r in rows]).to(logp.device, non_blocking=True),
        sequence=torch.arange(len(rows)).repeat_interleave(repeat).to(logp.device, non_blocking=True),
    )
