"""What a waiting cell or terminal shows."""

import pytest

from workbench.console import progress
from workbench.events import EventLog
from workbench.records import Notice, Progress, Seen


def test_notices_are_written_between_the_bars(capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog()
    log.emit(Notice("before anybody waits"))
    with progress(log):
        log.emit(Progress("engine", 0, 1, "starting vLLM"))
        log.emit(Notice("Device mapping resolved:\n  actor      ddp   cpu:0 (pid 1)  [actor]"))
        log.emit(Progress("engine", 1, 1))
    out = capsys.readouterr().out
    assert "Device mapping resolved:\n  actor      ddp   cpu:0 (pid 1)  [actor]\n" in out
    assert "before anybody waits" not in out


def test_a_finding_is_said_when_it_begins_and_not_when_it_ends(capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog()
    seen = Seen("WB701", "KL blows up", "error", 7, 5, "KL to the base 5.00", "halve the learning rate")
    with progress(log):
        log.emit(seen)
        log.emit(Seen(**{**vars(seen), "ended": True}))
    said = capsys.readouterr().out
    assert said.count("WB701") == 1
    assert "error WB701, KL blows up: KL to the base 5.00\n  fix: halve the learning rate" in said


def test_what_a_caller_prints_between_two_steps_has_a_line_to_itself(capsys: pytest.CaptureFixture[str]) -> None:
    log = EventLog()
    with progress(log) as bars:
        log.emit(Progress("steps", 1, 3, "step 1: reward 0.5"))
        bars.make_way()
        print("mine")
        log.emit(Progress("steps", 2, 3, "step 2: reward 0.6"))
    before = capsys.readouterr().out.partition("mine")[0]
    assert before.endswith("\r")
    assert not before.rstrip("\r").rpartition("\r")[2].strip()  # the bar was written over with blanks
