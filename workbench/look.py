"""What can be seen of a run, live or closed: everything here reads its records."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import views
from workbench.errors import StateError
from workbench.events import Event
from workbench.records import Step
from workbench.training import Training

if TYPE_CHECKING:
    from workbench.views import BatchTable, Summary


class Look:
    """The looking side of ``Run``."""

    _training: Training

    def watch(self) -> Any:
        """A live view of the run, as a cell's last line: reward, KL, lengths, time per phase, samples."""
        return views.watch(self._training.log)

    def summary(self) -> "Summary":
        """The run in numbers and curves: reward before and after, time per phase, the proof of every sync."""
        return views.summary(self.events)

    @property
    def batch(self) -> "BatchTable":
        """The last step's batch, as a table. Raises StateError before the first step."""
        if self._training.batch is None:
            raise StateError("run.batch", "no step has been made yet", "train first")
        return views.batch_table(self._training.batch)

    @property
    def steps(self) -> list[Step]:
        """The record of every step so far."""
        return [event.record for event in self.events if event.kind == "step"]  # type: ignore[misc]

    @property
    def events(self) -> list[Event]:
        """Everything that happened, in order."""
        return list(self._training.log.events)

    @property
    def path(self) -> Path:
        """The run's folder: events.jsonl, metrics.json, adapter/, placement.json."""
        path = self._training.folder.path
        if path is None:
            raise StateError("run.path", "the folder is made when the run starts", "train or start first")
        return path
