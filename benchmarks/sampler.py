"""What the load sampler costs: CPU time of its thread, as a share of one core.

    python -m benchmarks.sampler --seconds 30 --slots 8

Each slot has a process of its own, which starts another, as an engine does. On a machine with GPUs (by NVML) they are sampled beside the
slots. What one event takes in the stream is measured too.
"""

import argparse
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.common import RESULTS, write
from workbench.errors import WorkbenchError
from workbench.events import EventLog
from workbench.telemetry.sampler import Sampler
from workbench.topology import Topology

CHILD = "import sys; sys.stdin.read()"
WORKER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {CHILD!r}], stdin=sys.stdin).wait()"


@dataclass(frozen=True)
class Place:
    """One role in one process."""

    role: str
    device: str
    pid: int


def measured(hz: float, seconds: float, devices: dict[str, str | None], seats: list[Place]) -> dict[str, Any]:
    """The sampler's cost at ``hz``."""
    log = EventLog()
    with Sampler(devices, seats, log.emit, hz=hz) as sampler:
        time.sleep(seconds)
    if sampler.error is not None:
        raise WorkbenchError("sample", str(sampler.error), "mend it") from sampler.error
    texts = [len(str(event)) for event in log.events]
    return {
        "hz": hz,
        "samples": sampler.samples,
        "share_of_one_core": round(sampler.cpu_seconds / seconds, 5),
        "cpu_ms_per_sample": round(1e3 * sampler.cpu_seconds / sampler.samples, 3),
        "bytes_per_event": round(sum(texts) / len(texts)),
    }


def gpus() -> dict[str, str | None]:
    """Those of this machine."""
    return {gpu.id: gpu.uuid for gpu in Topology.detect().gpus if gpu.uuid}


def main() -> None:
    """Start processes, sample them, say what it took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--name", default="sampler_cpu")
    arguments = parser.parse_args()
    with ExitStack() as ending:
        workers = [
            ending.enter_context(subprocess.Popen([sys.executable, "-c", WORKER], stdin=subprocess.PIPE)) for _ in range(arguments.slots)
        ]
        devices = gpus() | {f"cpu:{number}": None for number in range(arguments.slots)}
        seats = [Place("actor", f"cpu:{number}", worker.pid) for number, worker in enumerate(workers)]
        figures = [measured(hz, arguments.seconds, devices, seats) for hz in (1.0, 2.0, 4.0)]
        here = {"gpus": len(gpus()), "slots": arguments.slots, "processes_of_the_machine": len(psutil.pids())}
    write(arguments.name, {"what": "CPU time of the sampler's thread", **here, "rates": figures}, arguments.out)


if __name__ == "__main__":
    main()
