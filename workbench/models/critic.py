"""The value model: a LoRA adapter of its own on the actor's base, or a model of its own, and a head of one number in float32."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.nn.functional as F

from workbench.algos import Algorithm, ValueLoss, ValueStats, ValueSummary, ValueTerms, checked_value_loss
from workbench.errors import ConfigError, check_kind, spelled
from workbench.models.base import Base, BasePlan
from workbench.models.experience import Worth, WorthShare, worth_shares
from workbench.models.learner import Learner
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.models.packing import Packed, Row
from workbench.models.passes import Lesson, teach
from workbench.models.ranks import Ranks

ADAPTER = "critic"
HEAD = "value_head."


@spelled(critic_warmup="warmup_steps", peft_config="lora", num_critic_warmup_steps="warmup_steps")
@dataclass(frozen=True)
class Critic:
    """How the critic learns. Where it sits the map says: ``critic="share:actor"`` (an adapter on the actor's base), or devices.

    ``model``: None, the actor's; another one needs devices of its own, and the actor's tokenizer. ``lora`` and ``optimizer``: None, as the
    actor's. ``full``: train all of its weights instead of an adapter, on devices of its own. ``warmup_steps``: so many steps at the
    beginning in which the critic learns and the actor waits.
    """

    model: str | None = None
    lora: LoRA | None = None
    optimizer: Optimizer | None = None
    full: bool = False
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        for name, kind, example in (("lora", LoRA, "wb.LoRA(rank=16)"), ("optimizer", Optimizer, "wb.Optimizer(learning_rate=1e-4)")):
            if getattr(self, name) is not None:
                check_kind(f"Critic: {name}", getattr(self, name), kind, example)
        check_kind("Critic: full", self.full, bool, "True or False")
        check_kind("Critic: warmup_steps", self.warmup_steps, int, "a number of steps, 0 for none")
        if self.warmup_steps < 0:
            raise ConfigError(f"Critic(warmup_steps={self.warmup_steps})", "it counts steps", "give 0 for none")
        if self.full and self.lora is not None:
            raise ConfigError("Critic(full=True, lora=...)", "all weights are trained, or an adapter", "leave one of them out")
        if self.model is not None:
            object.__setattr__(self, "model", str(self.model))


@dataclass(frozen=True)
class CriticPlan:
    """Everything the critic is built from."""

    lora: LoRA | None  # None: all weights are trained
    optimizer: Optimizer
    seed: int
    model: Path | None = None  # of its own; None: it shares the actor's base


@dataclass(frozen=True)
class ValueUpdate:
    """What came of it."""

    summary: ValueSummary
    grad_norm: float
    tokens: int  # that went through the model, prompts included
    optimizer_steps: int


class ValueHead(torch.nn.Module):
    """One number for every hidden state, in float32. It starts at zero, so that the first values are 0 and no noise."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1, size))
        self.bias = torch.nn.Parameter(torch.zeros(1))

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """(R, D) -> (R,)."""
        return F.linear(hidden.float(), self.weight, self.bias)[:, 0]


class ValueModel:
    """Gives values of the states before response tokens, and learns them. Every rank makes the same calls.

    On the actor's ``base`` it works under its own adapter, and leaves the actor's parameters, gradients and optimizer alone.
    """

    def __init__(self, base: Base, plan: CriticPlan) -> None:
        self.base, self.plan = base, plan
        self.head = ValueHead(base.hidden_size).to(base.device)
        body = base.parameters_of(ADAPTER) if plan.lora is not None else base.parameters_whole()
        head = {f"{HEAD}{name}": parameter for name, parameter in self.head.named_parameters()}
        self.learner = Learner(base, {**body, **head}, plan.optimizer)

    @classmethod
    def alone(cls, plan: CriticPlan, base: BasePlan, ranks: Ranks | None = None) -> "ValueModel":
        """On a base of its own, which may be a reward model's: the output head isn't read."""
        base = replace(base, head=False)
        if plan.lora is None:
            return cls(Base(replace(base, trained="body"), ranks), plan)
        return cls(Base(base, ranks, {ADAPTER: (plan.lora, plan.seed)}), plan)

    def values(self, rows: Sequence[Row], *, should_stop: Callable[[], bool] = lambda: False) -> list[torch.Tensor]:
        """The value of the state before every response token: one (length,) float32 tensor a row. Raises Stopped."""
        with self._adapter():
            return self.base.each(rows, lambda packed: self.base.values(packed, self.head), should_stop)

    def update(self, data: Worth, algo: Algorithm, learning_rate: float, *, should_stop: Callable[[], bool] = lambda: False) -> ValueUpdate:
        """One rollout's optimizer steps on this rank's ``WorthShare``, or on a whole batch where there is one rank.

        A stop drops the gradients of the optimizer step that it falls into; steps already made stay. Raises DivergedError.
        """
        share = data if isinstance(data, WorthShare) else worth_shares(data, algo, 1)[0]
        self.learner.set_rate(learning_rate)
        with self._adapter():
            learnt = teach(self.learner, self.lesson(share, algo), lambda summary: None, should_stop)
        summary = ValueStats.merge(learnt.stats).summary()
        summary = replace(summary, loss=summary.loss / max(1, learnt.steps))
        return ValueUpdate(summary, learnt.grad_norm, learnt.tokens, learnt.steps)

    def lesson(self, share: WorthShare, algo: Algorithm) -> Lesson[ValueStats]:
        """What the critic learns of its share."""

        def loss(packed: Packed, values: torch.Tensor) -> ValueLoss:
            return checked_value_loss(algo, _terms(packed, values, share))

        return Lesson("update of the critic", share.rows, share.parts, lambda packed: self.base.values(packed, self.head), loss, ValueStats)

    # ------------------------------------------------------------ what training goes on from

    def state(self, *, keep: bool = True) -> dict[str, torch.Tensor]:
        """As ``Learner.state``; every rank has to call this."""
        return self.learner.state(keep=keep)

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        """Take over what ``state`` gave. Raises ConfigError where it is another critic's."""
        self.learner.load(state)

    def is_finite(self) -> bool:
        """Whether every weight is a finite number. Every rank has to call this."""
        mine = torch.stack([master.isfinite().all() for master in self.learner.masters.parameters]).all()
        return all(self.base.ranks.agree(bool(mine)))

    def save(self, path: Path) -> None:
        """Write the adapter in peft's format, or the model where all of it is trained; and ``value_head.safetensors``. Raises OSError.

        Every rank has to call this; the first one writes.
        """
        from safetensors.torch import save

        if self.plan.lora is not None:
            self.base.save_adapter(ADAPTER, path)
        else:
            self.base.save_whole(path)
        if not self.base.ranks.rank:
            head = {name: tensor.detach().cpu().contiguous() for name, tensor in self.head.state_dict().items()}
            (path / "value_head.safetensors").write_bytes(save(head))

    def _adapter(self) -> AbstractContextManager[None]:
        return self.base.using(ADAPTER) if self.plan.lora is not None else nullcontext()


def _terms(packed: Packed, values: torch.Tensor, share: WorthShare) -> ValueTerms:
    rows, device = packed.rows, values.device
    weights = torch.tensor([share.weights[r] for r in rows]).repeat_interleave(torch.tensor(packed.lengths))
    return ValueTerms(
        value=values,
        old_value=torch.cat([share.values[r] for r in rows]).float().to(device, non_blocking=True),
        target=torch.cat([share.targets[r] for r in rows]).float().to(device, non_blocking=True),
        weight=weights.to(device, non_blocking=True),
    )
