"""What can be seen of a run, live or past: everything here reads its events."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import views
from workbench.errors import StateError
from workbench.events import Event, EventLog, standing
from workbench.metrics import Metrics, findings, metrics, records_of
from workbench.records import HeldOut, RunStarted, Seen, Step
from workbench.telemetry.bubbles import Bubbles, bubbles

if TYPE_CHECKING:
    from workbench.training import Training
    from workbench.views import BatchTable, Profile, Summary, Timeline


class Reading(ABC):
    """A run as its events tell it. Steps and scores that a restored run left behind and made again are left out."""

    state: str

    @property
    @abstractmethod
    def _log(self) -> EventLog:
        """The run's events."""

    @property
    @abstractmethod
    def path(self) -> Path:
        """The run's folder: events.jsonl, metrics.json, adapter/, placement.json."""

    def watch(self, view: str | None = None) -> Any:
        """The run, live, as a cell's last line: all views, or the one called ``view``.

        They are "curves" (reward, KL, lengths, time per phase, samples), "knobs", "topology" (the machine, with roles and routes), "load"
        (how busy and how full each device is), "timeline" and "samples"; "all" is None. Raises ConfigError on another name, and
        StateError for the knobs of a past run.
        """
        whole = view is None or view == "all"
        return views.board(self._log, **self._watched()) if whole else views.view(view, self._log, **self._watched())

    def _watched(self) -> dict[str, Any]:
        """What live views know besides the events: of a run that is over, that it is."""
        return {"badge": "replayed"}

    def summary(self) -> "Summary":
        """The run in numbers and curves: reward before and after, time per phase, the proof of every sync."""
        return views.summary(self._log.events)

    def timeline(self, first: int | None = None, last: int | None = None, seconds: float | None = None) -> "Timeline":
        """Who worked when, and who waited, in steps ``first`` to ``last`` (the last three): one row per device.

        ``seconds``: how wide the picture is, so that several runs can have one scale.
        """
        return views.timeline(self._log.events, first, last, seconds)

    def bubbles(self, first: int | None = None, last: int | None = None) -> Bubbles:
        """How long each role kept each device busy in steps ``first`` to ``last`` (all), and what idle devices waited for.

        Busy and idle add up to the steps' wall time exactly. Raises StateError before the first step.
        """
        return bubbles(self._log.events, first, last)

    @property
    def profile(self) -> "Profile":
        """What the workers told one another in the steps that ``Run(profile=range(3, 5))`` named: collectives, and bytes on each link.

        Raises StateError before the first of these steps.
        """
        name = next((record.name for record in records_of(self.events, RunStarted)), "run")
        return views.profile(standing(self.events), name)

    @property
    def metrics(self) -> Metrics:
        """The numbers of ``metrics.json``, as of now."""
        return metrics(self.events)

    @property
    def steps(self) -> list[Step]:
        """The record of every step so far."""
        return records_of(standing(self.events), Step)

    @property
    def held_out(self) -> list[HeldOut]:
        """Every score on the held-out prompts so far, one a step."""
        return list({score.step: score for score in records_of(standing(self.events), HeldOut)}.values())

    @property
    def findings(self) -> list[Seen]:
        """What goes wrong in the run as of its last step: KL, entropy, rewards, critic, load. ``docs/findings.md`` explains each code."""
        return [seen for seen in findings(self.events) if not seen.ended]

    @property
    def events(self) -> list[Event]:
        """Everything that happened, in order; of many samples of the load the newest, and the older the fewer. The file holds all."""
        return list(self._log.events)


class Look(Reading):
    """The looking side of a live ``Run``."""

    _training: "Training"

    @property
    def _log(self) -> EventLog:
        return self._training.log

    def _watched(self) -> dict[str, Any]:
        """The machine, and the run itself: its knobs can be turned."""
        return {"topology": self._training.machine, "run": self}

    @property
    def batch(self) -> "BatchTable":
        """The last step's batch, as a table. Raises StateError before the first step."""
        if self._training.batch is None:
            raise StateError("run.batch", "no step has been made yet", "train first")
        return views.batch_table(self._training.batch)

    @property
    def path(self) -> Path:
        """The run's folder: events.jsonl, metrics.json, adapter/, placement.json. Raises StateError before there is one."""
        path = self._training.folder.path
        if path is None:
            raise StateError("run.path", "the folder is made when the run starts", "train or start first")
        return path
