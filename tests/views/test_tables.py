"""Tables in two forms."""

from workbench.views.tables import Table, as_html, as_text

TABLE = Table("Time <s>", ("phase", "p50"), (("rollout", "0.48 s"), ("a & b", "4 ms")), "<>")


def test_text_is_aligned() -> None:
    assert as_text(TABLE).splitlines() == ["Time <s>", "  phase       p50", "  rollout  0.48 s", "  a & b      4 ms"]


def test_html_is_escaped_and_has_a_row_for_each() -> None:
    html = as_html(TABLE)
    assert "Time &lt;s&gt;" in html
    assert "a &amp; b" in html
    assert html.count("<tr>") == 3


def test_columns_without_names_have_no_head() -> None:
    table = Table("t", ("", ""), (("a", "b"),), "<<")
    assert as_text(table).splitlines() == ["t", "  a  b"]
    assert as_html(table).count("<tr>") == 1
