"""Model output made visible and safe; numbers, times and sizes as people write them."""

import math

import pytest

from workbench.views.text import columns, duration, html_text, marks, number, shorten, size, spark, visible


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one word", "one word"),
        (" 12\t", "·12⇥"),
        ("a  b ", "a··b·"),
        ("two\nlines\r", "two↵lines␍"),
        ("bell\x07\x00", "bell\\x07\\x00"),
        ("\u202eevil\u200b", "\\u202eevil\\u200b"),
        ("a\u00a0b", "a⍽b"),
        ("lone \ud800", "lone \\ud800"),
        ("日本 é 😀", "日本 é 😀"),
        ("", ""),
    ],
)
def test_nothing_stays_invisible(text: str, expected: str) -> None:
    assert visible(text) == expected


def test_marks_tell_what_was_replaced_from_what_was_there() -> None:
    assert marks("·a\n") == [("·a", False), ("↵", True)]


def test_html_is_escaped_also_in_the_hover_text() -> None:
    assert html_text('<img src=x onerror="alert(1)">', 100) == (
        '<span title="&lt;img src=x onerror=&quot;alert(1)&quot;&gt;">&lt;img src=x onerror=&quot;alert(1)&quot;&gt;</span>'
    )


def test_long_text_is_cut_and_whole_on_hover() -> None:
    assert html_text("abcdefgh", 5) == '<span title="abcdefgh">abcd…</span>'


def test_a_line_end_breaks_the_line_only_where_asked() -> None:
    assert "↵</span>b" in html_text("a\nb", 9)
    assert "↵\n</span>b" in html_text("a\nb", 9, breaks=True)


def test_an_empty_text_says_so() -> None:
    assert "(empty)" in html_text("", 10)


def test_shorten_keeps_what_fits() -> None:
    assert (shorten("12345", 5), shorten("123456", 5)) == ("12345", "1234…")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, "0"), (1.0, "1"), (0.784, "0.78"), (-0.5, "-0.50"), (0.0051, "0.0051"), (1.23e-5, "1.2e-5"), (9e-6, "9e-6"), (12.34, "12.3"),
        (7502.4, "7502"), (12345, "12.3k"), (2_500_000, "2.5M"), (None, "—"), (math.nan, "—"), (math.inf, "—"),
    ],
)  # fmt: skip
def test_numbers_keep_the_digits_that_matter(value: float | None, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, "0 s"), (0.0042, "4.2 ms"), (0.48, "0.48 s"), (52.2, "52 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (None, "—")],
)
def test_durations(seconds: float | None, expected: str) -> None:
    assert duration(seconds) == expected


@pytest.mark.parametrize(("count", "expected"), [(512, "512 B"), (786_432, "768 KiB"), (1.5 * 2**30, "1.5 GiB"), (None, "—")])
def test_sizes(count: float | None, expected: str) -> None:
    assert size(count) == expected


def test_spark_goes_from_the_lowest_to_the_highest() -> None:
    assert spark([0.0, 1.0, None, 2.0], width=4) == "▁▅ █"
    assert spark([3.0, 3.0]) == "▄▄"
    assert spark([None, None]) == "  "
    assert spark([]) == ""
    assert len(spark([float(i) for i in range(1000)], width=32)) == 32


def test_columns_align_and_end_without_blanks() -> None:
    assert columns([("a", "1"), ("long", "22")], "<>") == ["a      1", "long  22"]
