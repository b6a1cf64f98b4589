"""A watcher on a stream of events: live, after a restore, and after a disk that was full."""

from tests.telemetry.streams import a_step
from workbench.events import EventLog
from workbench.metrics import findings
from workbench.records import Record, Restored, RunStarted, Seen
from workbench.telemetry import Lookout

STARTED = RunStarted("run", "base", {"name": "GRPO", "kl": 0.01}, {}, {}, {}, 0)


class Live:
    """A run's stream, looked at after every step as a training does."""

    def __init__(self) -> None:
        self.log, self.lookout = EventLog(), Lookout()
        self.log.emit(STARTED)

    def step(self, number: int, kl: float) -> list[Seen]:
        self.log.emit(a_step(number, kl=kl))
        news = self.lookout.news(self.log.events)
        for seen in news:
            self.log.emit(seen)
        return news

    def steps(self, first: int, last: int, kl: float) -> list[tuple[str, int, bool]]:
        return [(seen.code, seen.step, seen.ended) for number in range(first, last + 1) for seen in self.step(number, kl)]

    def restore(self, step: int, record: Record | None = None) -> None:
        """Another process goes on from here."""
        self.log.emit(record or Restored(step, f"step-{step}", {}))
        self.lookout = Lookout()


def test_what_begins_and_ends_is_told_once() -> None:
    live = Live()
    assert live.steps(1, 10, 0.1) == []
    assert live.steps(11, 30, 2.0) == [("WB701", 13, False)]
    assert live.steps(31, 50, 0.1) == [("WB701", 37, True)]
    assert [(seen.step, seen.ended) for seen in findings(live.log.events)] == [(37, True)]
    assert live.lookout.news(live.log.events) == []


def test_a_restored_run_knows_what_it_would_have_known() -> None:
    whole, parted = Live(), Live()
    for live in (whole, parted):
        assert live.steps(1, 15, 2.0) == [("WB701", 5, False)]
    parted.restore(15)
    for live in (whole, parted):
        assert live.steps(16, 30, 0.1) == [("WB701", 22, True)]


def test_what_a_restore_undid_is_told_again() -> None:
    live = Live()
    live.steps(1, 20, 0.1)
    assert live.steps(21, 23, 2.0) == [("WB701", 23, False)]
    live.restore(20)
    assert findings(live.log.events) == []
    assert live.steps(21, 25, 2.0) == [("WB701", 23, False)]
    assert [seen.step for seen in findings(live.log.events)] == [23]


def test_a_run_whose_workers_were_made_anew_looks_again() -> None:
    live = Live()
    live.steps(1, 23, 0.1)
    live.log.emit(Restored(20, "step-20", {}))  # in the same process
    assert live.steps(21, 40, 0.1) == []
    live.log.emit(Restored(0, "", {}))
    assert live.steps(1, 5, 2.0) == [("WB701", 5, False)]


def test_a_step_that_was_not_looked_at_is_caught_up() -> None:
    live = Live()
    live.steps(1, 10, 0.1)
    for number in (11, 12, 13):  # the log failed after these
        live.log.emit(a_step(number, kl=2.0))
    assert live.steps(14, 14, 2.0) == [("WB701", 13, False)]
