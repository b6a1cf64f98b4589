"""What this machine forbids or lacks, and whether services answer."""

import urllib.error
import urllib.request
from collections.abc import Iterator

from workbench.findings import Finding, Severity, finding
from workbench.mapping.advice import advice
from workbench.mapping.checks.question import Question
from workbench.roles import Role

GIB = 2**30
SHM_GIB = 1.0  # Ray's objects, and the engine's and NCCL's queues between processes
PROBE_SECONDS = 2.0


def shared_memory(q: Question) -> Iterator[Finding]:
    """WB601: /dev/shm too small for a map of several processes."""
    if q.host is None:
        return
    processes = {device for role in q.placed for device in q.named(role) if not device.startswith("cpu:")}
    block = next((role for role, place in q.places.items() if place.shared_mem_name), None)
    free = q.host.shm_bytes_free
    if (len(processes) < 2 and block is None) or (free is not None and free >= SHM_GIB * GIB):
        return
    asked = f"{len(processes)} processes" if block is None else f"{block}: shared_mem_name"
    has = "there is no /dev/shm" if free is None else f"/dev/shm has {free / GIB:.2f} GiB free"
    found = f"{has}, and processes hand batches to each other there: at least {SHM_GIB:g} GiB"
    fix = "docker run --shm-size=8g or --ipc=host; elsewhere mount -o remount,size=8g /dev/shm"
    yield finding("WB601", block or "", asked, found, fix)


def cuda_ipc(q: Question) -> Iterator[Finding]:
    """WB602: two processes on one GPU that may not hand memory to each other."""
    if q.host is None or not q.host.ptrace_scope or q.host.may_ptrace:
        return
    places = {role: frozenset(q.named(role)) for role, place in q.placed.items() if not place.on_cpu}
    pairs = [(a, b) for a in places for b in places if list(places).index(a) < list(places).index(b)]
    shared = next(((a, b) for a, b in pairs if places[a] & places[b] and places[a] != places[b]), None)
    several = any(place.tp > 1 for place in q.placed.values())
    if shared is None and not several:
        return
    who = f"{shared[0]} and {shared[1]} share GPUs" if shared else "a tensor-parallel group shares memory"
    found = f"kernel.yama.ptrace_scope is {q.host.ptrace_scope}: a process may not take another's CUDA memory handles"
    severity: Severity = "error" if q.host.ptrace_scope >= 2 else "warning"
    yield finding("WB602", "", who, found, "sudo sysctl kernel.yama.ptrace_scope=0; in a container --cap-add=SYS_PTRACE", severity)


def services(q: Question) -> Iterator[Finding]:
    """WB603: a service that does not answer."""
    for role, place in q.places.items():
        if q.probe and place.url and role is Role.REWARD and (reason := silence(place.url)):
            fix = "start it (workbench reward-server), or mend the address; a function needs none: reward: cpu"
            yield finding("WB603", role, f"{role}: {place.url}", reason, fix)


def silence(url: str) -> str:
    """Why a service does not answer within two seconds; "" where it does, with whatever status."""
    try:
        urllib.request.urlopen(url.rstrip("/") + "/health", timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
    except (OSError, ValueError) as error:
        return f"it does not answer: {getattr(error, 'reason', None) or error}"
    return ""


def settings(q: Question) -> Iterator[Finding]:
    """WB604, WB605: environment variables that do nothing, or not what they say."""
    if q.host is not None:
        yield from advice(q.host.environment)
