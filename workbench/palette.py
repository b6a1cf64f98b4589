"""The colours of every view, in one place: a role has one colour, a phase that of the role that works in it.

Chosen so that neighbours in a stack stay apart for people with protanopia, deuteranopia and tritanopia, and every mark
has a contrast of at least 3:1 with its background (WCAG 1.4.11); the tests compute both. Text is never coloured.
"""

from collections.abc import Mapping
from types import MappingProxyType

from workbench.roles import Role

LIGHT: Mapping[str, str] = MappingProxyType(
    {
        "rollout": "#0f6cbd",
        "reward": "#b98300",
        "reference": "#008a66",
        "values": "#a97bc6",
        "advantages": "#8893a1",
        "update_critic": "#8a3f9e",
        "update_actor": "#cf4a1a",
        "sync": "#344054",
        "good": "#0f6cbd",
        "bad": "#cf4a1a",
        "error": "#b00b3b",
    }
)
DARK: Mapping[str, str] = MappingProxyType(
    {
        "rollout": "#5aa9f0",
        "reward": "#e3b23c",
        "reference": "#3cc29a",
        "values": "#d3b0e6",
        "advantages": "#98a2b0",
        "update_critic": "#b979d0",
        "update_actor": "#f27d4b",
        "sync": "#e4e8ee",
        "good": "#5aa9f0",
        "bad": "#f27d4b",
        "error": "#ff8fa6",
    }
)
ROLE_COLOUR: Mapping[Role, str] = MappingProxyType(
    {
        Role.ROLLOUT: "rollout",
        Role.REWARD: "reward",
        Role.REFERENCE: "reference",
        Role.CRITIC: "update_critic",
        Role.ACTOR: "update_actor",
    }
)
# The paper on which the light colours were chosen; figures (PNG) are always drawn on it, whatever the theme around them.
PAPER, INK, MUTED, GRID = "#ffffff", "#1b1f24", "#5b6470", "#e6e9ed"

# The greys of a drawing that follows the theme: surfaces from the page to a GPU, lines, and the text on them.
_SURFACES = {
    "light": {
        "paper": PAPER,
        "node": "#f5f6f8",
        "area": "#e9ecf0",
        "tile": "#ffffff",
        "edge": "#808a96",
        "hair": "#c3c9d0",
        "wire": "#5b6470",
        "band": "#d5dae1",
        "ink": INK,
        "muted": "#525b66",
    },
    "dark": {
        "paper": "#16191d",
        "node": "#1e2227",
        "area": "#282d34",
        "tile": "#14171b",
        "edge": "#7d8794",
        "hair": "#444c56",
        "wire": "#a3adba",
        "band": "#3a424c",
        "ink": "#eef1f5",
        "muted": "#b3bcc8",
    },
}


def mix(one: str, other: str, share: float) -> str:
    """``share`` (0 to 1) of the colour ``one``, the rest ``other``; all "#rrggbb"."""
    pairs = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


def _theme(marks: Mapping[str, str], surfaces: Mapping[str, str]) -> Mapping[str, str]:
    """Marks, surfaces, and of each role's mark a soft shade that text can stand on."""
    soft = {f"{name}-soft": mix(marks[name], surfaces["tile"], 0.22) for name in ROLE_COLOUR.values()}
    return MappingProxyType({**marks, **surfaces, **soft})


THEMES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {"light": _theme(LIGHT, _SURFACES["light"]), "dark": _theme(DARK, _SURFACES["dark"])}
)


def tint(name: str, strength: float) -> str:
    """``name`` as a translucent CSS colour that sits well on a light and on a dark page; ``strength`` from 0 to 1."""
    red, green, blue = (int(LIGHT[name][at : at + 2], 16) for at in (1, 3, 5))
    return f"rgba({red},{green},{blue},{0.38 * max(0.0, min(1.0, strength)):.2f})"
