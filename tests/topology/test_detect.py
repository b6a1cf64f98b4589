"""Detection, on machines of a fake NVML and with tools that are scripts on a PATH of our own."""

import time
from pathlib import Path

import pynvml
import pytest

from tests.topology.fake_nvml import CUBE, MACHINES, NO_NVLINK, FakeNVML, bus, cube, hgx, links_down, mig, pcie
from workbench.topology.detection import Machine, detect, tools
from workbench.topology.devices import NIC

P2P_NVLINK, UNKNOWN = 2, 6


def machine(fake: FakeNVML | None, root: Path = Path("/nowhere"), **environment: str) -> Machine:
    """A machine without tools, unless ``environment`` has a PATH."""
    return Machine({"PATH": "/nowhere"} | environment, fake or NO_DRIVER, root)


class NoDriver:
    """pynvml where there is no driver."""

    NVMLError = pynvml.NVMLError

    def __getattr__(self, name: str):
        if not name.startswith("nvml"):
            raise AttributeError(name)
        return self._refuse

    def _refuse(self, *args):
        raise pynvml.NVMLError_LibraryNotFound


NO_DRIVER = NoDriver()


def names(topology) -> dict[tuple[str, str], str]:
    return {(link.a, link.b): link.name for link in topology.links}


def test_eight_gpus_on_nvswitch():
    fake = hgx()
    found = detect(machine(fake))
    assert found.name == "8 x NVIDIA H200"
    assert found.ids == tuple(f"local:{n}" for n in range(8))
    assert set(names(found).values()) == {"NV18"}
    assert len(found.links) == 28
    assert found.cliques == (found.ids,)
    assert [gpu.numa for gpu in found.gpus] == [0] * 4 + [1] * 4
    assert (found.gpus[0].cpus, found.gpus[4].cpus) == ("0-47", "48-95")
    assert (found.gpus[2].pci_bus, found.gpus[2].memory_gib) == ("00000000:30:00.0", 140.4)
    assert found.links[0].p2p is True
    assert found.links[0].gb_per_s == 450.0  # 18 x 25 GB/s, NVLink 4
    assert (found.complete, found.warnings, fake.open) == (True, (), 0)


def test_the_cube_mesh_is_counted_link_by_link():
    found = detect(machine(cube()))
    for a in range(8):
        for b in range(a + 1, 8):
            expected = f"NV{CUBE[a][b]}" if b in CUBE[a] else "NODE" if a // 4 == b // 4 else "SYS"
            assert found.link(a, b).name == expected, (a, b)
    assert found.islands == (found.ids,)
    assert (found.complete, found.warnings) == (True, ())


def test_where_all_links_are_accounted_for_nothing_is_in_doubt():
    fake = cube()
    fake.p2p = lambda a, b, cap: UNKNOWN
    found = detect(machine(fake))
    assert (found.link(0, 5).name, found.link(1, 3).name, found.link(0, 3).name) == ("SYS", "NV1", "NV2")
    assert (found.complete, found.warnings) == (True, ())


def test_links_to_gpus_that_a_container_hides_lead_nowhere():
    # 0 and 4 are linked by two; 5 is linked with 4 only; all three have more links, to GPUs that are not here.
    found = detect(machine(cube(present=(0, 4, 5))))
    assert names(found) == {("local:0", "local:1"): "NV2", ("local:0", "local:2"): "SYS", ("local:1", "local:2"): "NV1"}


def test_pcie_without_peer_access():
    found = detect(machine(pcie()))
    (link,) = found.links
    assert (link.name, link.p2p) == ("PHB", False)
    assert found.islands == (("local:0",), ("local:1",))
    assert found.warnings == ()


def test_a_gpu_whose_nvlinks_are_down():
    found = detect(machine(links_down()))
    assert len(found.cliques) == 2
    assert found.link(3, 0).name == "NODE"
    assert found.link(3, 4).name == "SYS"
    assert found.warnings == ("NVLinks of GPU 3: 0 of 18 are active",)


def test_a_pair_of_which_nvml_says_unknown_is_not_taken_for_unlinked(tmp_path):
    fake = hgx(2)
    fake.p2p = lambda a, b, cap: UNKNOWN
    found = detect(machine(fake))
    assert (found.links, found.complete) == ((), False)
    assert found.warnings == ("link of GPU 0 and GPU 1: not known",)


