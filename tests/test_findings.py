"""Findings, and the registry of codes."""

import re

import pytest

from workbench.findings import CODES, SEVERITIES, Finding, Fix, finding


def test_a_finding_in_words():
    one = finding("WB101", "actor", "actor: 9", "no local:9", "name another")
    assert one == Finding("WB101", "actor", "actor: 9", "no local:9", Fix("name another"), "error")
    assert str(one) == "WB101 error: actor: 9: no local:9\n  fix: name another"


def test_a_severity_may_be_given():
    assert finding("WB101", "", "a", "b", Fix("c", {"critic": None}), "info").severity == "info"
    with pytest.raises(KeyError):
        finding("WB999", "", "a", "b", "c")


def test_the_codes():
    assert all(re.fullmatch(r"WB\d{3}", code) and kind.severity in SEVERITIES for code, kind in CODES.items())
    assert len({kind.title for kind in CODES.values()}) == len(CODES)
