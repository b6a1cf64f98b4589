"""The models of one process that learn, or score with a base: what they are loaded from, and what a checkpoint keeps of them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import torch

from workbench.models.actor import Actor, ActorPlan
from workbench.models.base import Base, BasePlan
from workbench.models.critic import ADAPTER, ValueModel
from workbench.models.families import check_family
from workbench.models.ranks import Ranks
from workbench.models.tokenizer import Tokenizer
from workbench.roles import Role
from workbench.runtime.plans import Post, WorkerPlan

T = TypeVar("T")


class Trainers:
    """Actor, critic and reference of one process, as far as its pool has these roles. Every rank makes the same calls."""

    def __init__(self, plan: WorkerPlan, post: Post) -> None:
        self.plan, self.post = plan, post
        self.ranks = Ranks.alone()
        self.actor: Actor | None = None
        self.critic: ValueModel | None = None
        self.base: Base | None = None  # of a reference without an actor beside it, or beside one whose weights are all trained

    @property
    def has_models(self) -> bool:
        """Whether there is anything to load."""
        return self._first is not None

    def check(self) -> None:
        """Raise ConfigError, before anything is loaded, on a family that can't be trained and sampled from as planned."""
        if self.has_models or Role.ROLLOUT in self.post.pool.roles:
            check_family(self.plan.model, self.plan.lora, self.plan.mode, self.plan.device)

    def load(self, storage: Mapping[str, torch.Tensor] | None = None) -> None:
        """Join the pool's world, and load the models. ``storage``: weights that the actor uses where they lie, by transformers' names."""
        plan, pool = self.plan, self.post.pool
        if pool.size > 1 and self._first is not None:
            self.ranks = Ranks.of_world(role=self._first, tp=pool.fan(self._first).width, timeouts=plan.timeouts)
        base = BasePlan(plan.model, plan.device, plan.dtype, pool.layout, pool.sharding, plan.optimizer.token_budget)
        if Role.ACTOR in pool.roles:
            actor = ActorPlan(plan.model, plan.lora, plan.optimizer, plan.device, plan.dtype, plan.seed, pool.layout, pool.sharding)
            beside = {ADAPTER: (plan.critic.lora, plan.critic.seed)} if plan.critic and plan.critic.lora and not plan.critic.model else {}
            self.actor = Actor(replace(actor, compression=plan.compression), self.ranks, beside, storage)
        if Role.REFERENCE in pool.roles and (self.actor is None or plan.lora is None):
            self.base = Base(base, self.ranks)
        if Role.CRITIC in pool.roles and plan.critic is not None:
            own = plan.critic.model
            if own is None:
                self.critic = ValueModel(there(self.actor), plan.critic)
            else:
                budget = plan.critic.optimizer.token_budget or base.token_budget
                self.critic = ValueModel.alone(plan.critic, replace(base, model=own, token_budget=budget), self.ranks)

    def drop(self) -> None:
        """Let go of the models."""
        self.actor, self.critic, self.base = None, None, None

    # ------------------------------------------------------------ what training goes on from

    def load_state(self, tensors: dict[str, torch.Tensor], updates: int) -> None:
        """Go on from a checkpoint; a sync has to follow."""
        self._actor.load_trainer_state(tensors, updates)

    def load_critic_state(self, tensors: dict[str, torch.Tensor]) -> None:
        """The critic goes on from a checkpoint."""
        there(self.critic).load_state(tensors)

    def state(self) -> dict[str, torch.Tensor]:
        """What ``load_state`` goes on from: copies on the CPU, from rank 0."""
        return self._actor.trainer_state(keep=not self.post.rank)

    def critic_state(self) -> dict[str, torch.Tensor]:
        """What ``load_critic_state`` goes on from: copies on the CPU, from rank 0."""
        return there(self.critic).state(keep=not self.post.rank)

    def updates(self) -> int:
        """Optimizer steps that the actor made so far."""
        return self._actor.updates

    def critic_updates(self) -> int:
        """Optimizer steps that the critic made since it was built."""
        return there(self.critic).learner.steps

    def is_finite(self) -> bool:
        """Whether the actor's adapter is worth saving: no weight is NaN or infinite."""
        return self._actor.is_finite()

    def critic_is_finite(self) -> bool:
        """The same of the critic."""
        return there(self.critic).is_finite()

    def actor_files(self) -> dict[str, bytes]:
        """The actor's adapter in peft's format, or its model where all of it is trained, file by file, from rank 0.

        The run's folder is the driver's, maybe on another machine.
        """

        def save(folder: Path) -> None:
            self._actor.save(folder)
            if self.plan.lora is None:
                Tokenizer(self.plan.model).raw.save_pretrained(folder)

        return self._files(save)

    def critic_files(self) -> dict[str, bytes]:
        """The critic's weights and its head, in the same way."""
        return self._files(there(self.critic).save)

    def _files(self, save: Callable[[Path], None]) -> dict[str, bytes]:
        with TemporaryDirectory() as folder:
            save(Path(folder))
            return {} if self.post.rank else {file.name: file.read_bytes() for file in Path(folder).iterdir() if file.is_file()}

    # ------------------------------------------------------------ inside

    @property
    def _first(self) -> Role | None:
        """The role that the pool's world is named after."""
        return next((role for role in (Role.ACTOR, Role.CRITIC, Role.REFERENCE) if role in self.post.pool.roles), None)

    @property
    def _trained(self) -> list[torch.Tensor]:
        return list(self._actor.learner.named.values())

    @property
    def _actor(self) -> Actor:
        return there(self.actor)


def there(part: T | None) -> T:
    """A part of the worker that its roles need."""
    if part is None:
        raise RuntimeError("the worker is not open")
    return part
