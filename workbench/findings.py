"""One verdict about a map, a machine or a run, and the registry of all codes.

Static checks (``workbench.mapping.checks``) and the diagnosis of a live run speak in findings. Each code is stable and
has a section in ``docs/findings.md`` with an example and a fix.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "info")
# What a terminal obeys, or shows as something else: control characters, changes of direction, line separators, halves of characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Fix:
    """What to do about a finding. ``patch``: where a change of the map does it, role -> its new placement as JSON; None: no such role."""

    text: str
    patch: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Finding:
    """One verdict: what was asked for, what is true, what to do.

    ``severity``: "error" (it can't run, or would be wrong), "warning" (it runs, badly or at a risk), "info" (good to know).
    ``role``: whom it concerns, "" for the whole map.
    """

    code: str
    role: str
    asked: str
    found: str
    fix: Fix
    severity: Severity = field(default="warning")

    def __str__(self) -> str:
        return visible(f"{self.code} {self.severity}: {self.asked}: {self.found}\n  fix: {self.fix.text}")


def visible(text: str) -> str:
    """``text`` for a terminal: names of machines and services come from elsewhere, so what is no text in them is written as an escape."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def finding(code: str, role: str, asked: str, found: str, fix: str | Fix, severity: Severity | None = None) -> Finding:
    """A finding of a code of the registry, with the severity that it has there unless another is given."""
    return Finding(code, str(role), asked, found, Fix(fix) if isinstance(fix, str) else fix, severity or CODES[code].severity)


@dataclass(frozen=True)
class Code:
    """What a code stands for: a title, and how grave it is."""

    title: str
    severity: Severity


STEP_CODES: Mapping[str, Code] = {  # of what a run learns
    # the policy
    "WB701": Code("KL blows up", "error"),
    "WB702": Code("entropy collapses", "warning"),
    "WB703": Code("nothing to learn from", "warning"),
    "WB704": Code("completions are cut", "warning"),
    # the critic
    "WB711": Code("value loss explodes", "error"),
    "WB712": Code("critic explains nothing", "warning"),
    # the reward
    "WB721": Code("rewards drift", "warning"),
    "WB722": Code("length is rewarded", "warning"),
    "WB723": Code("repetition is rewarded", "warning"),
}
LOAD_CODES: Mapping[str, Code] = {  # of how it uses its machine
    "WB731": Code("starved of data", "warning"),
    "WB732": Code("bound by communication", "warning"),
    "WB733": Code("memory full and little work", "warning"),
    "WB734": Code("one rank is late", "warning"),
    "WB735": Code("memory nearly full", "warning"),
    "WB736": Code("clocks are slowed", "warning"),
    "WB737": Code("rollout and update take turns", "warning"),
    "WB738": Code("engine queue too long or too short", "warning"),
}
RUN_CODES: Mapping[str, Code] = {**STEP_CODES, **LOAD_CODES}  # of a run while it trains; ``workbench.telemetry`` finds them

CODES: Mapping[str, Code] = {
    # devices
    "WB101": Code("device absent", "error"),
    "WB102": Code("device named twice", "error"),
    "WB103": Code("device ambiguous over nodes", "error"),
    "WB104": Code("GPUs mapped to nothing", "warning"),
    "WB105": Code("mixed devices", "error"),
    "WB106": Code("a GPU that the engine can't use", "error"),
    # roles
    "WB111": Code("role missing for the algorithm", "error"),
    "WB112": Code("role without use for the algorithm", "error"),
    "WB113": Code("trained role in a group for inference only", "error"),
    "WB114": Code("role can't be shared", "error"),
    "WB115": Code("forbidden overlap", "error"),
    "WB116": Code("remote service for a role that can't be remote", "error"),
    # layouts
    "WB201": Code("tensor parallelism does not divide the attention heads", "error"),
    "WB202": Code("tensor parallelism does not fit the key-value heads", "error"),
    "WB203": Code("tensor parallelism does not divide the vocabulary", "warning"),
    "WB204": Code("group size does not divide", "error"),
    "WB205": Code("sizes don't multiply to the group", "error"),
    "WB206": Code("layout that the role can't have", "error"),
    "WB207": Code("static placement where weights are resharded", "error"),
    "WB208": Code("sync mode that the map rules out", "error"),
    "WB209": Code("gradients without a group", "error"),
    "WB210": Code("two collective settings in one pool", "error"),
    "WB211": Code("two training layouts in one pool", "error"),
    "WB212": Code("collective setting without collectives", "info"),
    # links
    "WB301": Code("tensor-parallel group outside a clique", "warning"),
    "WB302": Code("tensor-parallel group across sockets", "warning"),
    "WB303": Code("tensor-parallel group across nodes", "warning"),
    "WB304": Code("members of different type or memory", "warning"),
    "WB305": Code("actor and rollout behind one PCIe switch", "warning"),
    "WB306": Code("a GPU out of the fabric", "warning"),
    "WB307": Code("peer-to-peer access denied", "error"),
    "WB308": Code("links not known", "info"),
    # balance
    "WB401": Code("actor and critic together while GPUs idle", "warning"),
    "WB402": Code("heavy role on the slow GPU", "warning"),
    "WB403": Code("roles that could share", "info"),
    "WB404": Code("ranks without work", "warning"),
    # memory
    "WB501": Code("weights can't fit", "error"),
    "WB502": Code("memory not known", "warning"),
    # the machine
    "WB601": Code("/dev/shm too small", "error"),
    "WB602": Code("CUDA IPC forbidden", "error"),
    "WB603": Code("service does not answer", "error"),
    "WB604": Code("a setting that does nothing", "info"),
    "WB605": Code("a setting that misleads", "warning"),
    **RUN_CODES,
}