def test_ends_that_a_virtual_machine_hides():
    # The other ends are on no bus that we see, and NVML does not know their kind; but it says that the two are linked.
    fake = hgx(2)
    for chip in fake.chips:
        chip.ports = [(1, 255, "00000000:FF:00.0")] * 18
    found = detect(machine(fake))
    assert names(found) == {("local:0", "local:1"): "NV18"}
    assert found.warnings == ("number of NVLinks of GPU 0 and GPU 1: 18 assumed: NVML says that they are linked, but not by how many",)
    fake.p2p = lambda a, b, cap: NO_NVLINK if cap == P2P_NVLINK else 0
    assert names(detect(machine(fake))) == {("local:0", "local:1"): "NODE"}


@pytest.mark.parametrize("status", [1, 2, 3, 4, 5])
def test_every_refusal_of_peer_access_is_a_no(status):
    fake = pcie()
    fake.p2p = lambda a, b, cap: status if cap == 1 else 0  # may read, may not write
    assert detect(machine(fake)).links[0].p2p is False


def test_unknown_peer_access_is_none():
    fake = pcie()
    fake.p2p = lambda a, b, cap: UNKNOWN
    assert detect(machine(fake)).links[0].p2p is None


def test_mig_slices_are_devices_without_links():
    found = detect(machine(mig()))
    assert [(gpu.mig, gpu.memory_gib, gpu.uuid[:8]) for gpu in found.gpus] == [
        (True, 39.5, "MIG-aaaa"),
        (True, 9.75, "MIG-bbbb"),
        (False, 79.6, "GPU-2000"),
    ]
    assert [gpu.index for gpu in found.gpus] == [0, 1, 2]
    assert found.gpus[1].numa == 0
    assert (found.links, found.complete) == ((), True)
    assert "2 of the 3 devices are MIG slices: CUDA shows a process only one of them" in found.warnings[0]
    assert [gpu.uuid for gpu in detect(machine(mig(), CUDA_VISIBLE_DEVICES="MIG-bbbb")).gpus] == ["MIG-bbbb"]


def test_mig_mode_without_slices():
    fake = mig()
    fake.chips[0].slices = []
    found = detect(machine(fake))
    assert len(found.gpus) == 1
    assert "MIG slices of GPU 0: it is in MIG mode and has none" in found.warnings[0]


def test_the_visible_set_is_numbered_anew_in_pci_order():
    fake = hgx()
    fake.chips.reverse()  # NVML promises no order; CUDA_VISIBLE_DEVICES counts PCI order
    found = detect(machine(fake, CUDA_VISIBLE_DEVICES="GPU-60,GPU-20", CUDA_DEVICE_ORDER="PCI_BUS_ID"))
    assert [(gpu.id, gpu.pci_bus) for gpu in found.gpus] == [("local:0", bus(1)), ("local:1", bus(5))]
    assert names(found) == {("local:0", "local:1"): "NV18"}


@pytest.mark.parametrize("value", ["", "-1", "0,0", "all"])
def test_all_gpus_hidden(value):
    found = detect(machine(hgx(), CUDA_VISIBLE_DEVICES=value))
    assert found.is_cpu
    assert found.name.endswith("CPU slots, no GPU")
    assert [warning.startswith(f"CUDA_VISIBLE_DEVICES={value!r}") for warning in found.warnings] == [True]


def test_network_cards(tmp_path):
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    assert detect(machine(hgx(1), tmp_path)).nics == (NIC("NIC0", device="mlx5_0"),)


def test_numa_by_sysfs_where_nvml_does_not_know(tmp_path):
    fake = pcie()
    fake.refused["nvmlDeviceGetMemoryAffinity"] = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    folder = tmp_path / "sys/bus/pci/devices/0000:10:00.0"
    folder.mkdir(parents=True)
    (folder / "numa_node").write_text("1\n")
    found = detect(machine(fake, tmp_path))
    assert [gpu.numa for gpu in found.gpus] == [1, None]
    assert found.warnings == ("NUMA node of GPU 1: n/a: Function Not Found",)


