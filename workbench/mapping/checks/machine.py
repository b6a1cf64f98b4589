"""What this machine forbids or lacks, and whether services answer."""

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import combinations

from workbench.findings import Finding, Severity, finding
from workbench.mapping.advice import advice
from workbench.mapping.checks.question import Question, counted
from workbench.roles import Role
from workbench.topology.detection.host import Host

GIB = 2**30
SHM_GIB = 1.0  # the queue of a tensor-parallel engine (ten chunks of 16 MiB), NCCL's buffers (10 MiB for two ranks), Ray's objects
SHM_LEAST_GIB = 0.25  # with less not even the engine's queue has room
PROBE_SECONDS = 2.0
# CUDA 13 dropped what is older than Turing (release notes, 2025); bfloat16 arithmetic came with Ampere.
OLD: tuple[tuple[str, str, Severity], ...] = (
    (r"V100|TITAN V\b|GV100|P100|P40\b|P4\b|K80|M60|GTX 1[06]", "it is older than Turing, and CUDA 13 has no code for it", "error"),
    (r"T4\b|RTX 20\d\d|Quadro RTX|TITAN RTX", "it has no bfloat16, in which actor and engine compute", "warning"),
)
NOT_READY = (502, 503, 504)  # a proxy whose service is away, a server that still loads


def too_old(q: Question) -> Iterator[Finding]:
    """WB106: GPUs of this machine that the engine's build has no code for, or that can't compute in bfloat16."""
    for role in q.placed if q.host is not None else ():
        for pattern, found, severity in OLD:
            names = dict.fromkeys(gpu.name for gpu in q.gpus(role) if gpu.name and re.search(pattern, gpu.name))
            if names:
                fix = "use GPUs from Ampere on (A100, RTX 30): vLLM's builds for CUDA 13 and bfloat16 want them"
                yield finding("WB106", role, f"{role}: {', '.join(map(str, names))}", found, fix, severity)


def shared_memory(q: Question) -> Iterator[Finding]:
    """WB601: /dev/shm too small for processes that Ray starts: one for each device, unless all of it is one CPU."""
    if q.host is None:
        return
    in_driver = {Role.REWARD} if Role.REWARD in q.placed and q.placed[Role.REWARD].devices == ("cpu",) else set()  # functions
    devices = {device for role in q.placed.keys() - in_driver for device in q.named(role)}
    block = next((role for role, place in q.places.items() if place.shared_mem_name), None)
    free = q.host.shm_bytes_free
    if (devices <= {"cpu:0"} and block is None) or (free is not None and free >= SHM_GIB * GIB):
        return
    asked = f"processes on {counted(len(devices), 'device')}" if block is None else f"{block}: shared_mem_name"
    has = "there is no /dev/shm" if free is None else f"/dev/shm has {free / GIB:.2f} GiB free"
    found = f"{has}, and processes hand batches to each other there: at least {SHM_GIB:g} GiB"
    fix = "docker run --shm-size=8g or --ipc=host; elsewhere mount -o remount,size=8g /dev/shm"
    severity: Severity = "error" if free is None or free < SHM_LEAST_GIB * GIB else "warning"
    yield finding("WB601", block or "", asked, found, fix, severity)


def cuda_ipc(q: Question) -> Iterator[Finding]:
    """WB602: processes that may not hand GPU memory to each other.

    Memory of torch's expandable segments goes by file descriptor, and to take another process's one has to be allowed to trace it
    (https://github.com/pytorch/pytorch/issues/165685). Memory of plain cudaMalloc goes without.
    """
    if q.host is None or not _restricted(q.host):
        return
    who = _handing_over(q)
    if not who:
        return
    scope = f"kernel.yama.ptrace_scope is {q.host.ptrace_scope}"
    fix = "sudo sysctl kernel.yama.ptrace_scope=0, or in a container --cap-add=SYS_PTRACE"
    if _expandable(q.host):
        found = f"{scope}, and with expandable segments a process may then not open the other's CUDA memory (pidfd_getfd)"
        yield finding("WB602", "", who, found, f"{fix}; or leave expandable_segments out of PYTORCH_CUDA_ALLOC_CONF")
    else:
        found = f"{scope}: memory can be handed over as long as PYTORCH_CUDA_ALLOC_CONF has no expandable_segments:True"
        yield finding("WB602", "", who, found, fix, "info")


def _restricted(host: Host) -> bool:
    """Whether siblings may not trace each other: from 1 on only with the capability, at 3 not at all."""
    scope = host.ptrace_scope or 0
    return scope >= 3 or (scope >= 1 and not host.may_ptrace)


def _expandable(host: Host) -> bool:
    return any("expandable_segments:True" in host.environment.get(name, "") for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"))


def _handing_over(q: Question) -> str:
    """Who hands CUDA memory to another process: roles that share GPUs but are no pool, else the members of an engine; "" if nobody."""
    places = {role: frozenset(q.named(role)) for role, place in q.placed.items() if not place.on_cpu}
    pairs = ((a, b) for a, b in combinations(places, 2) if places[a] & places[b] and places[a] != places[b])
    shared = next((f"{a} and {b} share GPUs" for a, b in pairs), "")
    split = next((f"{role}: tp {place.tp}" for role, place in q.placed.items() if place.tp > 1 and not place.on_cpu), "")
    return shared or split


def services(q: Question) -> Iterator[Finding]:
    """WB603: a service that does not answer. From another machine than the map's that may be well: only a warning."""
    for role, place in q.places.items():
        if q.probe and place.url and role is Role.REWARD and (reason := silence(place.url)):
            fix = "start it, or mend the address; functions need none: reward: cpu"
            where = "it does not answer" if q.host is not None else "from this machine it does not answer"
            yield finding("WB603", role, f"{role}: {place.url}", f"{where}: {reason}", fix, "error" if q.host is not None else "warning")


def silence(url: str) -> str:
    """Why a service does not answer within two seconds; "" where it does, be it to say that it has no such page."""
    try:
        urllib.request.urlopen(url.rstrip("/") + "/health", timeout=PROBE_SECONDS).close()
    except urllib.error.HTTPError as error:
        error.close()
        return f"HTTP status {error.code} ({error.reason})" if error.code in NOT_READY else ""
    except http.client.HTTPException as error:
        return f"what answers speaks no HTTP ({type(error).__name__})"
    except (OSError, ValueError, OverflowError) as error:
        return str(getattr(error, "reason", None) or error)
    return ""


def settings(q: Question) -> Iterator[Finding]:
    """WB604, WB605: environment variables that do nothing, or not what they say."""
    if q.host is not None:
        yield from advice(q.host.environment)
