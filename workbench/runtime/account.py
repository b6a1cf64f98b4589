"""What a call of a worker took of its rank's time, and of its engine: beside the answer it is told to the driver."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from workbench.records import Queue, Ranks, Record

if TYPE_CHECKING:
    from workbench.rollout.queue import Queued
    from workbench.runtime.worker import Worker


@dataclass(frozen=True)
class Account:
    """``seconds``: of this rank's own work, exchanges with other ranks left out; what it waits for within a pass (fsdp, tp) is not."""

    seconds: float = 0.0
    queue: "Queued | None" = None  # of a rollout


def attended(worker: "Worker", method: str, args: Sequence[Any]) -> tuple[Any, Account]:
    """``worker.attend(method, args)``, and what it took."""
    began, before = time.monotonic(), worker.ranks.waits.seconds
    value = worker.attend(method, args)
    seconds = time.monotonic() - began - (worker.ranks.waits.seconds - before)
    return value, Account(seconds, worker.engine.queued if method == "rollout" and worker.engine else None)


def records(step: int, accounts: Sequence[Account]) -> list[Record]:
    """What there is to tell of one phase's calls. ``accounts``: of all ranks of its role, by rank; of one rank alone nobody is late."""
    queues = [account.queue for account in accounts if account.queue is not None]
    ranks = [Ranks(step, [round(account.seconds, 4) for account in accounts])] if len(accounts) > 1 else []
    return [*ranks, *([summed(step, queues)] if queues else [])]


def summed(step: int, queues: "Sequence[Queued]") -> Queue:
    """The queues of several engines as one."""
    running, waiting = sum(one.running_mean for one in queues), sum(one.waiting_mean for one in queues)
    return Queue(step, round(running, 2), round(waiting, 2), sum(one.preempted for one in queues))
