"""Who has the GPU's memory: the engine while it samples, the trainer while it learns (``VLLM(sleep=True)``).

The order is that of vLLM's sleep mode, and no moment holds more than the larger side and what is on its way: the engine drops its cache
and its weights before the trainer's state comes back; the trainer's state leaves after the weights were written, and then the cache comes
back. An adapter's engine keeps its base in the host's memory meanwhile (level 1); weights that are written anew are dropped (level 2).
"""

from collections.abc import Callable
from typing import TypeVar

import torch

from workbench.models.learner import Learner
from workbench.models.offload import Offload
from workbench.rollout.engine import Engine

T = TypeVar("T")


class Turns:
    """Of one process that has both an engine and something that learns. Where ``engine.plan.config.sleep`` is off, nothing moves."""

    def __init__(self, engine: Engine, *learners: Learner) -> None:
        self.engine, self._offload = engine, Offload(*learners)
        self._on = engine.plan.config.sleep and bool(learners)

    def learn(self) -> None:
        """Make room for the trainer."""
        if self._on and not self.engine.asleep:
            self.engine.sleep()
            torch.cuda.empty_cache()
        if self._on:
            self._offload.come_back()

    def sync(self, deliver: Callable[[], T]) -> T:
        """``deliver()``, which writes the engine's weights; then the engine can sample."""
        if not self._on:
            return deliver()
        torch.cuda.empty_cache()
        self.engine.wake("weights")
        delivered = deliver()
        self._offload.leave()
        torch.cuda.empty_cache()
        self.engine.wake("kv_cache")
        return delivered

    def sample(self, deliver: Callable[[], object]) -> None:
        """Before the engine samples: it may be asleep since a step that taught nothing. ``deliver()``: its weights once more."""
        if self.engine.asleep:
            self.sync(deliver)
