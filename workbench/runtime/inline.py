"""Every role in the driver's process: for CPUs, tests and a debugger."""

from collections.abc import Sequence

from workbench.runtime.account import attended
from workbench.runtime.calls import Answer, Call, Held
from workbench.runtime.outpost import Outpost
from workbench.runtime.plans import Post, Report, Stop, Told, WorkerPlan
from workbench.runtime.pools import Pool
from workbench.runtime.seat import Seat
from workbench.runtime.worker import Worker


class Inline:
    """One worker here. Nothing moves: what is held is the object itself."""

    inline = True
    broken = False

    def __init__(self, plan: WorkerPlan, pool: Pool) -> None:
        self.worker = Worker(plan, Post(pool))

    def open(self, report: Report, stop: Stop) -> list[Answer]:
        """Open the worker in the caller's thread. ``report`` raises Stopped by itself."""
        self.worker.stop = stop
        return [Answer(self.worker.open(report))]

    def run(self, calls: Sequence[Call], stop: Stop, told: Told | None = None) -> list[Answer]:
        """One after the other, in the caller's thread."""
        self.worker.stop, self.worker.tell = stop, told or (lambda row, text: None)
        return [self._answer(call) for call in calls]

    def _answer(self, call: Call) -> Answer:
        value, account = attended(self.worker, call.method, (*call.args, *([call.carry.ref] if call.carry else [])))
        return Answer(Held(value) if call.hold else value, account=account)

    def outposts(self, seats: Sequence[Seat], hz: float) -> Sequence[Outpost]:
        """None: all of it is here."""
        return ()

    def close(self) -> None:
        """End the engine, drop the models."""
        self.worker.close()
