"""What a waiting cell or terminal shows."""

import pytest

from workbench.console import progress
from workbench.events import EventLog
from workbench.records import Notice, Progress


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
