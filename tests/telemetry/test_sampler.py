"""The sampler: every value of a GPU by hand (against a fake pynvml: there is no driver here), CPU slots against real processes."""

import csv
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import pynvml
import pytest

from tests.telemetry.fake_load import GIB, Chip, FakeNVML
from workbench.errors import ConfigError, StateError, StorageError
from workbench.events import EventLog, read_events
from workbench.records import Load
from workbench.telemetry.csv_log import HEADER, write_csv
from workbench.telemetry.reading import VALUES, why
from workbench.telemetry.sampler import Probe, Sampler
from workbench.topology.detection.nvml import opened


@dataclass(frozen=True)
class Place:
    """A seat."""

    role: str
    device: str
    pid: int


ME = os.getpid()
SEATS = (Place("actor", "local:0", ME), Place("rollout", "local:0", ME))


def loads(fake: FakeNVML, devices: dict[str, str | None], seats: tuple[Place, ...] = SEATS, count: int = 2) -> list[Load]:
    """What a probe reads, one after the other."""
    with opened(fake) as nvml:
        probe = Probe(devices, seats, nvml)
        found = [probe.read() for _ in range(count)]
        probe.close()
    return found


def last(chip: Chip, seats: tuple[Place, ...] = SEATS) -> dict[str, Any]:
    """Field -> its value for one GPU in a second sample."""
    load = loads(FakeNVML(chip), {"local:0": chip.uuid}, seats)[-1]
    return {name: getattr(load, name)[0] for name in VALUES} | {"why": lambda name: why(load, name, "local:0")}


# ---------------------------------------------------------------- GPUs


def test_every_value_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    chip = Chip("GPU-a", links_kib=[(1000, 5000), (1000 + 2**20, 5000 + 2**21)], reasons=1 | 4 | 32)
    chip.memory, chip.use = {ME: 30 * GIB, 1: GIB}, [(ME, 10, 20), (ME, 20, 80), (1, 15, 5)]
    clock = iter([0.0, 10.0, 10.0])  # made, and the first sample; then half a second
    monkeypatch.setattr(time, "monotonic", lambda: next(clock, 10.5))
    load = loads(FakeNVML(chip), {"local:0": "GPU-a"}, SEATS)[-1]
    assert (load.devices, load.busy, load.sm) == (["local:0"], [0.87], [0.555])
    assert (load.memory_gib, load.total_gib) == ([70.0], [140.0])
    assert (load.pcie_tx_gb_s, load.pcie_rx_gb_s) == ([1.049], [3.146])  # 1000 and 3000 MiB/s
    assert (load.nvlink_tx_gb_s, load.nvlink_rx_gb_s) == ([2.147], [4.295])  # 2^20 and 2^21 KiB in half a second
    assert (load.watts, load.celsius, load.sm_mhz, load.memory_mhz) == ([612.345], [64], [1980], [3201])
    assert load.throttled == ["power cap, heat"]  # to be idle is no throttling
    assert load.role_memory_gib == [{"actor, rollout": 30.0, "": 1.0}]
    assert load.role_busy == [{}]  # told once, in the first sample
    assert load.missing == {}


def test_the_use_by_process_is_asked_since_the_last_answer() -> None:
    chip = Chip("GPU-a", use=[(ME, 10, 20), (ME, 20, 80)])
    fake = FakeNVML(chip)
    first, second = loads(fake, {"local:0": "GPU-a"})
    assert first.role_busy == [{"actor, rollout": 0.8}]  # the latest
    assert fake.since == [0, 20]
    assert second.role_busy == [{}]


def test_rates_need_two_samples() -> None:
    load = loads(FakeNVML(Chip("GPU-a")), {"local:0": "GPU-a"}, count=1)[0]
    assert (load.sm, load.pcie_rx_gb_s, load.nvlink_tx_gb_s) == ([None], [None], [None])
    assert load.missing == {"n/a: the first sample": ["sm", "pcie_rx_gb_s", "pcie_tx_gb_s", "nvlink_rx_gb_s", "nvlink_tx_gb_s"]}


def test_without_gpm_sm_is_not_known_and_never_the_utilization() -> None:
    found = last(Chip("GPU-a", gpm=False))
    assert (found["busy"], found["sm"]) == (0.87, None)
    assert found["why"]("sm") == "n/a: this GPU has no GPM"
    assert (found["pcie_tx_gb_s"], found["pcie_rx_gb_s"]) == (2.048, 4.096)


