"""What a run of several processes needs of the machine: Ray starts them, torch.distributed connects them. Nothing is started here."""

import os
import resource
import socket
import tempfile
from collections.abc import Mapping
from pathlib import Path

from workbench.doctor.check import Check, first_number
from workbench.errors import ConfigError
from workbench.runtime.private import LONGEST_FOLDER
from workbench.runtime.settings import check_address, host_and_port

FILES = 4096  # below it Ray warns of connection errors; it raises the limit by itself as far as the hard one allows, at most to RAISED
RAISED = 65536
THREADS = 1000  # Ray takes about 100, and 24 for each worker (2.60, on two cores); torch and the engine add theirs
REACH_SECONDS = 2.0


def examine(environment: Mapping[str, str], root: Path = Path("/")) -> list[Check]:
    """All checks. ``root``: where /sys hangs."""
    return [
        open_files(resource.getrlimit(resource.RLIMIT_NOFILE)),
        threads(root),
        sockets(Path(tempfile.gettempdir())),
        *cluster(environment),
    ]


def open_files(limits: tuple[int, int]) -> Check:
    """Open files, sockets included, that a process may have. ``limits``: what ``ulimit -Sn`` and ``ulimit -Hn`` say; -1: no limit."""
    soft, hard = (RAISED if limit == resource.RLIM_INFINITY else limit for limit in limits)
    found = f"{soft} a process" + (f", up to {min(hard, RAISED)} for Ray's" if soft < min(hard, RAISED) else "")
    if max(soft, min(hard, RAISED)) < FILES:
        fix = f"ulimit -n {RAISED} (as root, or in limits.conf); docker run --ulimit nofile={RAISED}"
        return Check("open files", "warning", f"{found}; Ray wants {FILES}", fix)
    return Check("open files", "ok", found)


def threads(root: Path = Path("/")) -> Check:
    """Threads that may still be started: what the control group leaves, and what ``ulimit -u`` gives the user (root has no limit)."""
    user = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    rooms = {} if user == resource.RLIM_INFINITY or os.geteuid() == 0 else {"allowed by ulimit -u": float(user)}
    for folder in (root / "sys/fs/cgroup", root / "sys/fs/cgroup/pids"):
        limit = first_number(folder / "pids.max")
        if limit is not None:
            rooms["left of the control group's limit"] = limit - (first_number(folder / "pids.current") or 0)
    if not rooms:
        return Check("threads", "ok", "not limited")
    who = min(rooms, key=lambda name: rooms[name])
    found = f"{rooms[who]:.0f} {who}"
    if rooms[who] < THREADS:
        fix = "docker run --pids-limit=-1; in Kubernetes the kubelet's podPidsLimit; else ulimit -u"
        return Check("threads", "warning", f"{found}; Ray, torch and the engine take hundreds", fix)
    return Check("threads", "ok", found)


def sockets(temporary: Path) -> Check:
    """Where a private Ray keeps sockets and logs: the name of a unix socket has 107 characters, and Ray fills most of them."""
    folder = temporary / f"workbench-{os.getuid()}"
    if len(str(folder)) > LONGEST_FOLDER:
        found = f"{folder} is longer than {LONGEST_FOLDER} characters: Ray can't start"
        return Check("Ray's folder", "error", found, "set TMPDIR=/tmp before the kernel starts")
    if not os.access(folder if folder.exists() else temporary, os.W_OK):
        return Check("Ray's folder", "error", f"{folder} can't be written to", "set TMPDIR to a short folder of your own")
    return Check("Ray's folder", "ok", str(folder))


def cluster(environment: Mapping[str, str]) -> list[Check]:
    """The cluster that RAY_ADDRESS names, if any: every run on GPUs goes there."""
    address = environment.get("RAY_ADDRESS", "")
    if address in ("", "local"):
        return []
    try:
        check_address(f"RAY_ADDRESS={address}", address)
    except ConfigError as error:
        return [Check("RAY_ADDRESS", "error", f"{address!r}: {error.found}", error.fix)]
    if address == "auto":
        return [Check("RAY_ADDRESS", "ok", "auto: runs go to the Ray of this machine")]
    try:
        socket.create_connection(host_and_port(address), timeout=REACH_SECONDS).close()
    except OSError as error:
        found = f"nothing answers at {address} ({error.strerror or error}), and runs go there"
        return [Check("RAY_ADDRESS", "error", found, "`ray start --head --port 6379` there, open the port; or unset RAY_ADDRESS")]
    return [Check("RAY_ADDRESS", "ok", f"{address} answers; runs go there")]
