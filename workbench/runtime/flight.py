"""Calls of Ray actors that are under way together: their answers, the first thing that goes wrong, and a stop."""

import pickle
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from workbench.errors import WorkerError
from workbench.runtime.calls import Answer, Call, Held
from workbench.runtime.host import Receipt, pickled
from workbench.runtime.plans import Told
from workbench.runtime.pools import Pool

# calls whose names say something to people
DOING = ("rollout", "reward", "reference", "values", "update", "update_critic", "sync", "export", "receive")
POLL_SECONDS = 0.05  # between two looks whether to stop


@dataclass(frozen=True)
class Member:
    """One worker's process, seen from the driver."""

    pool: Pool
    rank: int
    handle: Any
    life: Any  # a call that returns only when the process leaves, and fails when it dies
    pid: int
    node: str
    uuid: str | None  # of its GPU

    def __str__(self) -> str:
        device = self.pool.devices[self.rank] + (f" ({self.uuid})" if self.uuid else "")
        return f"{self.pool.name}, rank {self.rank} of {self.pool.size}, on {device} of node {self.node}, pid {self.pid}"


def value_of(ref: Any, member: Member | None, method: str, logs: str) -> Any:
    """What ``ref`` gives. What a worker raised is raised as it was, with a note of who; a process that died is a WorkerError."""
    import ray
    from ray.exceptions import RayError, RayTaskError

    try:
        return ray.get(ref)
    except RayTaskError as error:
        if member is not None:
            error.cause.add_note(f"raised in {method.replace('_', ' ')} of worker {member}")
        raise error.cause from error
    except RayError as error:  # its process, its node, or what it was to be handed is gone
        raise _death(member, method, logs, error) from error


def _death(member: Member | None, method: str, logs: str, error: Exception) -> WorkerError:
    doing = f" in {method.replace('_', ' ')}" if method in DOING else ""
    who = f"worker {member}{doing}" if member is not None else "start a worker"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    found = next((line for line in lines if "exit detail" in line or "died" in line.lower()), lines[0] if lines else "no word of why")
    fix = f"Run.restore(path) goes on from the last checkpoint, Run(restart=True) does so by itself; what it wrote is in {logs}"
    return WorkerError(who, f"its process died ({found})", fix)


class Pulse:
    """Whether processes that are waited for still answer: one that is stopped, or stuck where no other thread gets its turn, does not.

    ``patience``: seconds that an answer may take; None: never ask.
    """

    def __init__(self, patience: float | None) -> None:
        self.patience = patience
        self._asked: dict[Member, tuple[Any, float]] = {}  # the question under way, and when it was asked
        self._felt = time.monotonic()

    def feel(self, members: Sequence[Member], method: str) -> None:
        """Ask each of ``members`` about once a second. Raises WorkerError on one that has not answered for too long."""
        import ray

        now = time.monotonic()
        if self.patience is None or now - self._felt < 1.0:
            return
        self._felt = now
        for member in members:
            ref, when = self._asked.get(member, (None, now))
            if ref is None or ray.wait([ref], timeout=0)[0]:
                self._asked[member] = (member.handle.pid.options(concurrency_group="control").remote(), now)
            elif now - when > self.patience:
                found = f"it lives, and has not answered for {now - when:.0f} s: it is stopped, or hangs in a call of the system"
                fix = "look at it with py-spy dump --pid; Run.restore(path) goes on from the last checkpoint"
                raise WorkerError(f"worker {member} in {method.replace('_', ' ')}", found, fix)


@dataclass(frozen=True)
class Watch:
    """What is done while calls are under way. ``patience``: as of ``Pulse``. ``told``: who gets what the workers tell."""

    patience: float | None = None
    told: Told | None = None


