"""A map on a machine: what ``devices.on(topology)`` shows as the last line of a cell."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from workbench.errors import StateError
from workbench.findings import SEVERITIES, Finding, visible
from workbench.mapping.checks import Question, check
from workbench.mapping.checks.memory import budget, held
from workbench.mapping.device_map import DeviceMap
from workbench.mapping.devices import spans
from workbench.mapping.picture import Verdict, casting, how
from workbench.mapping.resolve import Resolved
from workbench.roles import Role
from workbench.topology import Topology
from workbench.topology.drawing.scene import Scene
from workbench.topology.drawing.summary import MOST_TILES
from workbench.topology.drawing.svg import Theme


@dataclass(frozen=True)
class OnMachine:
    """A map, the machine, what each role comes to there, and the findings, the gravest first. ``unchecked``: what they don't cover."""

    devices: DeviceMap
    topology: Topology
    resolved: Mapping[Role, Resolved]
    findings: tuple[Finding, ...]
    budget: tuple[str, ...] = ()  # what each GPU holds at least, where the model is known
    held: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # device -> GiB by what it is; of machines drawn GPU by GPU
    unchecked: str = ""

    @classmethod
    def of(cls, question: Question, findings: tuple[Finding, ...] | None = None) -> "OnMachine":
        """The answer to ``question``, which has a topology. ``findings``: its own, where they are there already."""
        if question.topology is None:
            raise StateError("a map on a machine", "the question names no machine", "give a topology")
        found = check(question) if findings is None else findings
        small = question.topology.ids if len(question.topology.ids) <= MOST_TILES else ()
        parts = {device: holds for device in small if (holds := held(question, device))}
        return cls(question.devices, question.topology, question.resolved, found, tuple(budget(question)), parts, _unchecked(question))

    @property
    def ok(self) -> bool:
        """Whether no finding is an error."""
        return not any(finding.severity == "error" for finding in self.findings)

    @cached_property
    def scene(self) -> Scene:
        """The drawing as plain data."""
        from workbench.topology.drawing.machine import draw

        verdict = Verdict(self.findings, self.unchecked, self.held, self.budget)
        return draw(self.topology, casting(self.devices, self.topology, self.resolved, verdict))

    def svg(self, theme: Theme = "auto") -> str:
        """The drawing as one ``<svg>`` element. ``theme``: "light", "dark", or "auto" for that of the page."""
        from workbench.topology.drawing.svg import svg

        return svg(self.scene, theme)

    def png(self, theme: str = "light") -> bytes:
        """The drawing as an image, twice as large as it is shown. ``theme``: "light" or "dark"."""
        from workbench.topology.drawing.png import png

        return png(self.scene, theme)

    def save(self, path: str | Path, theme: Theme | None = None) -> Path:
        """Write the drawing as .svg or .png. Raises ConfigError for another suffix, or where it can't be written."""
        from workbench.topology.drawing.display import save

        return save(self.scene, path, theme)

    def __str__(self) -> str:
        """The roles on the machine, and the findings with their fixes."""
        rows = [("role", "devices", "how"), *((str(role), _where(one), how(one)) for role, one in self.resolved.items())]
        width = max(len(where) for _, where, _ in rows)
        table = [f"{role:<9}  {where:<{width}}  {said}".rstrip() for role, where, said in rows]
        sums = ["", "at least, before activations and KV cache:", *(f"  {line}" for line in self.budget)] if self.budget else []
        title = f"on {self.topology.name}: {self.verdict}"
        return visible("\n".join([title, "", *table, *sums, *(f"\n{finding}" for finding in self.findings)]))

    __repr__ = __str__

    @property
    def verdict(self) -> str:
        """ "1 error, 2 warnings", or "no findings", and then what was not checked."""
        counts = [(sum(finding.severity == severity for finding in self.findings), severity) for severity in SEVERITIES]
        words = [f"{count} {severity}{'s' if count > 1 and severity != 'info' else ''}" for count, severity in counts if count]
        return "; ".join(filter(None, (", ".join(words) or "no findings", self.unchecked)))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """The drawing and the table, as the last line of a notebook's cell."""
        from workbench.topology.drawing.display import bundle

        return bundle(self.scene, str(self))


def _unchecked(question: Question) -> str:
    """What no finding speaks of, as it was not asked or can't be known. Of GPUs whose memory nobody told WB502 speaks."""
    if question.shape is None:
        return "sizes and memory were not checked: no model given"
    if question.topology is not None and question.topology.is_cpu:
        return "memory was not checked: CPU slots stand for GPUs"
    return ""


def _where(one: Resolved) -> str:
    return one.url or spans(one.devices)
