"""Verdicts about a map before anything starts. Each check is a function of one question that yields findings."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from workbench.findings import SEVERITIES, Finding, Fix
from workbench.mapping.checks import balance, cast, layouts, machine, memory, presence, wires
from workbench.mapping.checks.question import Question, can_be_said, read_algo

if TYPE_CHECKING:
    from workbench.mapping.device_map import DeviceMap

OF_MAP = (
    *(presence.absent, presence.twice, presence.ambiguous, presence.mixed, presence.forms),
    *(cast.missing, cast.useless, cast.inference_only, cast.sharing, cast.overlap),
    *(layouts.group_size, layouts.model_sizes, layouts.possible, layouts.static, layouts.sync_mode),
    *(layouts.gradients, layouts.one_setting, layouts.one_layout, layouts.no_collectives),
    *(memory.too_large, memory.unknown),
    *(wires.tensor_groups, wires.different, wires.one_switch, wires.out_of_fabric, wires.denied, wires.not_known),
    *(presence.unused, balance.together, balance.slow, balance.sharing_pays, balance.no_work),
)
OF_MACHINE = (
    machine.too_old,
    machine.shared_memory,
    machine.cuda_ipc,
    machine.services,
    machine.settings,
)  # no change of the map mends these
GIVING = ("WB104", "WB401")  # what hands out GPUs that the map does not name

__all__ = ["Question", "check", "mended", "read_algo"]


def check(question: Question) -> tuple[Finding, ...]:
    """All findings, the gravest first; those of one severity in the order of the checks. A patch is given only where it leads on."""
    found = _of_map(question)
    kept = [_with_sound_patch(question, found, finding) for finding in found]
    kept += [finding for look in OF_MACHINE for finding in look(question)]
    return tuple(sorted(kept, key=lambda one: SEVERITIES.index(one.severity)))


def mended(question: Question) -> tuple["DeviceMap", tuple[Finding, ...]]:
    """The map with every patch applied, the gravest finding first, each checked anew; and the findings that were patched.

    Of a map with errors only what is wrong is mended: GPUs that it does not name are not given away, since what was meant is not certain.
    It ends: a patch is only given where it leaves fewer findings of its severity, and no more of a graver one.
    """
    done: list[Finding] = []
    question = replace(question, host=None, probe=False)  # no patch mends a machine or a service
    left_alone = GIVING if any(_errors(_of_map(replace(question, brief=True)))) else ()
    while patched := next((one for one in check(question) if one.fix.patch is not None and one.code not in left_alone), None):
        question = replace(question, devices=question.devices.apply(patched))
        done.append(patched)
    return question.devices, tuple(done)


def _of_map(question: Question) -> list[Finding]:
    return [finding for look in OF_MAP for finding in look(question)]


def _with_sound_patch(question: Question, found: list[Finding], finding: Finding) -> Finding:
    """The finding; without its patch where that would leave it there, or make another part of the map worse, or where no map can say it."""
    if finding.fix.patch is None:
        return finding
    plain = replace(finding, fix=Fix(finding.fix.text))
    if not can_be_said(finding.fix.patch):
        return plain
    after = _of_map(replace(question, brief=True).with_map(finding.fix.patch))
    gone = not any((one.code, one.role) == (finding.code, finding.role) for one in after)
    fresh = set(_errors(after)) - set(_errors(found))
    return finding if gone and not fresh and weight(after) < weight(found) else plain


def _errors(found: list[Finding]) -> Iterator[tuple[str, str]]:
    return ((one.code, one.role) for one in found if one.severity == "error")


def weight(found: "list[Finding] | tuple[Finding, ...]") -> tuple[int, ...]:
    """How many findings of each severity, the gravest first: of two maps the one with less is better."""
    count = Counter(one.severity for one in found)
    return tuple(count[severity] for severity in SEVERITIES)
