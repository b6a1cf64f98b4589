"""The load of all of a run's devices: a thread here samples those of this machine, and another fetches what other nodes sample."""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from workbench.errors import StorageError
from workbench.events import EventLog
from workbench.records import Load
from workbench.runtime.outpost import Outpost
from workbench.runtime.seat import Seat
from workbench.telemetry.sampler import SLOT, Sampler

FETCH_SECONDS = 0.5  # between two questions to the other nodes
PATIENCE = 0.25  # for the answer of one of them, before the next is asked
END_SECONDS = 2.0  # for the thread that asks

Outposts = Callable[[float], Sequence[Outpost]]  # starts samplers on other nodes, so many times a second


class Samplers:
    """Emits ``load`` events into ``log`` from ``start`` to ``stop``, which may follow each other again and again.

    ``seats``: all of the run's; those of devices that an outpost samples are left to it.
    """

    def __init__(self, seats: Sequence[Seat], outposts: Outposts, log: EventLog, hz: float) -> None:
        self.seats, self.hz = tuple(seats), hz
        self.cpu_seconds = 0.0  # that the thread on this machine has used, in all
        self._outposts, self._log = outposts, log
        self._here: Sampler | None = None
        self._far: tuple[Outpost, ...] = ()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._problems: deque[str] = deque()  # that nobody has asked for yet
        self._failed = False

    def start(self) -> None:
        """Begin. Where it has begun, or something has gone wrong with it, nothing is done."""
        if self._here is not None or self._failed:
            return
        self._far = tuple(self._outposts(self.hz))
        there = {device for outpost in self._far for device in outpost.devices}
        mine = [seat for seat in self.seats if seat.device not in there]
        self._here = Sampler(devices_of(mine), mine, self._log.emit, hz=self.hz).start()
        if self._far:
            self._over.clear()
            self._thread = threading.Thread(target=self._follow, name="workbench-load-far", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End it, here and on the other nodes. Twice is harmless."""
        here, self._here = self._here, None
        self._over.set()
        if here is not None:
            here.stop()
            self.cpu_seconds += here.cpu_seconds
            self._note(here.error, "on this machine")
        if self._thread is not None:
            self._thread.join(END_SECONDS)
        far, self._far, self._thread = self._far, (), None
        for outpost in far:
            outpost.end()

    def problems(self) -> list[str]:
        """What has gone wrong since this was asked last, each once."""
        if self._here is not None:
            self._note(self._here.error, "on this machine")
        return [self._problems.popleft() for _ in range(len(self._problems))]

    def _note(self, error: Exception | None, where: str) -> None:
        if error is not None and not self._failed:
            self._failed = True
            self._problems.append(f"the load of the devices {where} is sampled no more: {type(error).__name__}: {error}")

    def _follow(self) -> None:
        """Ask every outpost, a few times a second; one that fails is asked no more."""
        left = list(self._far)
        while left and not self._over.wait(FETCH_SECONDS):
            for outpost in tuple(left):
                try:
                    self._fetch(outpost)
                except StorageError:  # the stream keeps what it could not write, and the run says so itself
                    continue
                except Exception as error:  # a run goes on without its load
                    left.remove(outpost)
                    reason = str(error).strip().splitlines() or [type(error).__name__]
                    self._problems.append(f"the load of node {outpost.node} is sampled no more: {reason[0]}")

    def _fetch(self, outpost: Outpost) -> None:
        known = outpost.clock is not None
        samples: Sequence[tuple[float, Load]] = outpost.fetch(PATIENCE)
        if outpost.clock is not None and not known:
            self._log.emit(outpost.clock)
        for mono, load in samples:
            self._log.emit_sample(load, outpost.node, min(mono, time.monotonic()))


def devices_of(seats: Sequence[Seat]) -> dict[str, str | None]:
    """Device -> the UUID of the GPU, or that it is a CPU slot."""
    return {seat.device: seat.uuid or SLOT for seat in seats}
