"""What people see of a run. Every live view has a static twin; all of them read the event stream and nothing else.

The widget library is imported only when a live view is asked for, matplotlib only when a figure is drawn.
"""

import sys
from typing import TYPE_CHECKING

from workbench.events import EventLog
from workbench.views.batch import BatchTable, batch_table
from workbench.views.profile import Profile, profile
from workbench.views.report import Report, report
from workbench.views.summary import Summary, summary
from workbench.views.talk import Comparison, comparison
from workbench.views.timeline import Timeline, timeline

if TYPE_CHECKING:
    from workbench.topology import Topology
    from workbench.views.curves import Watch
    from workbench.views.knobs import Panel, Steered
    from workbench.views.live import Live
    from workbench.views.together import Board

__all__ = [
    "BatchTable",
    "Comparison",
    "Profile",
    "Report",
    "Summary",
    "Timeline",
    "batch_table",
    "board",
    "comparison",
    "panel",
    "profile",
    "refresh",
    "report",
    "summary",
    "timeline",
    "view",
    "watch",
]
_LIVE = (
    "curves",
    "knobs",
    "topology",
    "load",
    "timeline_live",
    "samples_live",
    "together",
)  # modules with outputs to be brought up to date


def watch(log: EventLog, badge: str = "") -> "Watch":
    """The live view of ``log``, with all that has happened so far. Asked again it is the same one: shown twice, run once.

    ``badge``: of what is not live, "replayed" or "simulated".
    """
    from workbench.views.curves import watch as live

    return live(log, badge)


def panel(run: "Steered", log: EventLog) -> "Panel":
    """The knobs of ``run``, which writes ``log``, to be turned by hand. Asked again it is the same one: shown twice, turned once."""
    from workbench.views.knobs import panel as live

    return live(run, log)


def board(log: EventLog, topology: "Topology | None" = None, run: "Steered | None" = None, badge: str = "") -> "Board":
    """All live views of ``log``: curves, knobs (of a ``run`` that can be steered), topology, load, timeline, samples.

    ``topology``: the machine; left out, the devices that the run names. ``badge``: of what is not live, "replayed" or "simulated".
    """
    from workbench.views.together import Watched
    from workbench.views.together import board as live

    return live(Watched(log, topology, run, badge))


def view(name: str, log: EventLog, topology: "Topology | None" = None, run: "Steered | None" = None, badge: str = "") -> "Live":
    """One of the views of ``board``, by its name. Raises ConfigError where there is none, StateError for the knobs of a past run."""
    from workbench.views.together import Watched, one

    return one(Watched(log, topology, run, badge), name)


def refresh(log: EventLog) -> None:
    """Bring what a notebook keeps of the live views up to date, where one is shown. For the main thread."""
    for name in (f"{__name__}.{module}" for module in _LIVE):
        if name in sys.modules:
            sys.modules[name].refresh(log)
