"""The scorers with names."""

import pytest

from workbench.errors import ConfigError
from workbench.tasks.scorers import exact, numeric, scorer_named


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [("abc", "abc", 1), (" abc\n", "abc", 1), ("abcd", "abc", 0), ("", "abc", 0), ("Abc", "abc", 0), ("12", 12, 1)],
)
def test_exact(completion: str, answer: object, score: float) -> None:
    assert exact("", completion, answer) == score


@pytest.mark.parametrize(
    ("completion", "answer", "score"),
    [
        ("35", 35, 1),
        ("12 + 30 - 7 = 35.", "35", 1),  # the last number, without the full stop
        ("35 or 36", 35, 0),
        ("so it is -4", -4, 1),
        ("10-7", 7, 1),  # a minus between numbers is no sign
        ("10 - -7", -7, 1),
        ("1,234.50", 1234.5, 1),
        ("1,2,3", 3, 1),  # a list, and no number of thousands
        ("2e3", "2,000", 1),
        (".5", 0.5, 1),
        ("0.3333333", 1 / 3, 1),
        ("0.333", 1 / 3, 0),
        ("0", 0, 1),
        ("none", 3, 0),
        ("", 3, 0),
        ("nan", 3, 0),
        ("1e999", 3, 0),
    ],
)
def test_numeric(completion: str, answer: object, score: float) -> None:
    assert numeric("", completion, answer) == score


def test_an_unknown_name() -> None:
    assert scorer_named("numeric") is numeric
    with pytest.raises(ConfigError, match=r"scorer='numerical': the named scorers are exact, numeric\n  fix: write 'numeric'"):
        scorer_named("numerical")
    with pytest.raises(ConfigError, match="fix: use one of these, or give a function"):
        scorer_named("bleu")
