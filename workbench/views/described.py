"""A moment of a run as plain data for a browser, and in words: what the views of the machine and of its load have in common."""

from typing import Any

from workbench.palette import THEMES
from workbench.views.loads import Loads, Use
from workbench.views.now import Now
from workbench.views.text import NOTHING, duration

# Surfaces and shades too, and of every colour its name in a drawing, which has hyphens.
COLOURS = {theme: {**colours, **{name.replace("_", "-"): colour for name, colour in colours.items()}} for theme, colours in THEMES.items()}


def numbers(use: Use | None) -> tuple[str, str]:
    """How busy and how full, in words; dashes where nothing was sampled."""
    if use is None:
        return NOTHING, NOTHING
    return percent(use.busy), memory(use)


def percent(share: float | None) -> str:
    """ "98%"; "n/a" where it is not known."""
    return "n/a" if share is None else f"{share:.0%}"


def memory(use: Use) -> str:
    """ "61.2 of 80 GiB"."""
    if use.memory_gib is None:
        return "n/a"
    return f"{use.memory_gib:.1f} GiB" if use.total_gib is None else f"{use.memory_gib:.1f} of {use.total_gib:.0f} GiB"


def described(now: Now, loads: Loads, badge: str = "") -> dict[str, Any]:
    """What changes all the time, as plain data."""
    return {
        **heading(now, badge),
        "phase": now.running,
        "at_work": list(now.at_work),
        "seconds": {phase: duration(seconds) for phase, seconds in now.seconds.items()},
        "uses": {device: _plain(use) for device, use in loads.latest.items()},
    }


def heading(now: Now, badge: str) -> dict[str, Any]:
    """What stands above every view of the machine."""
    return {"state": now.shown, "title": now.name, "status": now.status, "badge": badge}


def _plain(use: Use) -> dict[str, Any]:
    """A sample with no more digits than are drawn."""
    return {
        "busy": None if use.busy is None else round(use.busy, 2),
        "gib": None if use.memory_gib is None else round(use.memory_gib, 1),
        "of": None if use.total_gib is None else round(use.total_gib, 1),
        "roles": {role: round(gib, 1) for role, gib in use.roles.items()},
        "why": use.why,
        "facts": use.facts,
    }
