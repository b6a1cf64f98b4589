"""A long run's samples of the load: bounded in memory, whole in the file, and the same live and read again."""

import csv
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.telemetry.loads import GPUS, HEALTHY, a_step_of
from tests.telemetry.runs import Story, a_load
from tests.telemetry.streams import a_step
from workbench import events
from workbench.errors import StorageError
from workbench.events import Event, EventLog, read_events, read_kept, thinned
from workbench.metrics import records_of
from workbench.past import load
from workbench.records import Load, RunStarted, State, Step
from workbench.telemetry import LoadLookout
from workbench.telemetry.csv_log import HEADER, CsvLog

FEW = 8


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that keep no more than 8 samples."""
    monkeypatch.setattr(events, "LOADS", FEW)


def written(log: EventLog, steps: int, samples: int) -> None:
    """A run with so many samples in each of its steps."""
    log.emit(RunStarted("long", "m", {}, {}, {"actor": ["local:0"]}, {}, 0))
    log.emit(State("running"))
    for step in range(1, steps + 1):
        for _ in range(samples):
            log.emit(a_load(["local:0"], busy=[0.5]))
        log.emit(a_step(step))


def loads_of(those: list[Event]) -> list[int]:
    return [event.seq for event in those if event.kind == "load"]


def test_every_second_of_the_older_half_goes() -> None:
    log = EventLog()
    written(log, 1, 8)
    assert loads_of(log.events) == [2, 3, 4, 5, 6, 7, 8, 9]
    assert loads_of(thinned(log.events)) == [3, 5, 6, 7, 8, 9]
    assert [event.kind for event in thinned(log.events) if event.kind != "load"] == ["run_started", "state", "step"]


def test_memory_holds_few_samples_and_the_file_all(few: None, tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    written(log, 20, 5)
    log.close()
    kept = loads_of(log.events)
    assert len(kept) <= FEW
    assert kept[-4:] == [event.seq for event in read_events(tmp_path / "events.jsonl") if event.kind == "load"][-4:]  # the newest
    assert len(records_of(log.events, Step)) == 20
    whole = list(read_events(tmp_path / "events.jsonl"))
    assert [event.seq for event in whole] == list(range(20 * 6 + 2))
    assert len(loads_of(whole)) == 100


def test_a_run_that_is_read_again_has_what_the_live_one_had(few: None, tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    written(log, 20, 5)
    log.close()
    assert read_kept(tmp_path / "events.jsonl") == log.events
    assert load(tmp_path).events == log.events
    again = EventLog()
    again.go_on(tmp_path / "events.jsonl")
    again.write_to(tmp_path / "events.jsonl")
    assert again.emit(State("paused")).seq == 122
    for _ in range(20):
        again.emit(a_load(["local:0"]))
    again.close()
    assert len(loads_of(again.events)) <= FEW
    assert read_kept(tmp_path / "events.jsonl") == again.events
    assert [event.seq for event in read_events(tmp_path / "events.jsonl")] == list(range(143))


def test_what_a_full_disk_did_not_take_is_written_later_though_memory_let_it_go(few: None, tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    log.emit(State("starting"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((tmp_path / "events.jsonl").stat().st_size, limits[1]))
    try:
        for _ in range(20):
            with pytest.raises(StorageError, match="File too large"):
                log.emit(a_load(["local:0"]))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(loads_of(log.events)) <= FEW
    log.emit(State("running"))
    log.close()
    assert [event.seq for event in read_events(tmp_path / "events.jsonl")] == list(range(22))


def test_a_lookout_misses_no_step_where_samples_go(few: None) -> None:
    story = Story({"actor": GPUS[:2], "reference": GPUS[:2], "rollout": GPUS[2:], "reward": ["cpu:0"]})
    lookout, said = LoadLookout(), []
    kept: list[Event] = []
    for _ in range(6):
        before = len(story.events)
        a_step_of(story, {**HEALTHY, "wait": 0.5})
        kept += story.events[before:]
        while len(loads_of(kept)) > FEW:
            kept = thinned(kept)
        said += lookout.news(kept)
    assert [(seen.code, seen.step) for seen in said] == [("WB731", 5)]


def test_a_sample_of_another_node_has_its_own_time() -> None:
    log = EventLog()
    first = log.emit(State("running"))
    there = log.emit_sample(a_load(["node2:0"]), "node2", first.mono - 1.5)
    assert (there.seq, there.node, there.kind, there.mono) == (1, "node2", "load", first.mono - 1.5)
    assert there.time == pytest.approx(first.time - 1.5, abs=0.1)
    assert isinstance(there.record, Load)


def rows(path: Path) -> Iterator[dict[str, str]]:
    with open(path, newline="") as file:
        yield from csv.DictReader(file)


def test_a_table_is_written_as_samples_come_and_goes_on_after_a_restore(few: None, tmp_path: Path) -> None:
    log = EventLog()
    for _ in range(2):
        table = CsvLog(log, tmp_path / "load.csv")
        written(log, 2, 10)
        table.close()
        log.emit(a_load(["local:0"]))
    assert [row["device"] for row in rows(tmp_path / "load.csv")] == ["local:0"] * 40
    with pytest.raises(StorageError, match=r"write .*nowhere"):
        CsvLog(log, tmp_path / "nowhere" / "load.csv")


@pytest.mark.parametrize("kept", [b"", b"time,mo", b"time,mono\r\n1,2\r\n", b"time,mono\r\n1,2\r\n3", b"a\r\n" + b"x" * 200_000])
def test_a_line_that_was_cut_off_is_no_part_of_the_next(tmp_path: Path, kept: bytes) -> None:
    path = tmp_path / "load.csv"
    path.write_bytes(kept)
    log = EventLog()
    table = CsvLog(log, path)
    written(log, 1, 2)
    table.close()
    found = path.read_bytes()
    whole = kept[: kept.rfind(b"\n") + 1] or ",".join(HEADER).encode() + b"\r\n"
    assert found.startswith(whole)
    assert [line.split(b",")[3] for line in found.removeprefix(whole).splitlines()] == [b"local:0"] * 2


def test_a_table_that_can_not_be_written_ends_and_the_run_goes_on(tmp_path: Path) -> None:
    log = EventLog()
    table = CsvLog(log, Path("/dev/full"))
    written(log, 1, 2)
    (problem,) = table.problems()
    assert problem == "/dev/full can't be written any more: No space left on device"
    assert table.problems() == []
    table.close()
    assert len(loads_of(log.events)) == 2
