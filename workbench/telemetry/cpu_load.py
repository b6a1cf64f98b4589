"""The load of CPU slots: what the processes of their roles, and those they started, use. By psutil."""

import os
import time
from collections.abc import Sequence

import psutil

from workbench.telemetry.reading import VALUES, Reading
from workbench.telemetry.who import Seated
from workbench.topology.detection.host import host

GIB = 2**30
TREE_SECONDS = 5.0  # between two looks at who started whom, which reads every process of the machine
MEASURED = ("busy", "memory_gib", "total_gib", "role_memory_gib", "role_busy")
ABSENT = {name: "n/a: a CPU slot" for name in VALUES if name not in MEASURED}
FIRST = "n/a: the first sample"


class Slots:
    """Reads the slots of ``seats``, and no process where there is none. ``cpus``: how many there are to use, all slots together."""

    def __init__(self, seats: Sequence[Seated]) -> None:
        self._roles: dict[str, dict[int, list[str]]] = {}  # slot -> pid -> roles
        for seat in seats:
            self._roles.setdefault(seat.device, {}).setdefault(seat.pid, []).append(seat.role)
        self.cpus = max(1, len(os.sched_getaffinity(0)))
        limit = host().memory_limit_bytes
        self._total_gib = min(psutil.virtual_memory().total, limit or 2**63) / GIB
        self._families: dict[int, list[psutil.Process]] = {}  # pid of a worker -> it, and those under it
        self._looked = -TREE_SECONDS
        self._before: dict[psutil.Process, float] = {}  # CPU seconds, and when they were read
        self._when = 0.0

    def read(self) -> dict[str, Reading]:
        """Slot -> its load since the last call; of slots without a seat nothing."""
        if not self._roles:
            return {}
        now = time.monotonic()
        if now - self._looked >= TREE_SECONDS:
            self._families, self._looked = self._grown(), now
        used, resident = self._used()
        gone = now - self._when
        shares = {who: (seconds - self._before[who]) / gone / self.cpus for who, seconds in used.items() if who in self._before}
        first = not self._before
        self._before, self._when = used, now
        return {slot: self._reading(slot, resident, None if first else shares) for slot in self._roles}

    def _grown(self) -> dict[int, list[psutil.Process]]:
        """Every worker with its children, and theirs; one that is a worker itself is left to itself."""
        workers = {pid for pids in self._roles.values() for pid in pids}
        running = {process.pid: process for process in psutil.process_iter(["ppid"])}
        families: dict[int, list[psutil.Process]] = {pid: [] for pid in workers}
        for pid, process in running.items():
            ancestor, seen = pid, {0}
            while ancestor not in workers and ancestor in running and ancestor not in seen:
                seen.add(ancestor)
                ancestor = running[ancestor].info["ppid"] or 0
            if ancestor in workers:
                families[ancestor].append(process)
        return families

    def _used(self) -> tuple[dict[psutil.Process, float], dict[psutil.Process, float]]:
        """CPU seconds and resident GiB of every process that is still there."""
        used, resident = {}, {}
        for process in (member for family in self._families.values() for member in family):
            try:
                with process.oneshot():
                    times = process.cpu_times()
                    used[process], resident[process] = times.user + times.system, process.memory_info().rss / GIB
            except psutil.Error:  # it has ended, or is not ours to look at
                continue
        return used, resident

    def _reading(self, slot: str, resident: dict[psutil.Process, float], shares: dict[psutil.Process, float] | None) -> Reading:
        memory: dict[str, float] = {}
        busy: dict[str, float] = {}
        for pid, roles in self._roles[slot].items():
            family, name = self._families.get(pid, []), ", ".join(dict.fromkeys(roles))
            memory[name] = memory.get(name, 0.0) + sum(resident.get(process, 0.0) for process in family)
            busy[name] = busy.get(name, 0.0) + sum((shares or {}).get(process, 0.0) for process in family)
        known = shares is not None
        return Reading(
            busy=sum(busy.values()) if known else None,
            memory_gib=sum(memory.values()),
            total_gib=self._total_gib,
            role_memory_gib=memory,
            role_busy=busy if known else None,
            missing=ABSENT if known else {**ABSENT, "busy": FIRST, "role_busy": FIRST},
        )
