"""A scene as SVG: well formed, safe, and in the right colours."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from tests.topology.machines import HOSTILE, crowded, hostile, machines
from workbench.errors import ConfigError
from workbench.palette import THEMES
from workbench.topology import GPU, Topology
from workbench.topology.drawing.machine import draw
from workbench.topology.drawing.scene import Arc, Circle, Line, Rect, Scene, Text
from workbench.topology.drawing.svg import svg

NS = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("theme", ["light", "dark", "auto"])
@pytest.mark.parametrize("name", ["dgx1-v100", "hostile", "cut off", "2xdgx-a100"])
def test_it_is_xml(name: str, theme: str) -> None:
    topology = machines()[name]
    root = ElementTree.fromstring(svg(draw(topology, crowded(topology)), theme))
    assert root.tag == f"{NS}svg"
    assert root.find(f"{NS}title") is not None


def test_shapes_are_what_the_scene_says() -> None:
    items = (
        Rect(1, 2, 30, 40, "node", "edge", 5, 2, dashed=True, hint="about"),
        Line(0, 1, 2, 3.25, "wire", 1.5),
        Arc(0, 10, 5, 30, "wire"),
        Circle(7, 8, 9, "error"),
        Text(3, 4, "words", 12, "muted", bold=True, anchor="end"),
    )
    root = ElementTree.fromstring(svg(Scene(100, 50, items, "title", "for the blind"), "light"))
    rect, line, path, circle, text = list(root)[2:]
    assert root.get("viewBox") == "0 0 100 50"
    assert "max-width:100%" in (root.get("style") or "")
    assert (rect.get("x"), rect.get("width"), rect.get("rx"), rect[0].text) == ("1", "30", "5", "about")
    assert rect.get("style") == f"fill:{THEMES['light']['node']};stroke:{THEMES['light']['edge']};stroke-width:2;stroke-dasharray:4 3"
    assert (line.get("y2"), path.get("d"), circle.get("r")) == ("3.2", "M0 5C0 45 10 45 10 5", "9")
    assert (text.text, text.get("text-anchor"), text.get("font-weight")) == ("words", "end", "600")
    assert [child.text for child in list(root)[:2]] == ["title", "for the blind"]
    assert (root.get("aria-labelledby") or "").split() == [child.get("id") for child in list(root)[:2]]


def test_a_text_has_its_hint() -> None:
    text = ElementTree.fromstring(svg(Scene(9, 9, (Text(0, 0, "tp2", hint="split & shared"),)), "light"))[2]
    assert (text[0].tag, text[0].text, text[0].tail) == (f"{NS}title", "split & shared", "tp2")


def test_lone_surrogates_are_spaces() -> None:
    gpu = GPU(0, memory_gib=1.0)
    object.__setattr__(gpu, "name", "GPU \ud800!")  # whatever a constructor lets through
    topology = Topology("one", (gpu,))
    object.__setattr__(topology, "name", "m\udfff")
    written = svg(replace(draw(topology), description="\udc00"))
    assert written.encode()
    assert "GPU  !" in written


def test_names_are_escaped() -> None:
    topology = hostile()
    written = svg(draw(topology, crowded(topology)))
    assert "<script" not in written
    assert "\x07" not in written
    assert ElementTree.fromstring(written).find(f"{NS}title").text.startswith(HOSTILE[:20])  # type: ignore[union-attr]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_fixed_theme_has_its_colours_alone(theme: str) -> None:
    written = svg(draw(Topology.preset("l40s-4")), theme)
    assert set(re.findall(r"#[0-9a-f]{6}", written)) <= set(THEMES[theme].values())
    assert "<style" not in written
    assert "var(" not in written


def test_auto_follows_the_system_and_jupyterlab_which_has_the_last_word() -> None:
    written = svg(draw(Topology.preset("l40s-4")), "auto")
    rules = re.search(r"<style>(.*)</style>", written, re.DOTALL)
    assert rules is not None
    system, lab = rules[1].index("prefers-color-scheme:dark"), rules[1].index('body[data-jp-theme-light="false"]')
    assert system < lab
    used = set(re.findall(r"var\((--wb-[\w-]+)\)", written))
    assert used <= set(re.findall(r"(--wb-[\w-]+):", rules[1]))
    assert not re.search(r"#[0-9a-f]{6}", written.replace(rules[0], ""))


def test_ids_of_two_drawings_differ_and_of_one_do_not() -> None:
    one, other = draw(Topology.preset("l40s-4")), draw(Topology.preset("dgx-a100"))
    ids = [re.findall(r' id="([^"]+)"', svg(scene)) for scene in (one, other, one)]
    assert not set(ids[0]) & set(ids[1])
    assert ids[0] == ids[2]
    assert not set(ids[0]) & set(re.findall(r' id="([^"]+)"', svg(one, "dark")))


def test_an_unknown_theme_is_refused() -> None:
    with pytest.raises(ConfigError, match="the themes are light, dark, auto"):
        svg(draw(Topology.preset("l40s-4")), "blue")  # type: ignore[arg-type]
