"""What ``workbench check`` says of a map, and the map that its patches make."""

from dataclasses import dataclass, replace
from pathlib import Path

from workbench.errors import ConfigError, StateError
from workbench.findings import Finding
from workbench.mapping.checks import Question, check
from workbench.mapping.device_map import DeviceMap
from workbench.mapping.resolve import Resolved
from workbench.mapping.shapes import shape
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


def mended(question: Question) -> tuple[DeviceMap, tuple[Finding, ...]]:
    """The map with every patch applied, the gravest finding first, each checked anew; and the findings that were patched.

    It ends: a patch is only given where it leaves fewer findings of its severity, and no more of a graver one.
    """
    done: list[Finding] = []
    question = replace(question, host=None, probe=False)  # no patch mends a machine or a service
    while patched := next((one for one in check(question) if one.fix.patch is not None), None):
        question = replace(question, devices=question.devices.apply(patched))
        done.append(patched)
    return question.devices, tuple(done)


@dataclass(frozen=True)
class Outcome:
    """A verdict, with what was patched and the file's diff. Printed: tables for people."""

    question: Question
    report: CheckReport
    patched: tuple[Finding, ...] = ()
    diff: str = ""

    def __str__(self) -> str:
        from workbench.mapping.on_machine import OnMachine

        if self.question.topology is None:
            raise StateError("a verdict in words", "it was reached without a machine", "give a topology")
        lines = [f"mended {finding.code}: {finding.fix.text}" for finding in self.patched]
        unsaid = "" if self.question.shape else "no --model: sizes and memory were not checked"
        whole = str(OnMachine(self.question.devices, self.question.topology, self.question.resolved, self.report.findings))
        return "\n\n".join(part.rstrip() for part in (self.diff, "\n".join(lines), whole, unsaid) if part)


def run_check(
    map_file: str,
    machine: str | None,
    *,
    model: str | None,
    algo: str | None,
    batch: int | None,
    lora: bool,
    strict: bool,
    fix: bool,
) -> Outcome:
    """Check the map in ``map_file`` on ``machine`` (None: this one, with its own limits and settings). Raises ConfigError."""
    if fix and map_file == "-":
        raise ConfigError("--fix -", "standard input can't be written to", "give a file")
    if map_file == machine == "-":
        raise ConfigError("MAP and --topology", "both are '-', and standard input can be read once", "give a file for one of them")
    devices, topology = map_of(map_file), topology_of(machine)
    question = Question(
        devices,
        topology,
        algo=algo,
        shape=None if model is None else shape(model),
        batch=batch,
        lora=lora,
        host=host() if machine is None else None,
        probe=True,
    )
    if not fix:
        return Outcome(question, report(question, strict=strict))
    better, patched = mended(question)
    diff = rewrite(Path(map_file), devices, better) if patched else ""
    after = replace(question, devices=better)
    return Outcome(after, report(after, strict=strict), patched, diff)
