"""The driver's part of a profiled step: workers begin and end to record, their traces go into the folder, the sums into the stream."""

import json
import shutil
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from workbench.errors import ConfigError, StorageError
from workbench.events import EventLog
from workbench.records import PHASES, Profiled
from workbench.runtime.team import Team
from workbench.telemetry.profile import Trace
from workbench.telemetry.profile_trace import joined
from workbench.telemetry.traffic import Recording, links, phases, traffic
from workbench.topology import Topology

ALL = "all.json"  # the trace of every rank of every role


def profiled_steps(asked: object) -> tuple[int, ...]:
    """The steps that ``Run(profile=...)`` names, in order; None: none. Raises ConfigError where that is no list of steps."""
    if asked is None:
        return ()
    words, fix = f"Run(profile={asked!r})", "write profile=range(3, 5) for steps 3 and 4, or leave it out"
    if isinstance(asked, str | bytes) or not isinstance(asked, Sequence):
        raise ConfigError(words, f"that is a {type(asked).__name__}", fix)
    if not asked:
        raise ConfigError(words, "that is no step at all", fix)
    for step in asked:
        if not isinstance(step, int) or isinstance(step, bool):
            raise ConfigError(words, f"{step!r} is a {type(step).__name__}", fix)
        if step < 1:
            raise ConfigError(words, f"there is no step {step}: the first is 1", fix)
    return tuple(sorted(set(asked)))


def begin(team: Team) -> None:
    """Every worker records its phases from now on."""
    team.everyone("record", True)


def drop(team: Team) -> None:
    """No worker does any more, and what they have is dropped: the step is broken off."""
    if not team.is_broken:
        team.everyone("record", False)


def keep(team: Team, step: int, folder: Path, log: EventLog, machine: Topology | None) -> None:
    """Get what the workers recorded of ``step``: traces into ``folder``, sums into ``log``. Raises StorageError on a full disk."""
    recorded: list[list[Recording]] = [found for _, found in team.everyone("recorded")]
    mine = sorted(chain.from_iterable(recorded), key=lambda one: PHASES.index(one.phase))
    path = folder / "profile" / f"step-{step:06d}"
    try:
        _write(path, mine)
    except OSError as error:
        found = f"it can't be written: {error.strerror or error}"
        raise StorageError(f"traces in {path}", found, "free space, or leave profile=... out; then start()") from error
    log.emit(Profiled(step, str(path.relative_to(folder)), ALL, sum(bool(found) for found in recorded)))
    for one in (*phases(step, mine), *traffic(step, mine)):
        log.emit(one.record, role=one.role, phase=one.phase)
    for link in links(step, mine, machine):
        log.emit(link)


def _write(path: Path, recorded: Sequence[Recording]) -> None:
    """One trace for each rank of each role, named so, and one of all. A step that is made again replaces what there was."""
    if path.exists():
        shutil.rmtree(path)
    path.mkdir(parents=True)
    tracks: dict[tuple[str, int], list[tuple[str, Trace]]] = {}
    for one in recorded:
        track = f"{one.role} · rank {one.rank} of {len(one.world)} · {one.device}"
        tracks.setdefault((one.role, one.rank), []).append((track, one.trace))
    for (role, rank), traces in tracks.items():
        (path / f"{role}-{rank}.json").write_text(json.dumps(joined(traces)), encoding="utf-8")
    (path / ALL).write_text(json.dumps(joined(list(chain.from_iterable(tracks.values())))), encoding="utf-8")
