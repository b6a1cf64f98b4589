"""The load of one GPU, asked of NVML. No question ends a program, and none touches CUDA.

Sources: nvml.h of CUDA 13 for units and meanings. ``nvmlDeviceGetUtilizationRates`` says in which share of the time any kernel ran, however
small: it is "busy" here, never the use of multiprocessors, which GPM counts from Hopper on.
"""

import time
from typing import Any

from workbench.telemetry.reading import Reading, Shares, nothing
from workbench.telemetry.who import Who
from workbench.topology.detection.nvml import NOT_FOUND, NVML, Missing

GIB, MIB, KIB, GB = 2**30, 2**20, 2**10, 1e9
FIRST = "n/a: the first sample"
ALL_LINKS = 0xFFFFFFFF  # scope of a field: the sum over a GPU's links
NVLINK_TX_KIB, NVLINK_RX_KIB = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, counters
GPM_SM, GPM_PCIE_TX, GPM_PCIE_RX = 2, 20, 21  # percent; MiB/s from and to the GPU
PCIE_TX, PCIE_RX, SM_CLOCK, MEMORY_CLOCK = 0, 1, 1, 2
SLOWED = {4: "power cap", 8: "hardware slowdown", 32: "heat", 64: "heat (hardware)", 128: "power brake"}  # nvmlClocksEventReason...


class Answers:
    """Questions about one GPU at one moment, and the reasons of those without an answer."""

    def __init__(self, nvml: NVML, handle: Any) -> None:
        self.nvml, self.handle = nvml, handle
        self.missing: dict[str, str] = {}

    def ask(self, names: str, function: str, *args: Any, scale: float | None = None) -> Any:
        """The answer, times ``scale`` where one is given; None, with the reason kept for all ``names``."""
        answer = self.nvml.ask(function, self.handle, *args)
        if isinstance(answer, Missing):
            self.lacks(names, answer.reason)
            return None
        return answer if scale is None else answer * scale

    def lacks(self, names: str, reason: str) -> None:
        """Keep ``reason`` for every one of ``names``."""
        self.missing.update(dict.fromkeys(names.split(), reason))


