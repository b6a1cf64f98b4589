"""Detection against the machine itself: CUDA's own list, torch's figures and nvidia-smi's matrix, with one GPU or several.

Run with ``make test ARGS="-m gpu"`` on a machine that has one. CUDA is asked by its driver library in processes of their own, since it
reads CUDA_VISIBLE_DEVICES once. Not for machines in MIG mode, where CUDA and we count differently on purpose.
"""

import os
import subprocess
import sys
import time
from itertools import combinations

import pytest

from workbench.topology import Topology
from workbench.topology.detection import NVIDIA_MATRIX, Machine, detect, tools

pytestmark = pytest.mark.gpu

ALL = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}

CUDA = """
import ctypes, uuid
cuda = ctypes.CDLL("libcuda.so.1")
count = ctypes.c_int(0)
if cuda.cuInit(0) == 0:
    cuda.cuDeviceGetCount(ctypes.byref(count))
for number in range(count.value):
    device, name = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    cuda.cuDeviceGet(ctypes.byref(device), number)
    cuda.cuDeviceGetUuid_v2(ctypes.byref(name), device)
    print(f"GPU-{uuid.UUID(bytes=bytes(name))}")
"""


@pytest.fixture(scope="module")
def everything() -> Topology:
    """All GPUs of the machine."""
    return detect(Machine(ALL))


def output_of(code: str, environment: dict[str, str]) -> list[str]:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_nothing_is_missing(everything):
    assert not everything.is_cpu
    assert everything.complete
    assert everything.warnings == ()
    for gpu in everything.gpus:
        assert None not in (gpu.name, gpu.memory_gib, gpu.pci_bus, gpu.uuid, gpu.cpus), gpu


def test_as_cuda_lists_them(everything):
    assert {gpu.uuid for gpu in everything.gpus} == set(output_of(CUDA, ALL))


def test_as_torch_sees_them():
    import torch

    found = Topology.detect()
    assert len(found.gpus) == torch.cuda.device_count()
    by_uuid = {gpu.uuid: gpu for gpu in found.gpus}
    for number in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(number)
        gpu = by_uuid[f"GPU-{properties.uuid}"]
        assert gpu.name == properties.name
        assert gpu.memory_gib == pytest.approx(properties.total_memory / 2**30, rel=0.03)  # the driver keeps some for itself


def test_as_nvidia_smi_draws_them(everything):
    matrix = tools.matrix(NVIDIA_MATRIX, ALL)
    assert isinstance(matrix, Topology), matrix
    assert [(gpu.index, gpu.numa, gpu.cpus) for gpu in everything.gpus] == [(gpu.index, gpu.numa, gpu.cpus) for gpu in matrix.gpus]
    assert {(link.a, link.b): link.name for link in everything.links} == {(link.a, link.b): link.name for link in matrix.links}
    assert everything.islands == matrix.islands


def test_peer_access_as_torch_finds_it():
    import torch

    found = Topology.detect()
    number_of = {f"GPU-{torch.cuda.get_device_properties(n).uuid}": n for n in range(torch.cuda.device_count())}
    for a, b in combinations(found.gpus, 2):
        link = found.link(a.id, b.id)
        assert link is not None
        if link.p2p is not None:
            assert link.p2p == torch.cuda.can_device_access_peer(number_of[a.uuid], number_of[b.uuid])


def test_the_visible_set_as_cuda_reads_it(everything):
    uuids = [gpu.uuid or "" for gpu in everything.gpus]
    last = len(uuids) - 1
    values = ["", "-1", "0", str(last), f"{last},0", "0,-1", "0,0", "0,99", "99", "abc", "0,abc", "+0", " 0", "0gpu", "NoDevFiles"]
    values += [uuids[0], ",".join(reversed(uuids)), uuids[-1][:12], f"{uuids[0]},{uuids[0]}", f"{uuids[0]},GPU-x"]
    values += [f"{uuids[0]},{last}", f"0,{uuids[-1]}"]
    differ = {}
    for value in values:
        environment = ALL | {"CUDA_VISIBLE_DEVICES": value, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        ours = {gpu.uuid for gpu in detect(Machine(environment)).gpus if gpu.kind == "gpu"}
        theirs = set(output_of(CUDA, environment))
        if ours != theirs:
            differ[value] = (ours, theirs)
    assert differ == {}


def test_cuda_is_not_initialised_nor_torch_loaded_and_it_is_quick():
    """NVML itself loads libcuda; a process that has initialised CUDA holds /dev/nvidia-uvm open."""
    code = """
import os, sys, time
from workbench.topology import Topology
begin = time.perf_counter()
Topology.detect()
seconds = time.perf_counter() - begin
held = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
print("torch" in sys.modules, any("nvidia-uvm" in path for path in held), seconds < 1.0, seconds)
"""
    torch_loaded, cuda_ready, quick, seconds = output_of(code, dict(os.environ))
    assert (torch_loaded, cuda_ready, quick) == ("False", "False", "True"), seconds
    after = code.replace("Topology.detect()", "Topology.detect(); import ctypes; ctypes.CDLL('libcuda.so.1').cuInit(0)")
    assert output_of(after, dict(os.environ))[1] == "True"  # so the sign is one


def test_twice_gives_the_same():
    begin = time.perf_counter()
    assert Topology.detect() == Topology.detect()
    assert time.perf_counter() - begin < 2