def test_numa_by_cpus_where_nobody_names_it(tmp_path):
    """As in virtual machines: NVML's mask is empty, sysfs says -1, and nvidia-smi tells the node of the CPUs."""
    for node, cpus in (("node0", "0-19"), ("node1", "20-39\n")):
        folder = tmp_path / "sys/devices/system/node" / node
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    fake = pcie()
    for chip, cpus in zip(fake.chips, (0b1111, 1 << 25), strict=True):
        chip.nodes, chip.cpus = 0, cpus
    found = detect(machine(fake, tmp_path))
    assert [gpu.numa for gpu in found.gpus] == [0, 1]
    assert found.warnings == ()
    fake.chips[0].cpus = (1 << 40) - 1
    assert detect(machine(fake, tmp_path)).gpus[0].numa == (0, 1)
    fake.chips[0].cpus = 1 << 50
    assert detect(machine(fake, tmp_path)).warnings == ("NUMA node of GPU 0: NVML and sysfs name none",)


def test_what_no_gpu_has_is_not_known():
    """A driver that reports no memory of its own (seen where it is the host's), a name with control characters."""
    fake = pcie()
    fake.chips[0].memory_gib, fake.chips[1].name = 0, "NVIDIA\x1b[0m L4\n"
    found = detect(machine(fake)).gpus
    assert (found[0].memory_gib, found[1].name) == (None, "NVIDIA[0m L4")


def test_several_numa_nodes():
    fake = pcie()
    fake.chips[0].nodes = 0b101
    fake.chips[1].nodes = 1 << 70
    assert [gpu.numa for gpu in detect(machine(fake)).gpus] == [(0, 2), 70]


CODES = (pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT)
SILENT = {  # what may be refused without loss: a second source exists, or the refusal is how NVML says that there is none
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceIsMigDeviceHandle",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlShutdown",
}


