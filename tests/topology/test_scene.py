"""Shapes, and how wide texts are taken to be."""

import pytest

from workbench.topology.drawing.scene import Arc, Text, cut, fit, text_width, wrap


def test_width_is_that_of_the_letters() -> None:
    assert text_width("ill", 10) == pytest.approx(8.4)  # three of 0.28 em
    assert text_width("a0", 10) == pytest.approx(12.8)  # two of 0.64 em
    assert text_width("模型", 10) == pytest.approx(20.0)  # as wide as high
    assert text_width("a0", 10, bold=True) == pytest.approx(12.8 * 1.13)
    assert text_width("", 10) == 0


@pytest.mark.parametrize("text", ["rollout tp2 #0", "reference", "NVIDIA A100-SXM4-80GB", "they take turns on local:0, local:1", "mlx5_10"])
@pytest.mark.parametrize(("bold", "file"), [(False, "DejaVuSans.ttf"), (True, "DejaVuSans-Bold.ttf")])
def test_width_is_near_the_real_one(text: str, bold: bool, file: str) -> None:
    import matplotlib
    from matplotlib.ft2font import FT2Font

    font = FT2Font(f"{matplotlib.get_data_path()}/fonts/ttf/{file}")
    font.set_size(100, 72)
    font.set_text(text)
    assert text_width(text, 100, bold) / (font.get_width_height()[0] / 64) == pytest.approx(1.06, abs=0.09)


def test_the_longest_that_fits() -> None:
    options = ("rollout tp2 #0", "rollout", "r")
    assert fit(options, 200, 10) == "rollout tp2 #0"
    assert fit(options, 45, 10) == "rollout"
    assert fit(options, 1, 10) == ""


def test_cut_ends_with_a_mark_and_fits() -> None:
    assert cut("short", 100, 10) == "short"
    assert cut("a" * 50, 68, 10) == "a" * 9 + "…"  # nine of 6.4 pixels, and the mark of 10
    assert cut("abc", 1, 10) == ""


def test_wrap_breaks_at_spaces_and_long_words_within() -> None:
    assert wrap("aaa bbb ccc", 45, 10) == ("aaa bbb", "ccc")
    assert wrap("http://reward.example:8080", 100, 10) == ("http://reward.", "example:8080")
    assert wrap("a" * 20, 64, 10) == ("a" * 10, "a" * 10)
    assert wrap("", 64, 10) == ()


def test_wrap_cuts_what_is_too_long() -> None:
    lines = wrap("word " * 100, 100, 10, most=3)
    assert len(lines) == 3
    assert lines[-1].endswith("…")
    assert all(text_width(line, 10) <= 100 for line in lines)


def test_wrap_of_a_word_of_a_million_letters_is_quick() -> None:
    assert len(wrap("x" * 1_000_000, 100, 10, most=2)) == 2


def test_box_of_a_text() -> None:
    assert Text(100, 50, "00", 10).box == pytest.approx((100, 42.4, 112.8, 52.4))
    assert Text(100, 50, "00", 10, anchor="middle").box[0] == pytest.approx(93.6)
    assert Text(100, 50, "00", 10, anchor="end").box[2] == pytest.approx(100)


def test_an_arc_hangs_as_deep_as_it_says() -> None:
    (x1, top), (_, low), _, (x2, _) = Arc(0, 10, 5, 30, "wire").points
    assert (x1, x2, top) == (0, 10, 5)
    assert 0.25 * top + 0.75 * low == pytest.approx(35)  # the middle of a cubic Bezier curve
