"""The sampler against real GPUs: a process multiplies on one of them. Run with ``make test ARGS="-m gpu"``; what is not told is printed."""

import time

import pytest

from tests.telemetry.test_sampler import Place, child
from workbench.records import Load, mean
from workbench.telemetry.reading import VALUES, why
from workbench.telemetry.sampler import Sampler
from workbench.topology import Topology

pytestmark = pytest.mark.gpu

MULTIPLIES = """
import os
os.environ["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
import torch
a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
pinned = torch.empty(2**28, dtype=torch.uint8, pin_memory=True)
a @ a
torch.cuda.synchronize()
print(flush=True)
while True:
    for _ in range(50):
        b = a @ a
    pinned.to("cuda", non_blocking=True)
    torch.cuda.synchronize()
"""


@pytest.fixture(scope="module")
def loads() -> list[Load]:
    """Five seconds at 4 Hz, after the first one; the cost is checked here, where the thread is at hand."""
    gpus = [gpu for gpu in Topology.detect().gpus if gpu.uuid]
    found: list[Load] = []
    with child(MULTIPLIES) as busy:
        seats = [Place("actor", gpus[0].id, busy.pid)]
        with Sampler({gpu.id: gpu.uuid for gpu in gpus}, seats, found.append, hz=4) as sampler:
            time.sleep(6)
    assert sampler.error is None
    assert sampler.cpu_seconds / 6 < 0.01, f"{sampler.cpu_seconds / 6:.2%} of a core"
    print(f"{len(gpus)} GPUs, {len(found)} samples, {sampler.cpu_seconds / 6:.2%} of a core")
    return found[4:]


def test_it_keeps_its_pace(loads: list[Load]) -> None:
    assert 15 <= len(loads) <= 22
    assert mean([load.seconds for load in loads]) == pytest.approx(0.25, rel=0.2)


def test_the_busy_gpu_is_busy_and_every_gap_has_a_reason(loads: list[Load]) -> None:
    last = loads[-1]
    for name in VALUES:
        for device, value in zip(last.devices, getattr(last, name), strict=True):
            print(name, device, value, why(last, name, device))
            assert (value is None) == bool(why(last, name, device))
    assert mean([load.busy[0] or 0.0 for load in loads]) > 0.8
    assert 1 < (last.memory_gib[0] or 0) < (last.total_gib[0] or 0)
    assert 50 < (last.watts[0] or 0) < 1500
    assert 20 < (last.celsius[0] or 0) < 110
    assert 200 < (last.sm_mhz[0] or 0) < 4000
    assert last.throttled[0] is not None


def test_inside_the_gpu(loads: list[Load]) -> None:
    told = [load.sm[0] for load in loads if load.sm[0] is not None]
    if not told:
        pytest.skip(why(loads[-1], "sm", loads[-1].devices[0]))
    assert 0.5 < mean(told) <= 1
    assert mean([load.pcie_rx_gb_s[0] or 0.0 for load in loads]) > 0.5  # 0.27 GB are copied to it after every fifty products


def test_the_memory_is_its_roles(loads: list[Load]) -> None:
    shares = loads[-1].role_memory_gib[0]
    if shares is None:
        pytest.skip(why(loads[-1], "role_memory_gib", loads[-1].devices[0]))
    assert 0.3 < shares.get("actor", 0.0) < 10
