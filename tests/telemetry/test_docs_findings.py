"""docs/findings.md: every code of a live run has two streams of steps, one that shows it and one that does not."""

import re
from pathlib import Path

import pytest

from tests.telemetry.streams import records, watched
from workbench.findings import RUN_CODES

TEXT = (Path(__file__).parent.parent.parent / "docs/findings.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```steps (WB\d{3})( mended)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLES = [(code, bool(good), dict(line.split(": ") for line in text.splitlines())) for code, good, text in BLOCK.findall(TEXT)]


def test_every_code_has_two_examples():
    assert [(code, good) for code, good, _ in EXAMPLES] == [(code, good) for code in RUN_CODES for good in (False, True)]


@pytest.mark.parametrize(("code", "good", "columns"), EXAMPLES, ids=lambda value: value if isinstance(value, str) else "")
def test_the_first_shows_the_finding_alone_and_the_second_none(code, good, columns):
    began = [(one.code, one.title, one.severity) for one in watched(records(columns)) if not one.ended]
    assert began == ([] if good else [(code, RUN_CODES[code].title, RUN_CODES[code].severity)])