class GPM:
    """NVML's counters of a GPU's inside, which are read as the difference of two samples. From Hopper on."""

    def __init__(self, nvml: NVML, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._samples: list[Any] = []  # the one before, and the one to be written next
        self._taken = False
        support = nvml.ask("nvmlGpmQueryDeviceSupport", handle)
        self.reason = support.reason if isinstance(support, Missing) else "" if support.isSupportedDevice else "n/a: this GPU has no GPM"
        while not self.reason and len(self._samples) < 2:
            sample = nvml.ask("nvmlGpmSampleAlloc")
            if isinstance(sample, Missing):
                self.reason = sample.reason
            else:
                self._samples.append(sample)

    def read(self) -> tuple[float, float, float] | Missing:
        """SMs at work in percent, PCIe from and to the GPU in MiB/s, since the last call."""
        if self.reason:
            return Missing(self.reason)
        self._samples.reverse()
        taken = self._nvml.ask("nvmlGpmSampleGet", self._handle, self._samples[1])
        before, self._taken = self._taken, not isinstance(taken, Missing)
        if isinstance(taken, Missing):
            return taken
        return self._difference() if before else Missing(FIRST)

    def _difference(self) -> tuple[float, float, float] | Missing:
        asked = self._nvml.library.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = self._nvml.library.NVML_GPM_METRICS_GET_VERSION, 3
        asked.sample1, asked.sample2 = self._samples
        for place, metric in enumerate((GPM_SM, GPM_PCIE_TX, GPM_PCIE_RX)):
            asked.metrics[place].metricId = metric
        told = self._nvml.ask("nvmlGpmMetricsGet", asked)
        if isinstance(told, Missing):
            return told
        found = asked.metrics[:3]
        failed = next((one.nvmlReturn for one in found if one.nvmlReturn), 0)
        return Missing(f"n/a: GPM error {failed}", failed) if failed else (found[0].value, found[1].value, found[2].value)

    def close(self) -> None:
        """Give the samples back."""
        while self._samples:
            self._nvml.ask("nvmlGpmSampleFree", self._samples.pop())


class Card:
    """One GPU or MIG slice, which remembers the counters of its last reading."""

    def __init__(self, nvml: NVML, device: str, uuid: str | None) -> None:
        self._nvml, self._device = nvml, device
        self._handle = nvml.ask("nvmlDeviceGetHandleByUUID", uuid) if uuid else Missing("n/a: its UUID is not known")
        self._mig = not isinstance(self._handle, Missing) and self._is_slice()
        self._gpm = None if isinstance(self._handle, Missing) or self._mig else GPM(nvml, self._handle)
        self._links: tuple[float, int, int] | None = None  # when, KiB sent, KiB received
        self._asked_us = 0  # of the driver's clock, when the use by process was last told

    def _is_slice(self) -> bool:
        told = self._nvml.ask("nvmlDeviceIsMigDeviceHandle", self._handle)
        return not isinstance(told, Missing) and bool(int(getattr(told, "value", told)))

    def read(self, who: Who) -> Reading:
        """Its load now. On GPUs without GPM the question for PCIe takes the driver 20 ms for each direction."""
        if isinstance(self._handle, Missing):
            return nothing(self._handle.reason)
        answers = Answers(self._nvml, self._handle)
        sm, pcie_tx, pcie_rx = self._inside(answers)
        nvlink_tx, nvlink_rx = self._nvlink(answers)
        use = answers.ask("busy", "nvmlDeviceGetUtilizationRates")
        memory = answers.ask("memory_gib total_gib", "nvmlDeviceGetMemoryInfo")
        return Reading(
            busy=None if use is None else use.gpu / 100,
            sm=sm,
            memory_gib=None if memory is None else memory.used / GIB,
            total_gib=None if memory is None else memory.total / GIB,
            pcie_rx_gb_s=pcie_rx,
            pcie_tx_gb_s=pcie_tx,
            nvlink_rx_gb_s=nvlink_rx,
            nvlink_tx_gb_s=nvlink_tx,
            watts=answers.ask("watts", "nvmlDeviceGetPowerUsage", scale=1e-3),
            celsius=answers.ask("celsius", "nvmlDeviceGetTemperature", 0),
            sm_mhz=answers.ask("sm_mhz", "nvmlDeviceGetClockInfo", SM_CLOCK),
            memory_mhz=answers.ask("memory_mhz", "nvmlDeviceGetClockInfo", MEMORY_CLOCK),
            throttled=self._throttled(answers),
            role_memory_gib=self._memory_by_role(answers, who),
            role_busy=self._busy_by_role(answers, who),
            missing=answers.missing,
        )

    def _inside(self, answers: Answers) -> tuple[float | None, float | None, float | None]:
        """Share of SMs at work; GB/s over PCIe from and to the GPU, by GPM or else by the driver's own count."""
        told = Missing("n/a: MIG") if self._gpm is None else self._gpm.read()
        if not isinstance(told, Missing):
            return told[0] / 100, told[1] * MIB / GB, told[2] * MIB / GB
        answers.lacks("sm", told.reason)
        if told.reason == FIRST:
            answers.lacks("pcie_tx_gb_s pcie_rx_gb_s", FIRST)
            return None, None, None
        pcie = [
            answers.ask(name, "nvmlDeviceGetPcieThroughput", counter, scale=KIB / GB)
            for name, counter in (("pcie_tx_gb_s", PCIE_TX), ("pcie_rx_gb_s", PCIE_RX))
        ]
        return None, pcie[0], pcie[1]

    def _nvlink(self, answers: Answers) -> tuple[float | None, float | None]:
        """GB/s sent and received, by the difference of two counters."""
        names = "nvlink_tx_gb_s nvlink_rx_gb_s"
        told = self._nvml.ask("nvmlDeviceGetFieldValues", self._handle, [(NVLINK_TX_KIB, ALL_LINKS), (NVLINK_RX_KIB, ALL_LINKS)])
        failed = 0 if isinstance(told, Missing) else next((field.nvmlReturn for field in told if field.nvmlReturn), 0)
        if isinstance(told, Missing) or failed:
            answers.lacks(names, told.reason if isinstance(told, Missing) else f"n/a: {self._nvml.library.NVMLError(failed)}")
            self._links = None
            return None, None
        before, self._links = self._links, (time.monotonic(), told[0].value.ullVal, told[1].value.ullVal)
        if before is None or self._links[1] < before[1] or self._links[2] < before[2]:  # counters begin anew with the driver
            answers.lacks(names, FIRST)
            return None, None
        seconds = max(self._links[0] - before[0], 1e-6)
        return (self._links[1] - before[1]) * KIB / GB / seconds, (self._links[2] - before[2]) * KIB / GB / seconds

    def _throttled(self, answers: Answers) -> str | None:
        """What slows the clocks, without being idle, which does too. (An old driver's library calls it otherwise.)"""
        new = hasattr(self._nvml.library, "nvmlDeviceGetCurrentClocksEventReasons")
        bits = answers.ask("throttled", f"nvmlDeviceGetCurrentClocks{'Event' if new else 'Throttle'}Reasons")
        return None if bits is None else ", ".join(name for bit, name in SLOWED.items() if bits & bit)

    def _memory_by_role(self, answers: Answers, who: Who) -> Shares | None:
        """Memory of the processes on the GPU. (``usedGpuMemory`` is None on Windows and in some containers.)"""
        told = answers.ask("role_memory_gib", "nvmlDeviceGetComputeRunningProcesses")
        if told is None:
            return None
        if any(process.usedGpuMemory is None for process in told):
            answers.lacks("role_memory_gib", "n/a: the driver does not say it of processes")
            return None
        return self._by_role(answers, "role_memory_gib", who, [(process.pid, process.usedGpuMemory / GIB) for process in told])

    def _busy_by_role(self, answers: Answers, who: Who) -> Shares | None:
        """How long kernels of each process ran; its latest value where the driver has several of it since the last call."""
        told = self._nvml.ask("nvmlDeviceGetProcessUtilization", self._handle, self._asked_us)
        if isinstance(told, Missing) and told.code == NOT_FOUND:  # no process ran
            return {}
        if isinstance(told, Missing):
            answers.lacks("role_busy", told.reason)
            return None
        self._asked_us = max((sample.timeStamp for sample in told), default=self._asked_us)
        latest = {sample.pid: sample.smUtil / 100 for sample in sorted(told, key=lambda sample: sample.timeStamp)}
        return self._by_role(answers, "role_busy", who, list(latest.items()))

    def _by_role(self, answers: Answers, name: str, who: Who, values: list[tuple[int, float]]) -> Shares | None:
        """Sums of what belongs to the same roles. In a container NVML gives the host's process ids, which no worker knows."""
        found: Shares = {}
        for pid, value in values:
            roles = who.roles_of(pid)
            found[roles] = found.get(roles, 0.0) + value
        if not who.seated or set(found) != {""}:
            return found
        alone = who.foreign([pid for pid, _ in values], self._device)
        if alone:
            return {alone: found[""]}
        answers.lacks(name, "n/a: none of NVML's process ids is a worker's (in a container they are the host's)")
        return None

    def close(self) -> None:
        """Give back what NVML holds for it."""
        if self._gpm is not None:
            self._gpm.close()
