"""HTML as code hosts show it, cut at its pictures."""

import pytest

from workbench.headless.pictures import Picture, parts

PNG = "data:image/png;base64,iVBORw0KGgo="
PICTURE = Picture("image/png", "iVBORw0KGgo=", "a & b")
IMG = f'<img alt="a &amp; b" style="width:100%" src="{PNG}">'


def test_a_picture_is_a_part_of_its_own_and_what_is_open_goes_on_behind_it() -> None:
    found = parts(f'<div style="x"><p>one</p>{IMG}<p>two</p></div>')
    assert found.parts == ('<div style="x"><p>one</p></div>', PICTURE, '<div style="x"><p>two</p></div>')
    assert found.lost == ()


def test_nothing_is_between_two_pictures() -> None:
    assert parts(f"<div>{IMG} {IMG}</div>").parts == (PICTURE, PICTURE)


def test_a_drawing_goes_and_its_picture_stands_for_it() -> None:
    found = parts(f"<style>.x{{}}</style><div><svg><style>y</style><text>word</text></svg>{IMG}</div>")
    assert (found.parts, found.lost) == ((PICTURE,), ())


@pytest.mark.parametrize(
    ("html", "left", "lost"),
    [
        ("<svg><text>word</text></svg>", (), ("svg",)),
        ("<script>if (a < b) {}</script><b>x</b>", ("<b>x</b>",), ("script",)),
        ('<b onclick="f()" id="i" class="c" style="s" title="t">x</b>', ('<b style="s" title="t">x</b>',), ()),
        ('<a href="javascript:f()">x</a>', ("<a>x</a>",), ()),
        ('<a href="https://x.org/?a=1&amp;b=2">x</a>', ('<a href="https://x.org/?a=1&amp;b=2">x</a>',), ()),
        ("<blink>a &lt; b</blink>", ("a &lt; b",), ()),
        ("<p>one<br>two</p></div></b>", ("<p>one<br>two</p>",), ()),
        ("<div><i>open", ("<div><i>open</i></div>",), ()),
        ("<details><summary>More</summary>x</details>", ("<div><b>More</b>x</div>",), ()),
        ('<iframe src="https://x"></iframe><select><option>no</option></select>yes', ("yes",), ()),
        ('<img src="https://x.org/y.png">', ('<img src="https://x.org/y.png">',), ()),
        ("  <div> </div>", (), ()),
    ],
)
def test_what_stays(html: str, left: tuple[str, ...], lost: tuple[str, ...]) -> None:
    found = parts(html)
    assert (found.parts, found.lost) == (left, lost)


def test_a_picture_in_a_table_stays_there() -> None:
    html = f'<table><tr><td><img src="{PNG}" alt="x"></td></tr></table>'
    assert parts(html).parts == (f'<table><tr><td><img src="{PNG}" alt="x"></td></tr></table>',)
