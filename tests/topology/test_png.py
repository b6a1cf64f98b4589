"""A scene as PNG."""

from dataclasses import replace
from io import BytesIO

import pytest
from PIL import Image

from tests.topology.machines import crowded, hostile
from workbench.errors import ConfigError
from workbench.palette import THEMES
from workbench.topology import Topology
from workbench.topology.drawing.casting import Casting
from workbench.topology.drawing.machine import draw
from workbench.topology.drawing.png import SCALE, png
from workbench.topology.drawing.scene import Arc, Circle, Rect, Scene


def pixels(content: bytes) -> Image.Image:
    return Image.open(BytesIO(content)).convert("RGB")


def rgb(name: str, theme: str = "light") -> tuple[int, ...]:
    colour = THEMES[theme][name]
    return tuple(int(colour[at : at + 2], 16) for at in (1, 3, 5))


def few_notes(topology: Topology) -> Casting:
    """Crowded, but for most of the notes: their letters take the time."""
    crowd = crowded(topology)
    return replace(crowd, notes=(crowd.notes or ())[:4])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_size_and_paper(theme: str) -> None:
    scene = draw(Topology.preset("rtx3090-2-bridge"))
    image = pixels(png(scene, theme))
    assert image.width == scene.width * SCALE
    assert abs(image.height - scene.height * SCALE) <= 1
    found, paper = image.getpixel((image.width // 2, 6)), rgb("paper", theme)
    assert max(abs(a - b) for a, b in zip(found, paper, strict=True)) <= 3  # type: ignore[arg-type]


def test_colours_are_those_of_the_theme_however_rare() -> None:
    topology = Topology.preset("dgx-a100")
    found = {colour for _, colour in pixels(png(draw(topology, few_notes(topology)), "dark")).getcolors(10**7) or ()}
    assert {rgb(name, "dark") for name in ("node", "area", "band", "rollout", "reward", "error", "rollout-soft")} <= found


def test_shapes_are_where_the_scene_says() -> None:
    items = (Rect(10, 20, 30, 10, "error"), Circle(80, 30, 8, "ink"), Arc(100, 160, 10, 30, "wire", 4))
    image = pixels(png(Scene(200, 60, items)))
    assert image.getpixel((2 * 25, 2 * 25)) == rgb("error")
    assert image.getpixel((2 * 25, 2 * 33)) == rgb("paper")
    assert image.getpixel((2 * 80, 2 * 30)) == rgb("ink")
    assert image.getpixel((2 * 130, 2 * 40)) == rgb("wire")  # the lowest point of the arc


def test_hostile_names_are_drawn() -> None:
    topology = hostile()
    assert png(draw(topology, few_notes(topology)), "dark")[:8] == b"\x89PNG\r\n\x1a\n"


def test_an_image_follows_no_page() -> None:
    with pytest.raises(ConfigError, match="the themes are light, dark"):
        png(draw(Topology.preset("l40s-4")), "auto")
