"""The vendors' command-line tools, asked within a time-out: what ``nvidia-smi`` and ``rocm-smi`` print."""

import shutil
import subprocess
import threading
from collections.abc import Mapping

from workbench.errors import ConfigError
from workbench.topology.detection.nvml import Missing
from workbench.topology.topology import Topology

SECONDS = 10.0  # nvidia-smi topo -m can take minutes on a broken bridge


def output(command: tuple[str, ...], environment: Mapping[str, str]) -> str | Missing:
    """What ``command`` prints; Missing where it is not installed, fails, or is silent for too long."""
    program, asked = shutil.which(command[0], path=environment.get("PATH")), " ".join(command)
    if program is None:
        return Missing(f"{command[0]} is not installed")
    try:
        process = subprocess.Popen(
            [program, *command[1:]], env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
    except OSError as error:
        return Missing(f"{asked} can't be started: {error}")
    try:
        printed, _ = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        # One that hangs inside the driver does not even die of that: it is waited for elsewhere, so that it leaves no zombie.
        threading.Thread(target=_bury, args=(process,), daemon=True).start()
        return Missing(f"{asked} did not answer within {SECONDS:g} s")
    if process.returncode:
        return Missing(f"{asked} failed with {process.returncode}: {_last_line(printed)}")
    return printed


def matrix(command: tuple[str, ...], environment: Mapping[str, str]) -> Topology | Missing:
    """The topology that ``command`` prints."""
    printed = output(command, environment)
    if isinstance(printed, Missing):
        return printed
    try:
        return Topology.parse(printed, name=" ".join(command))
    except ConfigError as error:
        return Missing(f"{' '.join(command)} printed no topology: {error.found}")


def _bury(process: subprocess.Popen[str]) -> None:
    if process.stdout:
        process.stdout.close()
    process.wait()


def _last_line(printed: str) -> str:
    return next((line.strip() for line in reversed(printed.splitlines()) if line.strip()), "it printed nothing")
