"""The colours of runs beside each other, out of the palette: neighbours stay apart for colour-blind readers there already.

In a comparison a colour means a run; nothing in it is coloured by role.
"""

from workbench.palette import LIGHT

_ORDER = ("rollout", "update_actor", "reference", "values", "reward", "advantages")
_DASHES = ("-", (0, (4, 1.5)), (0, (1, 1.2)))
Dash = str | tuple[float, tuple[float, float]]


def run_colour(at: int) -> str:
    """The colour of the run at place ``at``; on a light and on a dark page."""
    return LIGHT[_ORDER[at % len(_ORDER)]]


def run_dash(at: int) -> Dash:
    """The line style of the run at place ``at``: where the colours begin again, another one."""
    return _DASHES[at // len(_ORDER) % len(_DASHES)]
