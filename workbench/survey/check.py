"""What ``workbench check`` says of a map, and the map that its patches make."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.errors import ConfigError
from workbench.findings import Finding
from workbench.mapping.checks import Question, check, mended
from workbench.mapping.resolve import Resolved
from workbench.mapping.runnable import limit
from workbench.mapping.shapes import shape
from workbench.roles import Role
from workbench.survey.mend import rewrite
from workbench.survey.read import map_of, topology_of
from workbench.topology.detection.host import host


@dataclass(frozen=True)
class CheckReport:
    """``ok``: nothing of severity error (strict: nor warning). ``resolved``: role -> what it comes to on the machine."""

    ok: bool
    resolved: dict[str, Resolved]
    findings: tuple[Finding, ...]


def report(question: Question, *, strict: bool = False) -> CheckReport:
    """The verdict."""
    found = check(question)
    bad = ("error", "warning") if strict else ("error",)
    ok = not any(finding.severity in bad for finding in found)
    return CheckReport(ok, {str(role): place for role, place in question.resolved.items()}, found)


@dataclass(frozen=True)
class Outcome:
    """A verdict, with what was patched and the file's diff. Printed: tables for people."""

    question: Question
    report: CheckReport
    patched: tuple[Finding, ...] = ()
    diff: str = ""

    def __str__(self) -> str:
        from workbench.mapping.on_machine import OnMachine

        lines = [f"mended {finding.code}: {finding.fix.text}" for finding in self.patched]
        whole = str(OnMachine.of(self.question, self.report.findings))
        return "\n\n".join(part.rstrip() for part in (self.diff, "\n".join(lines), whole, "\n".join(self._unsaid())) if part)

    def _unsaid(self) -> Iterator[str]:
        """What this version can't do yet, or does otherwise."""
        reason = limit(self.question.devices, lora=self.question.lora)
        if self.report.ok and reason:
            yield f"this version can't run it yet: {reason}"
        elif self.report.ok and self.question.places[Role.ROLLOUT].mode == "auto":
            mode = self.question.resolved[Role.ROLLOUT].mode
            if mode in ("zero_copy", "merged"):
                yield f"this version takes mode adapter where the map leaves it open; write mode: {mode} in the map to have that"


@dataclass(frozen=True)
class Asked:
    """What stands on the command line. ``machine`` None: this one. ``memory_gib``: of GPUs whose topology doesn't say it."""

    map_file: str
    machine: str | None = None
    model: str | None = None
    algo: str | None = None
    batch: int | None = None
    memory_gib: float | None = None
    full: bool = False
    strict: bool = False
    fix: bool = False


def run_check(asked: Asked) -> Outcome:
    """Check a map; on this machine with its own limits and settings, too. Raises ConfigError, and StorageError where --fix can't write."""
    question = _question(asked)
    if not asked.fix:
        return Outcome(question, report(question, strict=asked.strict))
    better, patched = mended(question)
    diff = rewrite(Path(asked.map_file), question.devices, better) if patched else ""
    after = replace(question, devices=better)
    return Outcome(after, report(after, strict=asked.strict), patched, diff)


def _question(asked: Asked) -> Question:
    if asked.fix and asked.map_file == "-":
        raise ConfigError("--fix -", "standard input can't be written to", "give a file")
    if asked.map_file == asked.machine == "-":
        raise ConfigError("MAP and --topology", "both are '-', and standard input can be read once", "give a file for one of them")
    devices, topology = map_of(asked.map_file), topology_of(asked.machine)
    return Question(
        devices,
        topology if asked.memory_gib is None else topology.with_memory(asked.memory_gib),
        algo=asked.algo,
        shape=None if asked.model is None else shape(asked.model),
        batch=asked.batch,
        lora=not asked.full,
        host=host() if asked.machine is None else None,
        probe=True,
    )
