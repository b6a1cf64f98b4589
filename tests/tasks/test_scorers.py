"""The scorers with names."""

import pytest

from workbench.errors import ConfigError
from workbench.tasks import from_list, regex
from workbench.tasks.scorers import exact, numeric, scorer_name, scorer_named


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
    with pytest.raises(ConfigError, match=r"scorer='numerical': the named scorers are exact, numeric, math\n  fix: write 'numeric'"):
        scorer_named("numerical")
    with pytest.raises(ConfigError, match=r"fix: use one of these, tasks.regex\(...\), or a function"):
        scorer_named("bleu")


@pytest.mark.parametrize(
    ("pattern", "completion", "answer", "score"),
    [
        (r"#### (.+)", "2 + 2\n#### 4", "4", 1),
        (r"#### (.+)", "#### 4\nno:\n#### 5 ", 5, 1),  # the last match; blanks don't count
        (r"#### (.+)", "#### 5\n#### 4", "5", 0),
        (r"#### (.+)", "4", "4", 0),
        (r"\d+", "10 or 12", 12, 1),  # no group: the whole match
        (r"yes|(no)", "yes", "no", 0),  # a group that took no part
    ],
)
def test_regex(pattern: str, completion: str, answer: object, score: float) -> None:
    assert regex(pattern)("", completion, answer) == score
    assert regex(pattern) == regex(pattern)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"regex\('\('\): it is no pattern: missing \)"),
        (r"(a)(b)", r"it has 2 groups, and one holds the answer\n  fix: write \(\?:...\)"),
        (7, "it is no pattern"),
    ],
)
def test_what_is_no_pattern(pattern: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        regex(pattern)  # type: ignore[arg-type]


def test_an_answer_is_needed_to_compare_with() -> None:
    pairs = [(f"q{n}", "" if n == 3 else "1") for n in range(20)]
    for scorer in ("exact", "numeric", "math", regex("(.*)")):
        with pytest.raises(ConfigError, match=r"item 3 of the list: its answer is ''"):
            from_list(pairs, scorer=scorer)
    assert from_list(pairs, scorer=lambda prompt, completion, answer: 1.0)  # a scorer of one's own may need none


def test_names() -> None:
    assert [scorer_name(scorer_named(name)) for name in ("exact", "numeric", "math")] == ["exact", "numeric", "math"]
    assert scorer_name(regex("a")) is None
