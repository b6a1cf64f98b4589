"""What crosses back from a worker's process when something goes wrong there."""

import os
import pickle
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.errors import ConfigError, RewardError
from workbench.models.ranks import Ranks
from workbench.runtime.host import Host, crossable, pickled
from workbench.runtime.ray import here


class OddError(Exception):
    """Its constructor takes two values, and the exception keeps one: it can be pickled, and not read again."""

    def __init__(self, path: str, line: int) -> None:
        super().__init__(f"{path}:{line}")


class LockedError(Exception):
    """It can't be pickled."""

    def __init__(self) -> None:
        super().__init__("held")
        self.lock = threading.Lock()


class MuteError(Exception):
    """It can't even be said."""

    def __str__(self) -> str:
        raise ValueError

    def __reduce__(self) -> Any:
        raise ValueError


def test_errors_that_can_cross_stay_what_they_are() -> None:
    class LocalError(ValueError):
        pass

    for error in (RewardError("reward f", "漢", "fix it"), LocalError("ü"), KeyError("x")):
        assert crossable(error) is error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OddError("a.py", 3), r"^\S*OddError: a.py:3$"),
        (LockedError(), r"^\S*LockedError: held$"),
        (SystemExit(3), "^SystemExit: 3$"),
        (MuteError(), r"^\S*MuteError: <exception str\(\) failed>$"),
    ],
)
def test_others_cross_by_name(error: BaseException, words: str) -> None:
    def attend(method: str, values: Any) -> None:
        raise error

    host = Host(b"", b"", None)
    host._worker = SimpleNamespace(attend=attend, ranks=Ranks.alone(), engine=None)  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match=words) as raised:
        host.call(1, "update", pickle.dumps(()))
    assert raised.value.__cause__ is error  # its traceback is told with it
    assert type(pickle.loads(pickle.dumps(raised.value))) is RuntimeError


def test_what_can_not_leave_the_process_is_refused_with_a_fix() -> None:
    assert pickle.loads(pickled(lambda: 7))() == 7
    with pytest.raises(ConfigError, match=r"can't be pickled \(TypeError: cannot pickle '_thread.lock' object\)") as refused:
        pickled({"reward": threading.Lock()})
    assert "when it is first called" in refused.value.fix


def test_workers_find_the_modules_of_the_folder_that_a_notebook_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "relative", "/usr/lib/python3"])
    assert here()["PYTHONPATH"].split(os.pathsep) == [str(tmp_path), str(tmp_path / "relative"), "/usr/lib/python3"]
