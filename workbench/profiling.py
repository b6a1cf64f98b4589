"""The driver's part of a profiled step: workers begin and end to record, their traces go into the folder, the sums into the stream."""

import json
import shutil
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path

from workbench.errors import ConfigError, StorageError
from workbench.events import EventLog
from workbench.records import PHASES, Profiled, Record
from workbench.runtime.team import Team
from workbench.telemetry.profile import Trace
from workbench.telemetry.profile_trace import joined
from workbench.telemetry.traffic import Recording, links, phases, traffic
from workbench.topology import Topology

ALL = "all.json"  # the trace of every rank of every role
MOST_STEPS = 1000
Recorded = Sequence[Sequence[Recording]]  # process by process


def profiled_steps(asked: object) -> tuple[int, ...]:
    """The steps that ``Run(profile=...)`` names, in order; None: none. Raises ConfigError where that is no list of steps."""
    if asked is None:
        return ()
    words, fix = f"Run(profile={asked!r})", "write profile=range(3, 5) for steps 3 and 4, or leave it out"
    if isinstance(asked, str | bytes | bytearray | memoryview) or not isinstance(asked, Sequence):
        raise ConfigError(words, f"that is a {type(asked).__name__}", fix)
    if not asked:
        raise ConfigError(words, "that is no step at all", fix)
    if not isinstance(asked, range) or asked[0] < 1 or asked[-1] < 1:
        _check_each(asked, words, fix)
    if any(True for _ in islice(asked, MOST_STEPS, None)):
        found = f"each of these steps would leave a trace of every rank, and at most {MOST_STEPS} of a run are profiled"
        raise ConfigError(words if isinstance(asked, range) else "Run(profile=...)", found, fix)
    return tuple(sorted(set(asked)))


def _check_each(asked: Sequence[object], words: str, fix: str) -> None:
    for step in asked:
        if not isinstance(step, int) or isinstance(step, bool):
            raise ConfigError(words, f"{step!r} is a {type(step).__name__}", fix)
        if step < 1:
            raise ConfigError(words, f"there is no step {step}: the first is 1", fix)


def begin(team: Team) -> None:
    """Every worker records its phases from now on."""
    team.everyone("record", True)


def drop(team: Team) -> None:
    """No worker does any more, and what they have is dropped: the step is broken off."""
    if not team.is_broken:
        team.everyone("record", False)


def end(team: Team) -> Recorded:
    """What every worker recorded; none does any more."""
    return tuple(tuple(found) for _, found in team.everyone("recorded"))


def keep(recorded: Recorded, step: int, folder: Path, log: EventLog, machine: Topology | None) -> None:
    """Write what the workers recorded of ``step``: traces into ``folder``, sums into ``log``. Raises StorageError on a full disk."""
    mine = sorted(chain.from_iterable(recorded), key=lambda one: PHASES.index(one.phase))
    path = folder / "profile" / f"step-{step:06d}"
    try:
        _write(path, mine)
    except OSError as error:
        found = f"it can't be written: {error.strerror or error}"
        raise StorageError(f"traces in {path}", found, "free space, or leave profile=... out; then start()") from error
    processes = sum(bool(found) for found in recorded)
    told: list[tuple[Record, str | None, str | None]] = [(Profiled(step, str(path.relative_to(folder)), ALL, processes), None, None)]
    told += [(one.record, one.role, one.phase) for one in (*phases(step, mine), *traffic(step, mine))]
    told += [(link, None, None) for link in links(step, mine, machine)]
    _emit(log, told)


def _emit(log: EventLog, told: Sequence[tuple[Record, str | None, str | None]]) -> None:
    """All of them, each with its role and phase, also where the file can't be written; then raises StorageError."""
    problem: StorageError | None = None
    for record, role, phase in told:
        try:
            log.emit(record, role=role, phase=phase)
        except StorageError as error:
            problem = error
    if problem is not None:
        raise problem


def _write(path: Path, recorded: Sequence[Recording]) -> None:
    """One trace for each rank of each role, named so, and one of all: all or none. A step that is made again replaces what there was."""
    tracks: dict[tuple[str, int], list[tuple[str, Trace]]] = {}
    for one in recorded:
        track = f"{one.role} · rank {one.rank} of {len(one.world)} · {one.device}"
        tracks.setdefault((one.role, one.rank), []).append((track, one.trace))
    made = {f"{role}-{rank}.json": joined(traces) for (role, rank), traces in tracks.items()}
    made[ALL] = joined(list(chain.from_iterable(tracks.values())))
    fresh = path.with_name(f".{path.name}")
    shutil.rmtree(fresh, ignore_errors=True)  # of a process that was killed
    fresh.mkdir(parents=True)
    try:
        for name, trace in made.items():
            (fresh / name).write_text(json.dumps(trace), encoding="utf-8")
        if path.exists():
            shutil.rmtree(path)
        fresh.rename(path)
    except OSError:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