def test_a_mig_slice_says_that_it_is_one() -> None:
    refuses = ("UtilizationRates", "PcieThroughput", "PowerUsage", "ProcessUtilization")
    chip = Chip("MIG-a", is_slice=True, lacks={f"nvmlDeviceGet{name}": pynvml.NVML_ERROR_NOT_SUPPORTED for name in refuses})
    found = last(chip)
    for name in ("busy", "sm", "pcie_rx_gb_s", "watts", "role_busy"):
        assert (found[name], found["why"](name)) == (None, "n/a: MIG")
    assert (found["memory_gib"], found["why"]("memory_gib")) == (70.0, "")


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
def test_whatever_nvml_refuses_the_rest_is_told(code: int) -> None:
    fake = FakeNVML()
    for name in [name for name in dir(pynvml) if name.startswith(("nvmlDevice", "nvmlGpm"))]:
        chip = Chip("GPU-a", lacks={name: code})
        fake.chips = {"GPU-a": chip}
        for load in loads(fake, {"local:0": "GPU-a"}):
            unknown = [value for value in VALUES if getattr(load, value)[0] is None]
            assert all(why(load, value, "local:0").startswith("n/a: ") for value in unknown)
    assert (fake.open, fake.samples) == (0, 0)  # all given back


def test_a_lost_gpu_beside_a_sound_one() -> None:
    lost = Chip("GPU-b", lacks={"nvmlDeviceGetUtilizationRates": pynvml.NVML_ERROR_GPU_IS_LOST})
    load = loads(FakeNVML(Chip("GPU-a"), lost), {"local:0": "GPU-a", "local:1": "GPU-b", "local:2": None, "local:3": "GPU-x"})[-1]
    assert load.busy == [0.87, None, None, None]
    assert why(load, "busy", "local:1") == "n/a: GPU is lost"
    assert why(load, "watts", "local:1") == ""
    assert why(load, "watts", "local:2") == "n/a: its UUID is not known"
    assert why(load, "watts", "local:3") == "n/a: Not Found"


def test_without_a_driver_every_gpu_says_so() -> None:
    load = loads(FakeNVML(refused=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND), {"local:0": "GPU-a"})[-1]
    assert load.missing == {"n/a: NVML Shared Library Not Found": list(VALUES)}


HOSTS = 2**30  # a process id that none has here, as a container sees its host's


def test_process_ids_of_a_host_are_the_only_workers_or_nobodys() -> None:
    chip = Chip("GPU-a", memory={HOSTS: GIB, HOSTS + 1: 2 * GIB}, use=[(HOSTS, 10, 70)])
    (load,) = loads(FakeNVML(chip), {"local:0": "GPU-a"}, count=1)
    assert load.role_memory_gib == [{"actor, rollout": 3.0}]
    assert load.role_busy == [{"actor, rollout": 0.7}]
    two = (*SEATS, Place("critic", "local:0", 1))
    found = last(chip, two)
    assert found["role_memory_gib"] is None  # whose is which can't be told
    assert found["why"]("role_memory_gib").startswith("n/a: none of NVML's process ids is a worker's")
    assert last(Chip("GPU-a", memory={1: GIB}))["role_memory_gib"] is None  # that one is here, and somebody else's
    assert last(Chip("GPU-a"))["role_memory_gib"] == {}  # no process at all
    assert last(Chip("GPU-a", memory={1: GIB}), ())["role_memory_gib"] == {"": 1.0}  # no worker at all


