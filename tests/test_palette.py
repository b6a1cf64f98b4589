"""The colours can be told apart: by people with a colour-vision deficiency, and from their background."""

from collections.abc import Mapping
from itertools import combinations, pairwise

import pytest

from workbench.palette import DARK, INK, LIGHT, MUTED, PAPER, ROLE_COLOUR, THEMES, mix, tint
from workbench.records import PHASES
from workbench.roles import Role

# Machado, Oliveira and Fernandes 2009, severity 1, on linear RGB.
VISION = {
    "normal": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
BACKGROUND = {"light": "#ffffff", "dark": "#212121"}  # --jp-layout-color1 of JupyterLab's two themes


def linear(colour: str) -> list[float]:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]


def contrast(one: str, other: str) -> float:
    low, high = sorted(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x), strict=True)) for x in (one, other))
    return (high + 0.05) / (low + 0.05)


def lab(colour: str, vision: str) -> tuple[float, float, float]:
    r, g, b = (min(1.0, max(0.0, sum(m * c for m, c in zip(row, linear(colour), strict=True)))) for row in VISION[vision])
    x, y, z = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047, 0.2126 * r + 0.7152 * g + 0.0722 * b, 0.0193 * r + 0.1192 * g + 0.9505 * b
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z / 1.08883))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def distance(one: str, other: str, vision: str) -> float:
    """Euclidean in CIELAB (delta E 1976): 2.3 can just be seen side by side."""
    return sum((a - b) ** 2 for a, b in zip(lab(one, vision), lab(other, vision), strict=True)) ** 0.5


@pytest.mark.parametrize("vision", VISION)
@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_phases_stay_apart(colours: Mapping[str, str], vision: str) -> None:
    stacked = min(distance(colours[a], colours[b], vision) for a, b in pairwise(PHASES))
    anywhere = min(distance(colours[a], colours[b], vision) for a, b in combinations(PHASES, 2))
    assert stacked > 15
    assert anywhere > 7


@pytest.mark.parametrize(("colours", "theme"), [(LIGHT, "light"), (DARK, "dark")])
def test_marks_stand_out_from_the_page(colours: Mapping[str, str], theme: str) -> None:
    assert {name: contrast(colour, BACKGROUND[theme]) for name, colour in colours.items() if contrast(colour, BACKGROUND[theme]) < 3} == {}


def test_text_on_paper_can_be_read() -> None:
    assert contrast(INK, PAPER) > 7
    assert contrast(MUTED, PAPER) > 4.5


def test_every_phase_and_role_has_its_colour_in_both_themes() -> None:
    assert set(LIGHT) == set(DARK) >= set(PHASES)
    assert set(ROLE_COLOUR) == set(Role)


def test_tint_is_bounded() -> None:
    assert tint("good", 0.5) == "rgba(15,108,189,0.19)"
    assert tint("good", 7) == tint("good", 1) == "rgba(15,108,189,0.38)"
    assert tint("bad", -1) == "rgba(207,74,26,0.00)"


@pytest.mark.parametrize("theme", THEMES)
def test_a_drawing_can_be_read_on_all_of_its_surfaces(theme: str) -> None:
    colours = THEMES[theme]
    soft = [name for name in colours if name.endswith("-soft")]
    assert len(soft) == len(Role)
    for surface in ("paper", "node", "area", "tile", "band", *soft):
        assert contrast(colours["ink"], colours[surface]) > 7, surface
    for surface in ("paper", "node", "area", "tile"):
        assert contrast(colours["muted"], colours[surface]) > 4.5, surface
    for surface in ("paper", "node", "tile"):
        assert contrast(colours["edge"], colours[surface]) > 3, surface
        assert contrast(colours["wire"], colours[surface]) > 3, surface
    for role in ROLE_COLOUR.values():
        assert contrast(colours[role], colours["tile"]) > 3, role
        assert contrast(colours[role], colours["paper"]) > 3, role
    assert contrast(colours["error"], colours["paper"]) > 4.5  # the number of an error is paper on it


def test_a_mix_lies_between() -> None:
    assert mix("#ffffff", "#000000", 0.5) == "#808080"
    assert mix("#0f6cbd", "#ffffff", 1.0) == "#0f6cbd"
    assert mix("#0f6cbd", "#ffffff", 0.0) == "#ffffff"
