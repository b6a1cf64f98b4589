"""What people see of a run. Every live view has a static twin; all of them read the event stream and nothing else.

The widget library is imported only when a live view is asked for, matplotlib only when a figure is drawn.
"""

import sys
from typing import TYPE_CHECKING

from workbench.events import EventLog
from workbench.views.batch import BatchTable, batch_table
from workbench.views.report import Report, report
from workbench.views.summary import Summary, summary
from workbench.views.talk import Comparison, comparison
from workbench.views.timeline import Timeline, timeline

if TYPE_CHECKING:
    from workbench.views.curves import Watch
    from workbench.views.knobs import Panel, Steered

__all__ = [
    "BatchTable",
    "Comparison",
    "Report",
    "Summary",
    "Timeline",
    "batch_table",
    "comparison",
    "panel",
    "refresh",
    "report",
    "summary",
    "timeline",
    "watch",
]


def watch(log: EventLog) -> "Watch":
    """The live view of ``log``, with all that has happened so far. Asked again it is the same one: shown twice, run once."""
    from workbench.views.curves import watch as live

    return live(log)


def panel(run: "Steered", log: EventLog) -> "Panel":
    """The knobs of ``run``, which writes ``log``, to be turned by hand. Asked again it is the same one: shown twice, turned once."""
    from workbench.views.knobs import panel as live

    return live(run, log)


def refresh(log: EventLog) -> None:
    """Bring what a notebook keeps of the live views up to date, where one is shown. For the main thread."""
    for name in ("workbench.views.curves", "workbench.views.knobs"):
        if name in sys.modules:
            sys.modules[name].refresh(log)
