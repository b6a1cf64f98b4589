"""docs/findings.md: every code has a section, and every example says what it says it does."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.mapping.checks.machines import MACHINES
from workbench.findings import CODES, RUN_CODES, Finding
from workbench.mapping import DeviceMap
from workbench.mapping.checks import Question, check, mended
from workbench.mapping.shapes import shape
from workbench.survey.mend import rewrite
from workbench.topology import Topology
from workbench.topology.detection.host import Host

TEXT = (Path(__file__).parent.parent.parent / "docs/findings.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (WB\d{3}) (.+)$", TEXT, re.MULTILINE))
BLOCK = re.compile(r"^```yaml (WB\d{3})( mended)?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Example:
    """One fenced map, and what it is asked."""

    code: str
    good: bool
    asked: dict[str, str]
    text: str

    @property
    def question(self) -> Question:
        asked = dict(self.asked)
        machine = asked.pop("topology")
        topology = Topology.preset(machine.removeprefix("preset:")) if machine.startswith("preset:") else MACHINES[machine]
        topology = topology.with_memory(float(asked.pop("memory_gib"))) if "memory_gib" in asked else topology
        model = shape(asked.pop("model")) if "model" in asked else None
        model = replace(model, vocabulary=int(asked.pop("vocabulary"))) if "vocabulary" in asked else model
        question = Question(
            DeviceMap.parse(self.text),
            topology,
            algo=asked.pop("algo", None),
            shape=model,
            batch=int(asked.pop("batch")) if "batch" in asked else None,
            lora=asked.pop("lora", "yes") == "yes",
            probe=asked.pop("probe", "no") == "yes",
            host=host_of(asked),
        )
        assert not asked, f"the test does not know {asked}"
        return question


def host_of(asked: dict[str, str]) -> Host | None:
    """The facts of a host, taken out of ``asked``; None where there are none."""
    if not asked:
        return None
    shm, scope = float(asked.pop("shm_gib", 8)), int(asked.pop("ptrace_scope", 0))
    environment = dict([asked.pop("env").split("=")]) if asked.get("env") else {}
    asked.pop("env", None)
    if "alloc" in asked:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = asked.pop("alloc")
    return Host(shm_bytes_free=int(shm * 2**30), ptrace_scope=scope, may_ptrace=False, environment=environment)


def read(match: re.Match[str]) -> Example:
    code, good, words, text = match.groups()
    return Example(code, bool(good), dict(word.split("=", 1) for word in words.split()), text)


EXAMPLES = [read(match) for match in BLOCK.finditer(TEXT)]
BAD = [example for example in EXAMPLES if not example.good]


def of_code(example: Example) -> list[Finding]:
    return [finding for finding in check(example.question) if finding.code == example.code]


def errors(findings: tuple[Finding, ...]) -> set[tuple[str, str]]:
    return {(one.code, one.role) for one in findings if one.severity == "error"}


def test_every_code_has_its_section_and_each_of_a_map_two_examples():
    assert {code: kind.title for code, kind in CODES.items()} == SECTIONS
    of_maps = [code for code in CODES if code not in RUN_CODES]  # the others: tests/telemetry/test_docs_findings.py
    assert [(example.code, example.good) for example in EXAMPLES] == [(code, good) for code in of_maps for good in (False, True)]


def test_the_table_has_every_code_and_links_to_it():
    rows = re.findall(r"^\| \[(WB\d{3})\]\(#([^)]+)\) \| (.+) \| (\w+) \|$", TEXT, re.MULTILINE)
    assert {code: (title, severity) for code, _, title, severity in rows} == {
        code: (one.title, one.severity) for code, one in CODES.items()
    }
    for code, anchor, title, _ in rows:
        assert anchor == re.sub(r"[^\w\- ]", "", f"{code} {title}".lower()).replace(" ", "-")


@pytest.mark.parametrize("example", BAD, ids=lambda example: example.code)
def test_the_first_map_yields_the_finding_as_grave_as_usual(example):
    usual = "warning" if example.code == "WB603" else CODES[example.code].severity  # asked from another machine
    assert {finding.severity for finding in of_code(example)} == {usual}


@pytest.mark.parametrize("example", [one for one in EXAMPLES if one.good], ids=lambda example: example.code)
def test_the_second_map_is_mended(example):
    assert of_code(example) == []
    assert errors(check(example.question)) == set()


@pytest.mark.parametrize("example", BAD, ids=lambda example: example.code)
def test_a_patch_makes_the_finding_go_away(example):
    question = example.question
    before = check(question)
    for finding in of_code(example):
        if finding.fix.patch is not None:
            after = check(replace(question, devices=question.devices.apply(finding)))
            assert (finding.code, finding.role) not in {(one.code, one.role) for one in after}
            assert errors(after) <= errors(before)


@pytest.mark.parametrize("example", BAD, ids=lambda example: example.code)
def test_fix_writes_a_file_without_the_finding(example, tmp_path):
    question, path = example.question, tmp_path / "map.yaml"
    patches = [finding.fix.patch is not None for finding in of_code(example)]
    path.write_text(example.text)
    better, patched = mended(question)
    if patched:
        rewrite(path, question.devices, better)
    after = check(replace(question, devices=DeviceMap.load(path)))
    assert DeviceMap.load(path) == better
    assert all(patches) == (example.code not in {one.code for one in after})
    assert errors(after) <= errors(check(question))


def test_which_codes_have_a_patch():
    """Text is all there is where the machine is at fault, or where only a person knows what was meant."""
    without = {example.code for example in BAD for finding in of_code(example) if finding.fix.patch is None}
    assert without == {"WB106", "WB113", "WB502", "WB308", "WB601", "WB602", "WB603", "WB604", "WB605"}
