"""Facts of this machine beside its GPUs: shared memory, permissions, limits, the variables that steer CUDA, NCCL and the engine."""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from workbench.topology.devices import NIC

ROOT = Path("/")
_STEERING = re.compile(
    r"(NCCL|GLOO|UCX|CUDA|NVIDIA|VLLM|PYTORCH|TORCH|TRITON|RAY|OMP|MKL|TOKENIZERS|ACCELERATE|FSDP|DEEPSPEED|SLURM|HIP|ROCR|HSA)[A-Z0-9]*_"
)
_SECRET = re.compile(r"TOKEN(_|$)|KEY|SECRET|PASSW|CREDENTIAL|JWT")  # VLLM_API_KEY; but not TOKENIZERS_PARALLELISM
_CAP_SYS_PTRACE = 19
_UNLIMITED = 2**60  # control groups of version 1 write "no limit" as a number near 2^63


@dataclass(frozen=True)
class Host:
    """What checks need to know of this machine. What it does not have, or does not tell, is None.

    ``shm_bytes_total``, ``shm_bytes_free``: of /dev/shm. ``ptrace_scope``: Yama's, 0 to 3. ``may_ptrace``: this process has
    CAP_SYS_PTRACE (root of a container often lacks it). ``memory_limit_bytes``: the least limit of its control groups.
    ``environment``: the variables that steer CUDA, NCCL, torch, vLLM, Ray; no tokens or keys.
    """

    shm_bytes_total: int | None = None
    shm_bytes_free: int | None = None
    ptrace_scope: int | None = None
    is_root: bool = False
    may_ptrace: bool | None = None
    memory_limit_bytes: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def host(root: Path = ROOT, environment: Mapping[str, str] | None = None) -> Host:
    """This machine. ``root``: where /proc, /sys and /dev hang (tests give another)."""
    shm = _shm(root / "dev/shm")
    return Host(
        shm_bytes_total=shm[0],
        shm_bytes_free=shm[1],
        ptrace_scope=_number(root / "proc/sys/kernel/yama/ptrace_scope"),
        is_root=os.geteuid() == 0,
        may_ptrace=_may_ptrace(root),
        memory_limit_bytes=_memory_limit(root),
        environment=steering(os.environ if environment is None else environment),
    )


def steering(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that steer CUDA, NCCL, torch, vLLM, Ray and their like, sorted; secrets left out."""
    return {name: environment[name] for name in sorted(environment) if _STEERING.match(name) and not _SECRET.search(name)}


def cpu_slots() -> int:
    """CPUs that this process may run on, at most 1024."""
    return max(1, min(len(os.sched_getaffinity(0)), 1024))


def numa_node(pci_bus: str, root: Path = ROOT) -> int | None:
    """The NUMA node of a PCI device ("00000000:1B:00.0", as NVML writes it) by sysfs; None where it says -1 (virtual machines)."""
    domain, _, rest = pci_bus.lower().partition(":")
    node = _number(root / "sys/bus/pci/devices" / f"{domain[-4:]}:{rest}" / "numa_node")
    return None if node is None or node < 0 else node


def infiniband(root: Path = ROOT) -> tuple[NIC, ...]:
    """The RDMA network cards: NIC0, NIC1 ... in the order in which nvidia-smi counts them."""
    names = sorted(_listed(root / "sys/class/infiniband"), key=_naturally)
    return tuple(NIC(f"NIC{position}", device=name) for position, name in enumerate(names))


def gpu_signs(root: Path = ROOT) -> tuple[str, ...]:
    """Signs that the machine has GPUs, whether or not a driver answers: what the PCI bus lists, and the drivers' device files."""
    buses = root / "sys/bus/pci/devices"
    nvidia = [name for name in _listed(buses) if _text(buses / name / "vendor") == "0x10de" and _text(buses / name / "class")[:4] == "0x03"]
    files = ("dev/nvidiactl", "dev/dxg", "dev/kfd")  # NVIDIA, WSL, AMD
    found = [f"NVIDIA GPUs on the PCI bus: {len(nvidia)}"] if nvidia else []
    return (*found, *(f"/{name}" for name in files if (root / name).exists()))


def nodes_with(cpus: Iterable[int], root: Path = ROOT) -> list[int]:
    """The NUMA nodes that have at least one of ``cpus``, as the kernel lists them."""
    wanted, found = set(cpus), []
    for name in _listed(root / "sys/devices/system/node"):
        spans = re.findall(r"(\d+)(?:-(\d+))?", _text(root / "sys/devices/system/node" / name / "cpulist"))
        if re.fullmatch(r"node\d+", name) and any(wanted & set(range(int(a), int(b or a) + 1)) for a, b in spans):
            found.append(int(name.removeprefix("node")))
    return sorted(found)


def _naturally(name: str) -> list[str | int]:
    """A key that sorts mlx5_2 before mlx5_10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _listed(folder: Path) -> Iterable[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
    except OSError:
        return ()


def _text(path: Path) -> str:
    """What a file of the kernel says; "" where it is absent or closed to us."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if re.fullmatch(r"-?\d+", text) else None


def _shm(path: Path) -> tuple[int, int] | tuple[None, None]:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None, None
    return usage.total, usage.free


def _may_ptrace(root: Path) -> bool | None:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", _text(root / "proc/self/status"), re.M)
    return bool(int(found[1], 16) >> _CAP_SYS_PTRACE & 1) if found else None


def _memory_limit(root: Path) -> int | None:
    """The least limit on the way from this process's control group up: version 2, and version 1's memory controller."""
    limits = []
    for line in _text(root / "proc/self/cgroup").splitlines() or ["0::/", "0:memory:/"]:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = ("sys/fs/cgroup/memory", "memory.limit_in_bytes") if controllers else ("sys/fs/cgroup", "memory.max")
        inner = Path(path.lstrip("/"))
        limits += [_number(root / base / folder / name) for folder in (inner, *inner.parents)]
    known = [limit for limit in limits if limit is not None and limit < _UNLIMITED]
    return min(known, default=None)
