"""Which steps are profiled: what can be written, and what can't."""

from pathlib import Path
from typing import Any

import pytest

import workbench as wb
from workbench.errors import ConfigError, StateError, StorageError
from workbench.events import EventLog
from workbench.profiling import keep, profiled_steps
from workbench.telemetry.traffic import Recording


def test_steps_are_numbers_in_order_once_each():
    assert profiled_steps(None) == ()
    assert profiled_steps(range(3, 5)) == (3, 4)
    assert profiled_steps([7, 2, 7]) == (2, 7)


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (range(5, 3), "that is no step at all"),
        ([], "that is no step at all"),
        (range(0, 2), "there is no step 0: the first is 1"),
        ([3, -1], "there is no step -1: the first is 1"),
        ([1.5], r"1\.5 is a float"),
        ([True], "True is a bool"),
        (["3"], "'3' is a str"),
        (True, "that is a bool"),
        (3, "that is a int"),
        ("3-5", "that is a str"),
        ({3}, "that is a set"),
        (bytearray(b"3"), "that is a bytearray"),
        (range(10**12, 0, -1), "each of these steps would leave a trace of every rank, and at most 1000 of a run are profiled"),
        (range(1, 10**18), "each of these steps would leave a trace of every rank, and at most 1000 of a run are profiled"),
    ],
)
def test_what_is_no_list_of_steps_is_refused_where_it_is_written(asked: Any, found: str, tmp_path: Path):
    with pytest.raises(ConfigError, match=rf"Run\(profile=.*\): {found}\n  fix: write profile=range\(3, 5\)"):
        wb.Run(wb.DeviceMap(actor="cpu"), task=wb.tasks.sorting(), profile=asked, folder=tmp_path)


def test_before_a_profiled_step_there_is_nothing_to_show(tmp_path: Path):
    with wb.Run(wb.DeviceMap(actor="cpu"), task=wb.tasks.sorting(), profile=[2], folder=tmp_path) as run:
        assert run.plan.profile == (2,)
        assert run.plan.saved()["profile"] == [2]
        with pytest.raises(StateError, match=r"run\.profile: no step has been profiled\n  fix: write Run\(profile=range\(3, 5\)\)"):
            _ = run.profile


def test_a_folder_that_takes_no_traces_is_said(tmp_path: Path):
    (tmp_path / "profile").write_text("in the way")
    with pytest.raises(StorageError, match=r"traces in .*profile/step-000003: it can't be written"):
        keep([], 3, tmp_path, EventLog(), None)


class Full(EventLog):
    """A log whose file takes nothing."""

    def _catch_up(self) -> None:
        raise StorageError("write", "No space left on device", "free space")


def test_on_a_full_disk_every_sum_is_kept_for_later(tmp_path: Path):
    log = Full()
    one = Recording("actor", "sync", 0, "cpu:0", ("cpu:0",), 0.5, (), {"traceEvents": []})
    with pytest.raises(StorageError, match="No space left"):
        keep([[one]], 3, tmp_path, log, None)
    assert [event.kind for event in log.events] == ["profiled", "phase_profile"]


def test_traces_are_there_all_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one = Recording("actor", "sync", 0, "cpu:0", ("cpu:0",), 0.5, (), {"traceEvents": []})
    keep([[one]], 3, tmp_path, EventLog(), None)
    before = sorted((tmp_path / "profile").rglob("*"))
    write = Path.write_text

    def full(path: Path, *args: Any, **named: Any) -> int:
        if path.name == "all.json":
            raise OSError(28, "No space left on device")
        return write(path, *args, **named)

    monkeypatch.setattr(Path, "write_text", full)
    for step in (3, 4):
        with pytest.raises(StorageError, match=r"traces in .*: it can't be written: No space left"):
            keep([[one]], step, tmp_path, EventLog(), None)
    assert sorted((tmp_path / "profile").rglob("*")) == before
