"""Whole weights from the trainer into the engine's tensors: the base merged with the adapter (``merged``), or what is trained (``full``).

Which slices go where is planned once, from how both sides lie over the ranks (reshard/schedule.py), and carried out at every sync.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from workbench.errors import StateError
from workbench.models.actor import Actor
from workbench.reshard.apply import Moved, Read, apply
from workbench.reshard.lying import Engine as Engines
from workbench.reshard.lying import Lying
from workbench.reshard.merge import Delta, Measured, Merging, merging, plain
from workbench.reshard.parameters import Parameter
from workbench.reshard.schedule import Schedule, schedule
from workbench.reshard.weights_proof import Proven, prove_weights
from workbench.rollout.engine import Engine
from workbench.runtime.groups import lying
from workbench.runtime.lending import parameters_of
from workbench.runtime.plans import Arrival


class ByWeights:
    """Writes into the engine's own tensors, from the frozen base each time, so that no rounding adds up."""

    def __init__(self, engine: Engine, actor: Actor) -> None:
        self.engine = engine
        self._proven: Proven | None = None
        self._holds_actor = False  # the engine, whole; an interrupt may leave it with the base, or with some of each
        ranks, laid, tensors = actor.ranks, engine.laid(), engine.tensors()
        self._rank, self._group = ranks.rank, ranks.groups.get("shards")
        self._target = {name: tensors[one.tensor] for one in laid for name in one.parameters}
        self.parameters = tuple(parameter for one in laid for parameter in parameters_of(one, tensors[one.tensor]))
        engines = Engines(engine.plan.tp, ranks.size // engine.plan.tp, engine.plan.strided)
        self.schedule: Schedule = schedule(self.parameters, _lying(actor, self.parameters), engines)
        self._changing = _of(self.schedule, frozenset(actor.adapted)) if actor.plan.lora else self.schedule
        self._drops = -1  # how often the engine had dropped its weights when all of them were proved last

    def deliver(self, actor: Actor, version: int) -> Arrival:
        """Every rank's slices, bucket by bucket, and the proof over all ranks."""
        began, read = time.monotonic(), self._read(actor)
        moved = self._write(read, version)
        self._holds_actor = True
        pushed = time.monotonic()
        proven_read = Measured.of(read, version) if isinstance(read, Merging) else read
        self._proven = proven = self._prove(proven_read, version)
        lost = proven_read.rounding if isinstance(proven_read, Measured) else None
        return Arrival(
            bytes=moved.received,
            seconds=pushed - began,
            proof_seconds=time.monotonic() - pushed,
            checksum=proven.checksum,
            written=moved.stayed + moved.received,
            scheduled=self.schedule.loads[self._rank].received,
            rounding=lost,
        )

    def _prove(self, read: Read, version: int) -> Proven:
        """Raises SyncError; then everything is written next time."""
        drops, self._drops = self.engine.drops, -1
        proven = prove_weights(
            self.schedule,
            self.parameters,
            read,
            self._target,
            rank=self._rank,
            group=self._group,
            version=version,
            previous=self._proven,
        )
        self._drops = drops
        return proven

    @contextmanager
    def base(self, actor: Actor | None) -> Iterator[None]:
        """Within: the engine holds the frozen base. Raises StateError where there is none any more."""
        if actor is None or actor.plan.lora is None:
            found = "all weights are trained, and a base is not kept beside them"
            raise StateError("sample from the base", found, "ask the model that the run began with")
        version = self.engine.version
        try:
            self._write(plain(actor.base_weights()), version)
            yield
        finally:
            self.deliver(actor, version)

    def ready(self, actor: Actor | None) -> None:
        """Write the actor's weights once more, where an interrupt between two writes has left others; on all ranks alike."""
        if actor is not None and not all(actor.ranks.agree(self._holds_actor)):
            self.deliver(actor, self.engine.version)

    def _read(self, actor: Actor) -> Read:
        if actor.plan.lora is None:
            return plain(actor.weights())
        return merging(actor.base_weights(), {name: Delta(*delta) for name, delta in actor.deltas().items()})

    def _write(self, read: Read, version: int) -> Moved:
        """Everything; where nothing goes between ranks, only what an adapter changes once the engine has the rest, proved."""
        plan = self._changing if not self.schedule.copies and self._drops == self.engine.drops else self.schedule
        self._holds_actor = False
        moved = apply(plan, read, self._target, rank=self._rank, group=self._group)
        self.engine.written(version)
        return moved


def _of(plan: Schedule, names: frozenset[str]) -> Schedule:
    """What ``plan`` does for some parameters."""
    stays, copies = (tuple(copy for copy in some if copy.parameter in names) for some in (plan.stays, plan.copies))
    return replace(plan, stays=stays, copies=copies)


def _lying(actor: Actor, parameters: Sequence[Parameter]) -> Lying:
    """How the trainer's weights lie over its ranks."""
    if actor.layout.kind != "tp":
        return lying(actor.layout.kind, actor.ranks.size)
    mine = actor.base_weights()
    whole = frozenset(parameter.name for parameter in parameters if tuple(mine[parameter.name].shape) == parameter.shape)
    return lying(f"tp={actor.layout.tp}", actor.ranks.size, whole)
