"""What marks a view of a run that is not live, "replayed" or "simulated", where no widget runs: in text, in HTML, in a drawing."""

from dataclasses import replace
from html import escape

from workbench.topology.drawing.scene import Rect, Scene, Text, cut, text_width

SIZE, PAD, HEIGHT, GAP, MARGIN = 10.5, 8.0, 17.0, 10.0, 16.0  # pixels: type, beside the word, of the pill, before it, of the paper
_PILL = "font-weight:400;border:1px solid currentColor;border-radius:9px;padding:0 8px;font-size:11px;white-space:nowrap"


def in_text(text: str, badge: str) -> str:
    """``text`` with the badge at the end of its first line."""
    first, line_end, rest = text.partition("\n")
    return f"{first} · {badge}{line_end}{rest}" if badge else text


def in_html(badge: str) -> str:
    """The badge, to stand behind a heading; nothing of nothing."""
    return f' <b style="{_PILL}">{escape(badge)}</b>' if badge else ""


def on_scene(scene: Scene, badge: str) -> Scene:
    """The drawing with the badge behind the words of its heading, which are cut where that takes more room than there is."""
    if not badge:
        return scene
    heading = next(item for item in scene.items if isinstance(item, Text))
    line = [item for item in scene.items if isinstance(item, Text) and item.y == heading.y]
    last = max((item for item in line if item.anchor == "start"), key=lambda item: item.x)
    width = text_width(badge, SIZE) + 2 * PAD
    right = min([scene.width - MARGIN, *(item.box[0] - GAP for item in line if item.anchor == "end")])
    shorter = replace(last, text=cut(last.text, right - width - GAP - last.x, last.size, bold=last.bold))
    x = shorter.box[2] + GAP
    pill = Rect(x, heading.y - 0.5 * heading.size + 0.5 - HEIGHT / 2 + 1, width, HEIGHT, "", "ink", HEIGHT / 2, hint=f"this run is {badge}")
    word = Text(x + width / 2, pill.y + HEIGHT / 2 + 0.36 * SIZE, badge, SIZE, anchor="middle")
    items = tuple(shorter if item is last else item for item in scene.items)
    return replace(scene, items=(*items, pill, word), description=f"{badge}; {scene.description}")
