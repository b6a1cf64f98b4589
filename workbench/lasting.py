"""What a run does survives the death of a worker, where that is wanted: ``Run(restart=True)``."""

from collections.abc import Callable
from typing import TypeVar

from workbench.errors import CollectiveError, WorkerError
from workbench.records import Notice
from workbench.training import Training

T = TypeVar("T")

RESTARTS = 3  # of workers in a row, for one piece of work


def lasting(training: Training, work: Callable[[], T]) -> T:
    """``work()``. Where a worker dies in it, new ones go on from the last checkpoint, and it is tried again."""
    losses = 0
    while True:
        try:
            if losses:
                training.recover()
            return work()
        except (WorkerError, CollectiveError) as error:
            losses += 1
            if not training.plan.restart or losses > RESTARTS:
                raise
            training.log.emit(Notice(f"{error}\n  restart {losses} of at most {RESTARTS} at this step"))