def calls_of(fake: FakeNVML) -> list[str]:
    """What detection asks of a machine."""
    detect(machine(fake))
    return fake.calls


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("name", MACHINES)
def test_any_single_call_may_fail(name, code):
    good = MACHINES[name]()
    expected = detect(machine(good))
    for number, function in enumerate(good.calls):
        fake = MACHINES[name]()
        fake.fails_at, fake.code = number, code
        found = detect(machine(fake))
        assert fake.open == (function == "nvmlShutdown"), function
        if function in SILENT or code in (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            continue
        if function in ("nvmlInit", "nvmlDeviceGetCount"):
            assert found.is_cpu
            assert str(pynvml.NVMLError(code)) in found.warnings[0]
        else:
            lost = set(found.warnings) - set(expected.warnings)
            assert any(str(pynvml.NVMLError(code)) in warning for warning in lost), (number, function)


@pytest.mark.parametrize("function", sorted({call for build in MACHINES.values() for call in calls_of(build())}))
@pytest.mark.parametrize("name", MACHINES)
def test_any_function_may_always_fail(name, function):
    fake = MACHINES[name]()
    fake.refused[function] = pynvml.NVML_ERROR_NO_PERMISSION
    found = detect(machine(fake))
    assert found.gpus
    if function == "nvmlDeviceGetName":
        assert all(gpu.name is None for gpu in found.gpus)
        assert any("name of" in warning and "Insufficient Permissions" in warning for warning in found.warnings)


def test_a_lost_gpu_is_said_and_the_others_stay():
    number = [position for position, call in enumerate(calls_of(hgx())) if call == "nvmlDeviceGetHandleByIndex"][5]
    fake = hgx()
    fake.fails_at, fake.code = number, pynvml.NVML_ERROR_GPU_IS_LOST
    found = detect(machine(fake))
    assert len(found.gpus) == 7
    assert found.warnings == ("handle of GPU 5: n/a: GPU is lost",)
    assert found.complete is False


def test_a_cpu_machine_says_so_without_warnings(tmp_path):
    begin = time.perf_counter()
    found = detect(machine(None, tmp_path))
    assert found.is_cpu
    assert found.name.endswith("CPU slots, no GPU")
    assert found.warnings == ()
    assert time.perf_counter() - begin < 0.5


def test_gpus_without_a_driver_are_a_warning(tmp_path):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    (warning,) = detect(machine(None, tmp_path)).warnings
    assert warning == (
        "there are signs of GPUs (/dev/nvidiactl), but none could be listed: NVML n/a: NVML Shared Library Not Found; "
        "nvidia-smi is not installed; rocm-smi is not installed"
    )


def tool(folder: Path, name: str, script: str) -> str:
    """A program on a PATH of its own, which is returned."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return f"{folder}:/bin:/usr/bin"


TWO = "\\033[4mGPU0\\tGPU1\\tCPU Affinity\\tNUMA Affinity\\tGPU NUMA ID\\033[0m\\n"
TWO += "GPU0\\t X \\tNV18\\t0-31\\t0\\t\\tN/A\\nGPU1\\tNV18\\t X \\t0-31\\t0\\t\\tN/A\\n"
ROWS = "0, NVIDIA H200, 143771, 00000000:00:06.0, GPU-aaaa\\n1, NVIDIA H200, 143771, 00000000:00:07.0, GPU-bbbb\\n"
SMI = f"case $1 in topo) printf '\\t{TWO}';; *) printf '{ROWS}';; esac"


def test_nvidia_smi_where_nvml_fails(tmp_path):
    found = detect(machine(None, PATH=tool(tmp_path, "nvidia-smi", SMI)))
    assert found.name == "2 x NVIDIA H200"
    assert names(found) == {("local:0", "local:1"): "NV18"}
    assert found.links[0].gb_per_s == 450.0
    assert [(gpu.memory_gib, gpu.uuid, gpu.numa) for gpu in found.gpus] == [(140.4, "GPU-aaaa", 0), (140.4, "GPU-bbbb", 0)]
    assert found.warnings[-1] == "NVML: n/a: NVML Shared Library Not Found; this is what nvidia-smi prints"


def test_nvidia_smi_and_the_visible_set(tmp_path):
    path = tool(tmp_path, "nvidia-smi", SMI)
    found = detect(machine(None, PATH=path, CUDA_VISIBLE_DEVICES="GPU-b"))
    assert [(gpu.id, gpu.uuid) for gpu in found.gpus] == [("local:0", "GPU-bbbb")]
    assert found.links == ()
    assert detect(machine(None, PATH=path, CUDA_VISIBLE_DEVICES="")).is_cpu


def test_the_matrix_decides_where_nvml_is_in_doubt(tmp_path):
    fake = hgx(2)
    fake.p2p = lambda a, b, cap: UNKNOWN
    found = detect(machine(fake, PATH=tool(tmp_path, "nvidia-smi", SMI)))
    assert names(found) == {("local:0", "local:1"): "NV18"}
    assert (found.complete, found.warnings) == (True, ())


def test_the_matrix_is_not_asked_without_doubt(tmp_path):
    begin = time.perf_counter()
    detect(machine(hgx(), PATH=tool(tmp_path, "nvidia-smi", "sleep 5")))
    assert time.perf_counter() - begin < 1


def test_a_tool_that_hangs_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "SECONDS", 0.2)
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    begin = time.perf_counter()
    found = detect(machine(None, tmp_path, PATH=tool(tmp_path, "nvidia-smi", "exec sleep 30")))
    assert time.perf_counter() - begin < 5
    assert "nvidia-smi topo -m did not answer within 0.2 s" in found.warnings[0]


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (
            "echo Failed to initialize NVML: Driver/library version mismatch; exit 18",
            "nvidia-smi topo -m failed with 18: Failed to initialize",
        ),
        ("exit 9", "failed with 9: it printed nothing"),
        ("echo hello", "nvidia-smi topo -m printed no topology"),
    ],
)
def test_a_tool_that_fails_is_said(tmp_path, script, reason):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    (warning,) = detect(machine(None, tmp_path, PATH=tool(tmp_path, "nvidia-smi", script))).warnings
    assert reason in warning


ROCM = """
============================ ROCm System Management Interface ============================
=============================== Link Type between two GPUs ===============================
       GPU0         GPU1         GPU2
GPU0   0            XGMI         XGMI
GPU1   XGMI         0            XGMI
GPU2   XGMI         XGMI         0
======================================= Numa Nodes =======================================
GPU[0]		: (Topology) Numa Node: 0
GPU[0]		: (Topology) Numa Affinity: 0
GPU[1]		: (Topology) Numa Node: 1
GPU[1]		: (Topology) Numa Affinity: 1
GPU[2]		: (Topology) Numa Node: 1
GPU[2]		: (Topology) Numa Affinity: 1
================================== End of ROCm SMI Log ===================================
"""


def test_rocm_smi(tmp_path):
    (tmp_path / "matrix.txt").write_text(ROCM)
    path = tool(tmp_path, "rocm-smi", f"cat {tmp_path}/matrix.txt")
    found = detect(machine(None, PATH=path))
    assert [link.name for link in found.links] == ["XGMI"] * 3
    assert found.warnings == ()
    kept = detect(machine(None, PATH=path, ROCR_VISIBLE_DEVICES="1,2"))
    assert (kept.ids, [link.name for link in kept.links]) == (("local:0", "local:1"), ["XGMI"])
