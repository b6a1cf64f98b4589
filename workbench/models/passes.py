"""Optimizer steps: micro-batches forward and backward through a model, on all its ranks alike. Actor and critic each make theirs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Generic, Protocol, Self, TypeVar

import torch

from workbench.errors import Stopped
from workbench.models.learner import Learner
from workbench.models.packing import Packed, Row


class Sums(Protocol):
    """Statistics of micro-batches that add up: ``LossStats``, ``ValueStats``. Their fields are scalars on a device."""

    @classmethod
    def merge(cls, parts: Sequence[Self]) -> Self:
        """Those of several micro-batches together."""
        ...

    def summary(self) -> Any:
        """As plain numbers."""
        ...


class Judged(Protocol):
    """What a loss makes of a micro-batch: ``Loss``, ``ValueLoss``."""

    total: torch.Tensor  # scalar
    stats: Any


S = TypeVar("S", bound=Sums)


@dataclass(frozen=True)
class Lesson(Generic[S]):
    """What is learnt of which rows."""

    doing: str  # for errors: "update of the actor"
    rows: Sequence[Row]
    parts: Sequence[Sequence[int]]  # the rows of each optimizer step, on this rank; one may have none
    forward: Callable[[Packed], torch.Tensor]  # (R,) of a micro-batch, with gradient
    loss: Callable[[Packed, torch.Tensor], Judged]  # of what ``forward`` gave
    sums: type[S]


@dataclass(frozen=True)
class Tally(Generic[S]):
    """What there is to say of one optimizer step."""

    stats: S
    tokens: int  # that went through the model
    stopped: bool = False


@dataclass(frozen=True)
class Learnt(Generic[S]):
    """What came of a lesson: one entry for each optimizer step that was made."""

    stats: list[S]
    grad_norms: list[float]
    tokens: int

    @property
    def steps(self) -> int:
        """Optimizer steps made."""
        return len(self.grad_norms)

    @property
    def grad_norm(self) -> float:
        """Their mean, before clipping; 0 of none."""
        return sum(self.grad_norms) / max(1, self.steps)


def teach(learner: Learner, lesson: Lesson[S], check: Callable[[Any], None], should_stop: Callable[[], bool]) -> Learnt[S]:
    """All optimizer steps of ``lesson``. ``check`` sees each step's summary, over all ranks, before it is applied, and may raise.

    A stop drops the gradients of the step that it falls into; steps already made stay. A step of no rows is left out. Raises Stopped, and
    DivergedError on a gradient that is not finite, on all ranks alike.
    """
    learnt: Learnt[S] = Learnt([], [], 0)
    for part in lesson.parts:
        learner.clear()
        tally = together(learner, accumulate(learner, lesson, part, should_stop))
        if tally.tokens == 0:
            continue
        check(tally.stats.summary())
        learner.sum_gradients()
        norm = learner.clip(lesson.doing)
        learner.step()
        learnt = Learnt([*learnt.stats, tally.stats], [*learnt.grad_norms, norm], learnt.tokens + tally.tokens)
    learner.clear()
    return learnt


def accumulate(learner: Learner, lesson: Lesson[S], part: Sequence[int], should_stop: Callable[[], bool]) -> Tally[S]:
    """Gradients of this rank's part of one optimizer step."""
    base, statistics, tokens, stopped = learner.base, [], 0, False
    try:
        with base.afresh():
            for packed in base.packed(lesson.rows, part, should_stop):
                found = lesson.forward(packed)
                if not packed.rows:  # the other ranks' pass needs this one's company
                    base.accelerator.backward(found.sum() * 0)
                    continue
                loss = lesson.loss(packed, found)
                base.accelerator.backward(loss.total)
                statistics.append(loss.stats)
                tokens += packed.ids.numel()
    except Stopped:
        stopped = True
    return Tally(lesson.sums.merge(statistics), tokens, stopped)


def together(learner: Learner, mine: Tally[S]) -> Tally[S]:
    """The tallies of all ranks as one. Raises Stopped on all of them where one was stopped."""
    ranks = learner.base.ranks
    if ranks.size > 1:
        mine = replace(mine, stats=_on_cpu(mine.stats))
    tallies = ranks.agree(mine)
    if any(tally.stopped for tally in tallies):
        learner.clear()
        raise Stopped("update")
    apart = tallies[:: ranks.tp]  # the ranks of a tensor-parallel group saw the same rows
    return mine if len(apart) == 1 else Tally(type(mine.stats).merge([t.stats for t in apart]), sum(t.tokens for t in apart))


def _on_cpu(stats: Any) -> Any:
    """One copy from the device."""
    names = [field.name for field in fields(stats)]
    values = torch.stack([getattr(stats, name) for name in names]).cpu()
    return type(stats)(**dict(zip(names, values, strict=True)))
