"""``run.watch("topology")``: the machine with the roles on it, how busy and how full each device is, and which phase runs.

The browser gets the drawing once for each placement, and after that only numbers: ``now`` is some hundred bytes a device, at most four
times a second. ``topology.js`` draws the heads of the tiles and marks the roles at work.
"""

import threading
from dataclasses import asdict
from typing import Any

import traitlets

from workbench.events import Event, EventLog
from workbench.palette import ROLE_COLOUR
from workbench.roles import AT_WORK, Role
from workbench.topology import Topology
from workbench.topology.drawing.display import bundle
from workbench.topology.drawing.scene import Scene
from workbench.topology.drawing.svg import svg
from workbench.views.badge import in_text, on_scene
from workbench.views.described import COLOURS, described, numbers
from workbench.views.heads import with_heads
from workbench.views.live import Live, Shown, source, words_alone
from workbench.views.loads import Loads
from workbench.views.machine import HEAD, Machine, bare, machine
from workbench.views.now import Now
from workbench.views.routes import routes
from workbench.views.text import columns


class TopologyView(Live):
    """The live view of one stream on one machine. ``watch_topology`` makes it. ``badge``: "replayed", "simulated" or nothing."""

    _esm = source("heading.js", "machine.js", "topology.js")
    _css = source("heading.css", "topology.css")
    palette = traitlets.Dict(COLOURS).tag(sync=True)
    picture = traitlets.Dict().tag(sync=True)
    roles: traitlets.List[Any] = traitlets.List().tag(sync=True)
    now = traitlets.Dict().tag(sync=True)

    def __init__(self, log: EventLog, topology: Topology | None = None, badge: str = "") -> None:
        self._topology, self._badge = topology, badge
        self._now, self._loads = Now(), Loads()
        self._lock = threading.Lock()  # around both: the writer feeds them, a timer reads them
        self._drawn: object = None  # the placement that the front ends have
        super().__init__(log)

    @property
    def state(self) -> str:
        """The run's state after the events so far; "new" before the first."""
        return self._now.state

    def take(self, event: Event) -> bool:
        """Take in one event; quick, and draws nothing."""
        with self._lock:
            told, sampled = self._now.feed(event), self._loads.feed(event)
            return told or sampled

    @property
    def machine(self) -> Machine:
        """The machine with the roles where they are now."""
        return machine(self._ground, self._now.placement)

    @property
    def _ground(self) -> Topology:
        return self._topology or bare(self._now.placement)

    def send(self) -> None:
        """The numbers, and the drawing where the roles have moved."""
        with self._lock:
            now = described(self._now, self._loads, self._badge)
            placement, picture = self._now.placement, None
            if placement is not self._drawn and placement:
                self._drawn, picture = placement, _picture(self.machine)
                roles = [_role(self._ground, self._now, role) for role in Role if role in placement]
        with self.hold_sync():
            if picture is not None:
                self.picture, self.roles = picture, roles
            self.now = now

    @property
    def scene(self) -> Scene:
        """The drawing at this moment, whole."""
        with self._lock:
            scene = with_heads(self.machine, self._loads.latest, self._now.sentence, self._now.at_work)
        return on_scene(scene, self._badge)

    @property
    def text(self) -> str:
        """The same as a table for a terminal."""
        with self._lock:
            now, latest = self._now, self._loads.latest
            rows = [
                (device, *numbers(latest.get(device)), ", ".join(now.roles_on(device)))
                for device in dict.fromkeys((*self._ground.ids, *now.devices))
            ]
        return "\n".join([in_text(now.sentence, self._badge), *columns([("device", "busy", "memory", "roles"), *rows], "<>><")])

    def __repr__(self) -> str:
        return self.text

    def twin(self) -> dict[str, str]:
        """The drawing as it is now; before the run has begun words alone."""
        return bundle(self.scene, self.text) if self._now.placement else words_alone(self.text)


def _picture(found: Machine) -> dict[str, Any]:
    """The drawing for a browser, which has paper of its own."""
    scene = found.scene
    bare_scene = Scene(scene.width, scene.height, scene.items[1:], scene.title, scene.description)
    places = {"tiles": [asdict(tile) for tile in found.tiles], "places": [asdict(place) for place in found.places]}
    return {"svg": svg(bare_scene, "auto"), "width": scene.width, "head": HEAD, **places}


def _role(topology: Topology, now: Now, role: Role) -> dict[str, Any]:
    return {
        "role": str(role),
        "colour": ROLE_COLOUR[role],
        "devices": list(now.placement[role]),
        "phases": [phase for phase, workers in AT_WORK.items() if role in workers],
        "routes": [list(route) for route in routes(topology, now.placement, role)],
    }


_views: Shown[TopologyView] = Shown()


def watch_topology(log: EventLog, topology: Topology | None = None, badge: str = "") -> TopologyView:
    """The view of ``log`` on ``topology`` (left out: the devices that the run names). Asked again it is the same one."""
    return _views.of(log) or _views.keep(log, TopologyView(log, topology, badge))


def refresh(log: EventLog) -> None:
    """Bring the static twin in the outputs of ``log``'s view up to date, where there is one."""
    _views.refresh(log)
