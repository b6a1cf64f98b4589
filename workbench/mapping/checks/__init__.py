"""Verdicts about a map before anything starts. Each check is a function of one question that yields findings."""

from workbench.findings import SEVERITIES, Finding
from workbench.mapping.checks import balance, cast, layouts, machine, memory, presence, wires
from workbench.mapping.checks.question import Question, read_algo

CHECKS = (
    *(presence.absent, presence.twice, presence.ambiguous, presence.mixed, presence.forms),
    *(cast.missing, cast.useless, cast.inference_only, cast.sharing, cast.overlap),
    *(layouts.group_size, layouts.model_sizes, layouts.possible, layouts.static, layouts.sync_mode, layouts.gradients, layouts.one_setting),
    *(memory.too_large, machine.shared_memory, machine.cuda_ipc, machine.services),
    *(wires.tensor_groups, wires.different, wires.one_switch, wires.out_of_fabric, wires.denied, wires.not_known),
    *(balance.together, balance.slow, balance.sharing_pays, balance.no_work, presence.unused, machine.settings),
)

__all__ = ["CHECKS", "Question", "check", "read_algo"]


def check(question: Question) -> tuple[Finding, ...]:
    """All findings, the gravest first; those of one severity in the order of the checks."""
    found = [finding for look in CHECKS for finding in look(question)]
    return tuple(sorted(found, key=lambda one: SEVERITIES.index(one.severity)))
