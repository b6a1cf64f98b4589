"""Findings, and the registry of codes."""

import re

import pytest

from workbench.findings import CODES, SEVERITIES, Finding, Fix, finding, visible


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


def test_what_a_terminal_would_obey_is_shown():
    assert visible("a\x1b[31m\x00\r\x9b\u202e\ud800 \u00fc\u4e2d\n\tb") == "a\\x1b[31m\\x00\\r\\x9b\\u202e\\ud800 \u00fc\u4e2d\n\tb"
    assert "\x1b" not in str(finding("WB101", "actor", "actor: 9", "\x1b]0;gone\x07 has none", "name \x1bc"))
