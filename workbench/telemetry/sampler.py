"""The load of one node's devices, a few times a second, by a thread of its own. It never touches CUDA.

>>> sampler = Sampler({"local:0": "GPU-5f0e..."}, seats, sink=log.emit)
>>> sampler.start()
>>> sampler.close()
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from workbench.errors import ConfigError, StateError, StorageError
from workbench.records import Load
from workbench.telemetry.cpu_load import Slots
from workbench.telemetry.gpu_load import Card
from workbench.telemetry.reading import Reading, load_of, nothing
from workbench.telemetry.who import Seated, Who
from workbench.topology.detection.nvml import NVML, Missing, opened

LEAST_HZ, MOST_HZ = 0.001, 4.0
SLOT = "a CPU slot"  # in the place of a UUID
Sink = Callable[[Load], object]


class Probe:
    """Reads all devices of a node once per call; for one thread.

    ``devices``: name in the map -> UUID of the GPU, ``SLOT`` for a CPU slot (as is every "cpu:0"), None where its UUID is not known.
    """

    def __init__(self, devices: Mapping[str, str | None], seats: Sequence[Seated], nvml: NVML | Missing) -> None:
        self._devices = devices
        self._who = Who(seats)
        self._slots = Slots([seat for seat in seats if self._is_slot(seat.device)])
        gpus = {name: uuid for name, uuid in devices.items() if not self._is_slot(name)}
        self._without = nothing(nvml.reason) if isinstance(nvml, Missing) else None
        self._cards = {} if isinstance(nvml, Missing) else {name: Card(nvml, name, uuid) for name, uuid in gpus.items()}
        self._last = time.monotonic()

    def read(self) -> Load:
        """The load since the last call."""
        now = time.monotonic()
        slots = self._slots.read()
        self._who.begin()
        readings = {name: self._one(name, slots) for name in self._devices}
        self._who.end()
        seconds, self._last = now - self._last, now
        return load_of(readings, seconds)

    def _one(self, name: str, slots: Mapping[str, Reading]) -> Reading:
        if self._is_slot(name):
            return slots.get(name) or nothing("n/a: no role is on it")
        return self._without or self._cards[name].read(self._who)

    def _is_slot(self, name: str) -> bool:
        return name.startswith("cpu:") or self._devices.get(name) == SLOT

    def close(self) -> None:
        """Give back what NVML holds for it."""
        for card in self._cards.values():
            card.close()


class Sampler:
    """Calls ``sink`` with a ``Load`` of ``devices`` (as of ``Probe``) ``hz`` times a second, up to 4, in a daemon thread.

    ``seats``: who works in which process; make another sampler when they change. A sink that can't write (StorageError) is called
    again with the next sample; whatever else goes wrong ends the thread, and stands in ``error``. ``library``: with the names of pynvml.
    """

    def __init__(
        self, devices: Mapping[str, str | None], seats: Sequence[Seated], sink: Sink, *, hz: float = 2.0, library: Any = None
    ) -> None:
        if not LEAST_HZ <= hz <= MOST_HZ:
            raise ConfigError(
                f"Sampler(hz={hz})", f"it samples {LEAST_HZ:g} to {MOST_HZ:g} times a second", "give 1 to 4, the default is 2"
            )
        self._devices, self._seats, self._sink, self._library = dict(devices), tuple(seats), sink, library
        self.period = 1 / hz
        self.samples = 0
        self.cpu_seconds = 0.0  # that its thread has used
        self.error: Exception | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Self:
        """Begin. Raises StateError where it runs already."""
        if self._thread is not None and self._thread.is_alive():
            raise StateError("Sampler.start", "it samples already", "stop() it first")
        self._stop.clear()
        self.error = None
        self._thread = threading.Thread(target=self._work, name="workbench-load", daemon=True)
        self._thread.start()
        return self

    def stop(self) -> None:
        """End it, and wait for the sample in progress. Twice is harmless; ``start`` may follow."""
        self._stop.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)  # a driver that hangs must not hold up the end of a run

    close = stop

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _work(self) -> None:
        try:
            with opened(self._library) as nvml:
                probe = Probe(self._devices, self._seats, nvml)
                try:
                    self._follow(probe)
                finally:
                    probe.close()
        except Exception as error:  # a run goes on without its load
            self.error = error

    def _follow(self, probe: Probe) -> None:
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            self._tell(probe.read())
            due = max(due + self.period, time.monotonic())
            self.cpu_seconds = time.thread_time()

    def _tell(self, load: Load) -> None:
        self.samples += 1
        try:
            self._sink(load)
        except StorageError:  # the stream keeps what it could not write, and the run says so itself
            return
