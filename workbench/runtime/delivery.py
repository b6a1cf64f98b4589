"""How the actor's weights come into the engine, and the proof that they arrived. This file: as an adapter; weights.py: as weights."""

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from workbench.models.actor import Actor
from workbench.reshard.proof import check_arrived, checksum, expected, prove
from workbench.rollout.engine import Engine
from workbench.runtime.plans import Arrival


class Delivery(Protocol):
    """One mode's way. Every rank makes the same calls."""

    def deliver(self, actor: Actor, version: int) -> Arrival:
        """The actor's weights of now into the engine, as ``version``. Raises SyncError where they are not what is resident then."""
        ...

    def base(self, actor: Actor | None) -> AbstractContextManager[None]:
        """Within: the engine samples from the base where it is asked to do without the adapter."""
        ...

    def ready(self, actor: Actor | None) -> None:
        """Before the engine samples from the actor: its weights once more, where an interrupt has left others."""
        ...


class ByAdapter:
    """The adapter into the engine's slot; its base is a copy of its own (``adapter``), or the trainer's too (``zero_copy``)."""

    def __init__(self, engine: Engine, scaling: float) -> None:
        self.engine, self.scaling = engine, scaling
        self.checksum = ""  # of the adapter that was proved last

    def ready(self, actor: Actor | None) -> None:
        """A slot is written at once, and a sync that was broken off is made again: nothing to do."""

    def deliver(self, actor: Actor, version: int) -> Arrival:
        """From memory to memory in this process."""
        return self.install(actor.adapter(), actor.adapter_config(), version)

    def install(self, tensors: dict[str, torch.Tensor], config: dict[str, Any], version: int, meant: str = "") -> Arrival:
        """An adapter by peft's names. ``meant``: the checksum that the trainer took, of one that came from another process."""
        began = time.monotonic()
        self.engine.push(tensors, config, version)
        pushed = time.monotonic()
        sent = expected(tensors, self.scaling, self.engine.adapter_dtype)
        if meant:
            check_arrived(sent, meant, version)
        self.checksum = prove(self.engine.expected(sent), self.engine.resident(), version=version, previous=self.checksum)
        size = sum(t.numel() * t.element_size() for t in tensors.values())
        # of one of several ranks its part was proved: what all ranks are compared by is the whole
        told = meant or (self.checksum if self.engine.plan.tp == 1 else checksum(sent))
        return Arrival(size, pushed - began, time.monotonic() - pushed, told)

    def base(self, actor: Actor | None) -> AbstractContextManager[None]:
        """The engine can leave the adapter out by itself."""
        return nullcontext()
