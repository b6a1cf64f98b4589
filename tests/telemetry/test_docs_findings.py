"""docs/findings.md: every code of a live run has two streams, one that shows it and one that does not."""

import re
from pathlib import Path

import pytest

from tests.telemetry.loads import said, written
from tests.telemetry.streams import records, watched
from workbench.findings import LOAD_CODES, RUN_CODES, STEP_CODES

TEXT = (Path(__file__).parent.parent.parent / "docs/findings.md").read_text(encoding="utf-8")


def examples(kind: str) -> list[tuple[str, bool, dict[str, str]]]:
    """(code, whether it is the mended one, its columns) of the blocks of a kind."""
    block = re.compile(rf"^```{kind} (WB\d{{3}})( mended)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [(code, bool(good), dict(line.split(": ") for line in text.splitlines())) for code, good, text in block.findall(TEXT)]


STEPS, LOADS = examples("steps"), examples("load")


def test_every_code_has_two_examples():
    for found, codes in ((STEPS, STEP_CODES), (LOADS, LOAD_CODES)):
        assert [(code, good) for code, good, _ in found] == [(code, good) for code in codes for good in (False, True)]


@pytest.mark.parametrize(("code", "good", "columns"), [*STEPS, *LOADS], ids=lambda value: value if isinstance(value, str) else "")
def test_the_first_shows_the_finding_alone_and_the_second_none(code, good, columns):
    found = watched(records(columns)) if code in STEP_CODES else said(written(columns))
    began = [(one.code, one.title, one.severity) for one in found if not one.ended]
    assert began == ([] if good else [(code, RUN_CODES[code].title, RUN_CODES[code].severity)])
