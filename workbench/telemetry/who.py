"""Whose a process is: the roles of the worker that it is, or that started it."""

from collections.abc import Sequence
from typing import Protocol

import psutil


class Seated(Protocol):
    """One role in one process on one device, as a worker reports it (``runtime.seat.Seat``)."""

    @property
    def role(self) -> str:
        """Such as "actor"."""
        ...

    @property
    def device(self) -> str:
        """As the map names it: "local:0", "cpu:1"."""
        ...

    @property
    def pid(self) -> int:
        """As the worker itself sees it."""
        ...


class Who:
    """The roles of processes. An engine may start processes of its own: those are its worker's, however deep."""

    def __init__(self, seats: Sequence[Seated]) -> None:
        by_pid: dict[int, list[str]] = {}
        for seat in seats:
            names = by_pid.setdefault(seat.pid, [])
            names += [seat.role] if seat.role not in names else []
        self._on: dict[str, set[int]] = {}
        for seat in seats:
            self._on.setdefault(seat.device, set()).add(seat.pid)
        self.seated = {pid: ", ".join(names) for pid, names in by_pid.items()}
        self._found: dict[int, str] = {}
        self._asked: set[int] = set()  # in this sample

    def roles_of(self, pid: int) -> str:
        """ "actor, rollout"; "" where it is nobody's here."""
        self._asked.add(pid)
        if pid not in self._found:
            self._found[pid] = self.seated.get(pid) or self._inherited(pid)
        return self._found[pid]

    def _inherited(self, pid: int) -> str:
        try:
            parents = psutil.Process(pid).parents()
        except psutil.Error:  # it has ended, or belongs to another container
            return ""
        return next((self.seated[parent.pid] for parent in parents if parent.pid in self.seated), "")

    def foreign(self, pids: Sequence[int], device: str) -> str:
        """The roles of the one worker on ``device``, where none of ``pids`` exists here: in a container NVML gives the host's. Else ""."""
        workers = self._on.get(device, set())
        alone = len(workers) == 1 and pids and not any(psutil.pid_exists(pid) for pid in pids)
        return self.seated[next(iter(workers))] if alone else ""

    def begin(self) -> None:
        """A sample begins."""
        self._asked.clear()

    def end(self) -> None:
        """It is over: those that were not asked for are gone, and their numbers are given to others."""
        self._found = {pid: roles for pid, roles in self._found.items() if pid in self._asked}