@contextmanager
def child(program: str) -> Iterator[subprocess.Popen[str]]:
    """A Python that says a line when it is ready, and ends with the block."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


WAITS = "import sys; print(flush=True); sys.stdin.read()"
BURNS = "print(flush=True)\nwhile True: pass"
HOLDS = "import time; block = b'x' * (200 * 2**20); print(flush=True); time.sleep(60)"
PARENT = f"import subprocess, sys\nsubprocess.Popen([sys.executable, '-c', {HOLDS!r}]).wait()"


def test_a_process_that_an_engine_started_is_its_workers() -> None:
    with child(WAITS) as engine:
        chip = Chip("GPU-a", memory={engine.pid: 3 * GIB})
        assert last(chip)["role_memory_gib"] == {"actor, rollout": 3.0}


# ---------------------------------------------------------------- CPU slots


def test_a_slot_is_as_busy_as_its_processes() -> None:
    with child(BURNS) as burns, child(WAITS) as waits, opened(FakeNVML()) as nvml:
        seats = (Place("actor", "cpu:0", burns.pid), Place("rollout", "cpu:1", waits.pid), Place("reward", "cpu:1", waits.pid))
        probe = Probe({"cpu:0": None, "cpu:1": None, "cpu:2": None}, seats, nvml)
        first = probe.read()
        time.sleep(1.0)
        load = probe.read()
    assert first.busy == [None, None, None]
    assert why(first, "busy", "cpu:0") == "n/a: the first sample"
    cpus = len(os.sched_getaffinity(0))
    assert load.role_busy[0] is not None
    assert load.busy[0] == load.role_busy[0]["actor"]
    assert 0.005 < load.busy[0] <= 1.05 / cpus  # one CPU at most; less where others want it too
    assert load.busy[1] == 0.0
    assert set(load.role_busy[1] or ()) == {"rollout, reward"}
    assert (load.busy[2], why(load, "busy", "cpu:2")) == (None, "n/a: no role is on it")
    assert load.missing["n/a: a CPU slot"][:2] == ["sm of cpu:0", "sm of cpu:1"]
    assert (load.total_gib[0] or 0) > 1


def test_children_are_counted_and_the_dead_are_left_out() -> None:
    with child(PARENT) as parent, opened(FakeNVML()) as nvml:
        probe = Probe({"cpu:0": None}, (Place("actor", "cpu:0", parent.pid),), nvml)
        load = probe.read()
        assert (load.memory_gib[0] or 0) > 0.19  # 200 MiB of the grandchild
        (grandchild,) = psutil.Process(parent.pid).children()
        parent.kill()
        parent.wait()
        assert (probe.read().memory_gib[0] or 0) > 0.19  # the grandchild lives on, and was known
        grandchild.kill()
        psutil.wait_procs([grandchild], timeout=10)
        assert probe.read().memory_gib == [0.0]


def test_where_no_slot_has_a_role_processes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "process_iter", lambda names: pytest.fail("it reads every process of the machine"))
    assert loads(FakeNVML(Chip("GPU-a")), {"local:0": "GPU-a"})[-1].busy == [0.87]


# ---------------------------------------------------------------- the thread


def test_it_samples_at_its_pace_and_stops() -> None:
    found: list[Load] = []
    fake = FakeNVML(Chip("GPU-a"))
    with Sampler({"local:0": "GPU-a", "cpu:0": None}, [Place("reward", "cpu:0", ME)], found.append, hz=4, library=fake) as sampler:
        with pytest.raises(StateError, match="it samples already"):
            sampler.start()
        time.sleep(1.1)
    assert 3 <= len(found) <= 6
    assert len(found) == sampler.samples
    assert fake.open == fake.samples == 0
    assert (found[-1].busy[0], found[-1].devices) == (0.87, ["local:0", "cpu:0"])
    assert 0.2 < found[-1].seconds < 0.6
    assert 0 < sampler.cpu_seconds < 0.5
    sampler.close()
    assert sampler.error is None


@pytest.mark.parametrize("hz", [0, -1, 5])
def test_a_pace_out_of_reach_is_refused(hz: float) -> None:
    with pytest.raises(ConfigError, match=r"it samples 0\.001 to 4 times a second"):
        Sampler({}, (), print, hz=hz)


def test_a_full_disk_does_not_end_it_and_a_fault_is_kept() -> None:
    def full(load: Load) -> None:
        calls.append(load)
        raise StorageError("write", "no space", "free some")

    def broken(load: Load) -> None:
        raise ValueError("a bug")

    calls: list[Load] = []
    with Sampler({}, (), full, hz=4, library=FakeNVML()) as sampler:
        time.sleep(0.7)
    assert len(calls) >= 2
    assert sampler.error is None
    with Sampler({}, (), broken, hz=4, library=FakeNVML()) as sampler:
        time.sleep(0.3)
    assert isinstance(sampler.error, ValueError)


def test_cuda_and_torch_are_left_alone() -> None:
    code = "import sys, workbench.telemetry.sampler; print({'torch', 'ray', 'vllm'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "set()"


# ---------------------------------------------------------------- the stream


def a_load(count: int) -> Load:
    """A sample of so many GPUs."""
    chips = [Chip(f"GPU-{number}", memory={ME: 30 * GIB}, use=[(ME, 10, 80)]) for number in range(count)]
    return loads(FakeNVML(*chips), {f"node1:{number}": chip.uuid for number, chip in enumerate(chips)})[-1]


def test_a_sample_survives_the_stream_and_is_small(tmp_path: Path) -> None:
    log, load = EventLog(tmp_path / "events.jsonl"), a_load(16)
    log.emit(load)
    log.close()
    (event,) = read_events(tmp_path / "events.jsonl")
    assert event.record == load
    assert (tmp_path / "events.jsonl").stat().st_size < 2500  # of 16 GPUs; at 2 Hz 18 MB an hour


def test_a_table_of_the_load(tmp_path: Path) -> None:
    log = EventLog()
    load = replace(
        a_load(2), sm=[0.5, None], role_memory_gib=[{"actor, rollout": 30.0, "": 1.5}, {}], missing={"n/a: MIG": ["sm of node1:1"]}
    )
    event = log.emit(load)
    path = write_csv(log.events, tmp_path / "load.csv")
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == HEADER
    assert [(row["device"], row["sm"], row["missing"]) for row in rows] == [("node1:0", "0.5", ""), ("node1:1", "", "sm: n/a: MIG")]
    assert rows[0]["role_memory_gib"] == "actor, rollout=30; others=1.5"
    assert float(rows[0]["mono"]) == event.mono
    with pytest.raises(StorageError, match=r"write .*load\.csv: No such file"):
        write_csv(log.events, tmp_path / "none" / "load.csv")
