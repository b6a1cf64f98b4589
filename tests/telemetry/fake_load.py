"""NVML as the sampler asks it, on GPUs of our own: names, structures and errors of pynvml, which can't run without a driver."""

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pynvml

GIB = 2**30


@dataclass
class Chip:
    """A GPU and a handle to it. ``lacks``: function -> the error code that it answers with."""

    uuid: str
    gpu: int = 87
    used_gib: float = 70.0
    total_gib: float = 140.0
    gpm: bool = True
    sm_percent: float = 55.5
    pcie_mib: tuple[float, float] = (1000.0, 3000.0)  # from and to the GPU, per second
    links_kib: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # sent and received; the last one stays
    milliwatts: int = 612_345
    reasons: int = 0
    memory: dict[int, int | None] = field(default_factory=dict)  # pid -> bytes
    use: list[tuple[int, int, int]] = field(default_factory=list)  # pid, when in microseconds, percent
    is_slice: bool = False
    lacks: dict[str, int] = field(default_factory=dict)


def address(sample: Any) -> int | None:
    """Where a sample of GPM lies."""
    return ctypes.cast(sample, ctypes.c_void_p).value


class FakeNVML:
    """Also counts how often it is open, and its samples of GPM."""

    NVMLError = pynvml.NVMLError
    NVML_GPM_METRICS_GET_VERSION = pynvml.NVML_GPM_METRICS_GET_VERSION
    c_nvmlGpmMetricsGet_t = pynvml.c_nvmlGpmMetricsGet_t  # noqa: N815 - pynvml's name

    def __init__(self, *chips: Chip, refused: int = 0) -> None:
        self.chips = {chip.uuid: chip for chip in chips}
        self.refused = refused
        self.open = self.samples = 0
        self.taken: list[tuple[int, Chip]] = []  # samples of GPM: where they lie, and of which GPU
        self.addresses = itertools.count(4096, 64)
        self.since: list[int] = []  # of the questions for the use by process

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name not in ANSWERS:
            raise AttributeError(name)

        def call(*args: Any) -> Any:
            assert self.open or name == "nvmlInit", f"{name} while NVML is shut"
            if args and isinstance(args[0], Chip) and name in args[0].lacks:
                raise pynvml.NVMLError(args[0].lacks[name])
            return ANSWERS[name](self, *args)

        return call

    def init(self) -> None:
        if self.refused:
            raise pynvml.NVMLError(self.refused)
        self.open += 1

    def shut(self) -> None:
        self.open -= 1

    def handle(self, uuid: str) -> Chip:
        if uuid not in self.chips:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return self.chips[uuid]

    def alloc(self) -> Any:
        self.samples += 1
        return ctypes.cast(next(self.addresses), pynvml.c_nvmlGpmSample_t)

    def free(self, sample: Any) -> None:
        self.samples -= 1

    def take(self, chip: Chip, sample: Any) -> Any:
        self.taken.append((address(sample), chip))
        return sample

    def metrics(self, asked: Any) -> Any:
        assert (asked.version, asked.numMetrics) == (1, 3)
        chip = self.taken[-1][1]
        assert [where for where, of in self.taken if of is chip][-2:] == [address(asked.sample1), address(asked.sample2)]  # the older first
        values = {2: chip.sm_percent, 20: chip.pcie_mib[0], 21: chip.pcie_mib[1]}
        for place in range(asked.numMetrics):
            asked.metrics[place].value = values[asked.metrics[place].metricId]
        return asked

    def fields(self, chip: Chip, wanted: list[tuple[int, int]]) -> Any:
        assert wanted == [(138, 0xFFFFFFFF), (139, 0xFFFFFFFF)]
        counters = chip.links_kib.pop(0) if len(chip.links_kib) > 1 else chip.links_kib[0]
        values = (pynvml.c_nvmlFieldValue_t * 2)()
        for value, counter in zip(values, counters, strict=True):
            value.value.ullVal = counter
        return values

    def processes(self, chip: Chip, since: int) -> list[SimpleNamespace]:
        self.since.append(since)
        fresh = [SimpleNamespace(pid=pid, timeStamp=when, smUtil=percent) for pid, when, percent in chip.use if when > since]
        if not fresh:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return fresh


ANSWERS: dict[str, Callable[..., Any]] = {
    "nvmlInit": FakeNVML.init,
    "nvmlShutdown": FakeNVML.shut,
    "nvmlDeviceGetHandleByUUID": FakeNVML.handle,
    "nvmlDeviceIsMigDeviceHandle": lambda fake, chip: int(chip.is_slice),
    "nvmlGpmQueryDeviceSupport": lambda fake, chip: SimpleNamespace(isSupportedDevice=int(chip.gpm)),
    "nvmlGpmSampleAlloc": FakeNVML.alloc,
    "nvmlGpmSampleFree": FakeNVML.free,
    "nvmlGpmSampleGet": FakeNVML.take,
    "nvmlGpmMetricsGet": FakeNVML.metrics,
    "nvmlDeviceGetFieldValues": FakeNVML.fields,
    "nvmlDeviceGetUtilizationRates": lambda fake, chip: SimpleNamespace(gpu=chip.gpu, memory=0),
    "nvmlDeviceGetMemoryInfo": lambda fake, chip: SimpleNamespace(used=int(chip.used_gib * GIB), total=int(chip.total_gib * GIB)),
    "nvmlDeviceGetPowerUsage": lambda fake, chip: chip.milliwatts,
    "nvmlDeviceGetTemperature": lambda fake, chip, sensor: 64,
    "nvmlDeviceGetClockInfo": lambda fake, chip, kind: {1: 1980, 2: 3201}[kind],
    "nvmlDeviceGetCurrentClocksEventReasons": lambda fake, chip: chip.reasons,
    "nvmlDeviceGetPcieThroughput": lambda fake, chip, counter: {0: 2_000_000, 1: 4_000_000}[counter],  # KB (1024) per second
    "nvmlDeviceGetComputeRunningProcesses": lambda fake, chip: [
        SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in chip.memory.items()
    ],
    "nvmlDeviceGetProcessUtilization": FakeNVML.processes,
}
