"""A question in one line, and what is said to it."""

from typing import Any

from tests.mapping.checks.machines import MACHINES
from workbench.findings import Finding
from workbench.mapping import DeviceMap
from workbench.mapping.checks import Question, check
from workbench.mapping.shapes import shape
from workbench.topology import Topology


def ask(machine: str | Topology | None, *, model: str | None = None, **asked: Any) -> Question:
    """``machine``: a preset, "cpu:4", one of MACHINES, or a topology. Roles are keywords; so are algo, batch, lora, host, probe."""
    roles = {name: asked.pop(name) for name in ("actor", "critic", "rollout", "reference", "reward") if name in asked}
    if isinstance(machine, str):
        slots = machine.startswith("cpu:")
        machine = MACHINES.get(machine) or (Topology.cpu(int(machine[4:])) if slots else Topology.preset(machine))
    return Question(DeviceMap(**roles), machine, shape=shape(model) if model else None, **asked)


def codes(question: Question, severity: str | None = None) -> list[str]:
    return [finding.code for finding in check(question) if severity in (None, finding.severity)]


def only(question: Question, code: str, role: str | None = None) -> Finding:
    """The one finding of a code."""
    found = [finding for finding in check(question) if finding.code == code and role in (None, finding.role)]
    assert len(found) == 1, [str(finding) for finding in check(question)]
    return found[0]
