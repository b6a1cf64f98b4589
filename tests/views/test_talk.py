"""Trained beside base."""

from workbench.batch import Completion
from workbench.views.talk import comparison


def test_one_answer_each() -> None:
    assert comparison("sort 312=", "123", "321").text.splitlines() == ["prompt   sort 312=", "trained  123", "base     321"]


def test_completions_and_several_samples() -> None:
    found = comparison("p", [Completion((1,), (0.0,), "a", "stop"), "b\nc "], Completion((1,), (0.0,), "", "stop"))
    assert (found.trained, found.base) == (("a", "b\nc "), ("",))
    assert found.text.splitlines() == ["prompt   p", "trained  a", "         b", "         c·", "base     (empty)"]


def test_html_is_escaped_and_keeps_line_breaks() -> None:
    html = comparison("<p>", "<b>\nx", "<script>").html
    assert "<script" not in html
    assert "<b>\n" not in html
    assert "&lt;b&gt;" in html
    assert "↵\n" in html
    assert html.index("trained") < html.index("base")
