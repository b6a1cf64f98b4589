"""What follows a run beside its steps: trackers, tables and an exporter that hear of its events, samplers of its devices' load."""

from contextlib import ExitStack
from pathlib import Path

from workbench.events import EventLog
from workbench.plan import RunPlan
from workbench.records import Notice
from workbench.runtime.pools import homes
from workbench.runtime.samplers import Samplers
from workbench.runtime.team import Team
from workbench.telemetry.csv_log import CsvLog
from workbench.telemetry.exporter import Exporter, export
from workbench.telling import driver_seats, in_placement
from workbench.trackers import attach


class Following:
    """Of one run. Trackers, tables and the exporter stay from ``begin`` to ``close``; samplers are there while a team works."""

    def __init__(self, plan: RunPlan, log: EventLog) -> None:
        self._plan, self._log = plan, log
        self._listeners: ExitStack | None = None
        self._table: CsvLog | None = None
        self.exporter: Exporter | None = None
        self.samplers: Samplers | None = None  # of the team that works now

    def begin(self, folder: Path) -> None:
        """Let trackers and tables hear of what happens from now on, and be scraped; once. Raises StorageError, and ConfigError."""
        if self._listeners is None:
            self._listeners = ExitStack()
            self._listeners.callback(attach(self._log, self._plan.trackers, folder, self._plan.shown()))
            if self._plan.load_csv:
                self._table = CsvLog(self._log, folder / "load.csv")
                self._listeners.callback(self._table.close)
        self.exporter = self.exporter or export(self._log, folder.name, self._plan.prometheus)

    def sample(self, team: Team) -> None:
        """Sample the load of ``team``'s devices from now on, until a ``rest``. What goes wrong with that is told, and the run goes on."""
        plan = self._plan
        if not plan.load_hz:
            return
        if self.samplers is None:
            seats = in_placement([*team.seats, *driver_seats(plan.devices, team)], homes(plan.devices, plan.machine))
            self.samplers = Samplers(seats, team.outposts, self._log, plan.load_hz)
        self.samplers.start()
        for text in (*self.samplers.problems(), *(self._table.problems() if self._table else ())):
            self._log.emit(Notice(text))

    def rest(self) -> None:
        """Sample nothing while the run rests: its file would grow, and nothing happens."""
        if self.samplers is not None:
            self.samplers.stop()

    def disband(self) -> None:
        """The team is about to end, and with it the processes that were sampled."""
        self.rest()
        self.samplers = None

    def close(self) -> None:
        """The run is over."""
        self.disband()
        if self._listeners is not None:
            self._listeners.close()
        if self.exporter is not None:
            self.exporter.close()
