"""``run.watch()``: all live views of a run, one below the other; ``run.watch("load")`` is one of them alone."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ipywidgets

from workbench.errors import ConfigError, StateError
from workbench.events import EventLog
from workbench.topology import Topology
from workbench.views.curves import watch as watch_curves
from workbench.views.knobs import Steered, panel
from workbench.views.live import Live, Shown
from workbench.views.load import watch_load
from workbench.views.samples_live import watch_samples
from workbench.views.timeline_live import watch_timeline
from workbench.views.topology import watch_topology


@dataclass(frozen=True)
class Watched:
    """What is looked at: a stream of events; the machine it runs on, where that is known; the run, where it can be steered.

    ``badge``: stands on every view of what is not live: "replayed", "simulated".
    """

    log: EventLog
    topology: Topology | None = None
    run: Steered | None = None
    badge: str = ""


# In the order in which they stand: what is gained, what can be turned, and below it where and how the run works.
VIEWS: Mapping[str, Callable[[Watched], Live]] = {
    "curves": lambda watched: watch_curves(watched.log, watched.badge),
    "knobs": lambda watched: _knobs(watched),
    "topology": lambda watched: watch_topology(watched.log, watched.topology, watched.badge),
    "load": lambda watched: watch_load(watched.log, watched.badge),
    "timeline": lambda watched: watch_timeline(watched.log, watched.badge),
    "samples": lambda watched: watch_samples(watched.log, watched.badge),
}


def _knobs(watched: Watched) -> Live:
    if watched.run is None:
        raise StateError('run.watch("knobs")', "this run is over: it is read from its folder", "look at the others, such as run.watch()")
    return panel(watched.run, watched.log, watched.badge)


def one(watched: Watched, name: str) -> Live:
    """The view called ``name``. Raises ConfigError where there is none, StateError for the knobs of a past run."""
    if not isinstance(name, str) or name not in VIEWS:
        raise ConfigError(f"run.watch({name!r})", f"the views are {', '.join(VIEWS)}", "name one of these, or none for all")
    return VIEWS[name](watched)


class Board(ipywidgets.VBox):
    """All views of one stream below one another; ``board`` makes it. The first says how the run stands, the others what they are."""

    def __init__(self, watched: Watched) -> None:
        names = [name for name in VIEWS if name != "knobs" or watched.run is not None]
        self.views = {name: one(watched, name) for name in names}
        self._outputs: list[Any] = []  # display handles
        super().__init__(list(self.views.values()))
        self.add_class("wb-board")

    @property
    def state(self) -> str:
        """The run's state; "new" before it begins."""
        return self.views["curves"].state

    def twin(self) -> dict[str, str]:
        """The static twins of all views: as HTML and as text all of them, as an image the curves."""
        twins = [view.twin() for view in self.views.values()]
        image = {"image/png": twins[0]["image/png"]} if "image/png" in twins[0] else {}
        space = '<div style="height:14px"></div>'
        return {
            "text/plain": "\n\n".join(twin["text/plain"] for twin in twins),
            "text/html": space.join(twin["text/html"] for twin in twins),
            **image,
        }

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.views.values()))

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any] | None:
        """The views for a front end that runs widgets, and their static twins for all others."""
        bundle = super()._repr_mimebundle_(**kwargs)
        return None if bundle is None else {**bundle, **self.twin()}

    def _ipython_display_(self) -> None:
        """Show it in an output that ``refresh`` can bring up to date."""
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        if bundle is not None:
            self._outputs.append(display(bundle, raw=True, display_id=True))

    def refresh(self) -> None:
        """Put the static twins as of now into every output that shows the board. Only from the main thread; from elsewhere nothing."""
        if self._outputs and threading.current_thread() is threading.main_thread():
            bundle = self._repr_mimebundle_()
            for output in self._outputs if bundle is not None else ():
                output.update(bundle, raw=True)


_boards: Shown[Board] = Shown()


def board(watched: Watched) -> Board:
    """All views of a stream. Asked again it is the same one: shown twice, run once."""
    return _boards.of(watched.log) or _boards.keep(watched.log, Board(watched))


def refresh(log: EventLog) -> None:
    """Bring the static twins in the outputs of ``log``'s board up to date, where there is one."""
    _boards.refresh(log)
