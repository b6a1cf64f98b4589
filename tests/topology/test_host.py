"""Facts of a machine, read from a /proc and a /sys of our own."""

import os
import shutil
from pathlib import Path

import pytest

from workbench.topology.detection.host import Host, cpu_slots, gpu_signs, host, infiniband, nodes_with, numa_node, steering
from workbench.topology.devices import NIC
from workbench.topology.reading.cells import numbers


def write(root: Path, **files: str) -> Path:
    """Files under ``root``; "__" in a name stands for "/"."""
    for name, content in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def test_this_machine():
    here = host()
    usage = shutil.disk_usage("/dev/shm")
    assert here.shm_bytes_total == usage.total
    assert 0 < here.shm_bytes_free <= usage.total
    assert here.is_root == (os.geteuid() == 0)


def test_a_machine_without_any_of_it(tmp_path):
    assert host(tmp_path, {}) == Host(is_root=os.geteuid() == 0)


@pytest.mark.parametrize(("status", "may"), [("CapEff:\t000001ffffffffff\n", True), ("Name:\tx\nCapEff:\t00000000a80425fb\n", False)])
def test_ptrace(tmp_path, status, may):
    # The second is what Docker leaves root by default.
    root = write(tmp_path, proc__sys__kernel__yama__ptrace_scope="1\n", proc__self__status=status)
    found = host(root, {})
    assert (found.ptrace_scope, found.may_ptrace) == (1, may)


def test_the_least_memory_limit_of_the_control_groups(tmp_path):
    write(tmp_path, proc__self__cgroup="0::/job/step\n")
    group = tmp_path / "sys/fs/cgroup"
    (group / "job/step").mkdir(parents=True)
    (group / "job/step/memory.max").write_text("max\n")
    assert host(tmp_path, {}).memory_limit_bytes is None
    (group / "job/memory.max").write_text("8589934592\n")
    (group / "memory.max").write_text("17179869184\n")
    assert host(tmp_path, {}).memory_limit_bytes == 8 * 2**30


def test_version_1_of_control_groups(tmp_path):
    write(tmp_path, proc__self__cgroup="5:cpu:/x\n4:memory:/docker/abc\n")
    group = tmp_path / "sys/fs/cgroup/memory"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("9223372036854771712\n")  # no limit
    assert host(tmp_path, {}).memory_limit_bytes is None
    (group / "memory.limit_in_bytes").write_text("4294967296\n")
    assert host(tmp_path, {}).memory_limit_bytes == 4 * 2**30


def test_variables_that_steer_and_no_secrets():
    environment = {
        "NCCL_P2P_DISABLE": "1",
        "CUDA_VISIBLE_DEVICES": "0",
        "VLLM_USE_V1": "1",
        "VLLM_API_KEY": "sk-1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "RAY_REDIS_PASSWORD": "x",
        "SLURM_JWT": "x",
        "HOME": "/root",
        "HF_TOKEN": "hf_x",
        "OMPI_COMM": "1",
    }
    kept = "CUDA_VISIBLE_DEVICES NCCL_P2P_DISABLE OMPI_COMM TOKENIZERS_PARALLELISM TORCHINDUCTOR_COMPILE_THREADS VLLM_USE_V1"
    assert list(steering(environment)) == kept.split()


def test_numa_node(tmp_path):
    devices = tmp_path / "sys/bus/pci/devices"
    for name, content in {"0000:1b:00.0": "1\n", "0000:1c:00.0": "-1\n"}.items():
        (devices / name).mkdir(parents=True)
        (devices / name / "numa_node").write_text(content)
    assert numa_node("00000000:1B:00.0", tmp_path) == 1
    assert numa_node("00000000:1C:00.0", tmp_path) is None
    assert numa_node("00000000:1D:00.0", tmp_path) is None


def test_network_cards_in_the_order_of_nvidia_smi(tmp_path):
    for name in ("mlx5_10", "mlx5_2", "mlx5_0"):
        (tmp_path / "sys/class/infiniband" / name).mkdir(parents=True)
    assert infiniband(tmp_path) == (NIC("NIC0", device="mlx5_0"), NIC("NIC1", device="mlx5_2"), NIC("NIC2", device="mlx5_10"))
    assert infiniband(tmp_path / "absent") == ()


def test_signs_of_gpus(tmp_path):
    devices = tmp_path / "sys/bus/pci/devices"
    assert gpu_signs(tmp_path) == ()
    # a GPU, its audio function, an NVSwitch, a graphics chip of the CPU
    functions = {"a": ("0x10de", "0x030200"), "b": ("0x10de", "0x040300"), "c": ("0x10de", "0x068000"), "d": ("0x8086", "0x030000")}
    for name, (vendor, kind) in functions.items():
        (devices / name).mkdir(parents=True)
        (devices / name / "vendor").write_text(vendor + "\n")
        (devices / name / "class").write_text(kind + "\n")
    assert gpu_signs(tmp_path) == ("NVIDIA GPUs on the PCI bus: 1",)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert gpu_signs(tmp_path) == ("NVIDIA GPUs on the PCI bus: 1", "/dev/nvidiactl")


def test_cpu_slots():
    assert cpu_slots() == len(os.sched_getaffinity(0))


def test_the_numa_nodes_are_those_that_have_one_of_the_cpus(tmp_path: Path) -> None:
    for number, cpus in ((10, "3,7"), (0, "0-3"), (1, "4000-4001")):
        folder = tmp_path / "sys/devices/system/node" / f"node{number}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(f"{cpus}\n")
    (tmp_path / "sys/devices/system/node/online").write_text("0-1,10")
    assert nodes_with([3], tmp_path) == [0, 10]
    assert nodes_with([7, 4001], tmp_path) == [1, 10]
    assert nodes_with([99], tmp_path) == nodes_with([3], tmp_path / "nothing") == []


@pytest.mark.parametrize(
    ("text", "cpus"), [("0-3,8", (0, 1, 2, 3, 8)), ("5", (5,)), ("0-1,32-33", (0, 1, 32, 33)), ("", None), ("3-1", None)]
)
def test_a_list_of_cpus(text: str, cpus: tuple[int, ...] | None) -> None:
    assert numbers(text) == cpus