class Flight:
    """Calls that are under way together."""

    def __init__(self, number: int, calls: Sequence[Call], everyone: Mapping[tuple[Pool, int], Member], logs: str, watch: Watch) -> None:
        self.number, self.calls, self.logs, self.told = number, calls, logs, watch.told
        self.pulse = Pulse(watch.patience)
        self.lives = {member.life: member for member in everyone.values()}
        self.members = [everyone[call.pool, call.rank] for call in calls]
        self.args = self._packed()
        self.refs = [self._send(*pair) for pair in zip(calls, self.members, self.args, strict=True)]  # (receipt, answer) each
        self.left = {receipt: place for place, (receipt, _) in enumerate(self.refs)}
        self.receipts: dict[int, Receipt] = {}  # by place
        self._interrupted = False
        self._asked: dict[Member, Any] = {}  # for news, under way

    @property
    def waits(self) -> bool:
        """Whether an answer is still to come."""
        return bool(self.left)

    def look(self) -> None:
        """Wait a moment for answers. Raises the first error, and a death among all of the run's workers."""
        import ray

        ready, _ = ray.wait([*self.left, *self.lives], num_returns=1, timeout=POLL_SECONDS, fetch_local=False)
        for ref in ready:
            if ref in self.lives:
                self._value(ref, self.lives[ref], self.calls[0].method)
            elif ref in self.left:
                place = self.left.pop(ref)
                self.receipts[place] = self._value(ref, self.members[place], self.calls[place].method)
        self._listen()
        self.pulse.feel([self.members[place] for place in self.left.values()], self.calls[0].method)

    def _listen(self) -> None:
        """Pass on what the workers that are still at it have to tell, and ask again."""
        import ray

        if self.told is None:
            return
        for member in {self.members[place] for place in self.left.values()}:
            ref = self._asked.get(member)
            if ref is not None and not ray.wait([ref], timeout=0)[0]:
                continue
            if ref is not None:
                for row, text in self._value(ref, member, self.calls[0].method):
                    self.told(row, text)
            self._asked[member] = member.handle.news.options(concurrency_group="control").remote()

    def death(self, seconds: float) -> WorkerError | None:
        """The death of a worker that shows within ``seconds``: others may fail of it before it is known."""
        import ray

        for ref in ray.wait(list(self.lives), num_returns=1, timeout=seconds, fetch_local=False)[0]:
            try:
                self._value(ref, self.lives[ref], self.calls[0].method)
            except WorkerError as error:
                return error
        return None

    def _value(self, ref: Any, member: Member, method: str) -> Any:
        return value_of(ref, member, method, self.logs)

    def interrupt(self) -> None:
        """Let every call that is still under way raise Stopped as soon as it looks. Once is enough."""
        if not self._interrupted:
            self._interrupted = True
            for member in {self.members[place] for place in self.left.values()}:
                with suppress(Exception):
                    member.handle.interrupt.options(concurrency_group="control").remote(self.number)

    def comes_back(self, seconds: float) -> bool:
        """Whether all calls end within ``seconds``, well or not."""
        import ray

        left = list(self.left)
        return not left or len(ray.wait(left, num_returns=len(left), timeout=seconds, fetch_local=False)[0]) == len(left)

    def answers(self) -> list[Answer]:
        """All of them, in order."""
        return [self._answer(place, call) for place, call in enumerate(self.calls)]

    def _answer(self, place: int, call: Call) -> Answer:
        receipt, carried = self.receipts[place], call.carry.ref[1] if call.carry else 0
        there = len(self.args[place]) + carried
        if call.hold:
            return Answer(Held((self.refs[place][1], receipt.bytes)), there, 0, receipt.account)
        value = pickle.loads(self._value(self.refs[place][1], self.members[place], call.method))
        return Answer(value, there, receipt.bytes, receipt.account)

    def _packed(self) -> list[bytes]:
        """The arguments of each call; those of one copy's ranks are pickled once."""
        made = {id(call.args): call.args for call in self.calls}
        blobs = {key: pickled(args) for key, args in made.items()}
        return [blobs[id(call.args)] for call in self.calls]

    def _send(self, call: Call, member: Member, args: bytes) -> tuple[Any, Any]:
        carried = call.carry.ref[0] if call.carry else None
        sent = member.handle.call.options(num_returns=2).remote(self.number, call.method, args, carried, telling=self.told is not None)
        return sent[0], sent[1]
