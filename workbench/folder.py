"""A run's folder: ``runs/NAME-TIMESTAMP/``, with ``runs/NAME`` as a link to the newest. Every file is written whole or not at all."""

import fcntl
import itertools
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from workbench.errors import ConfigError, StateError

_UNFINISHED = re.compile(r"\.(adapter|metrics\.json|plan\.json|placement\.json)\.\d+")  # of a write that was killed
LOCK = "run.lock"  # held by the process whose run it is


class RunFolder:
    """Makes the folder and writes into it. Raises ConfigError where that can't be done: at once, though ``make`` comes later."""

    def __init__(self, root: Path, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ConfigError(f"name={name!r}", "it becomes the name of a folder", "use letters, digits, '.', '_' and '-'")
        self.root, self.name = root.absolute(), name
        self.path: Path | None = None
        self._locked: IO[str] | None = None
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.root):
                pass
        except OSError as error:
            raise self._unwritable(error) from error

    def make(self) -> Path:
        """Make the folder, once, and point ``runs/NAME`` at it."""
        if self.path is None:
            try:
                self.path = self._make()
                self._lock(self.path)
                self._link(self.root / self.name)
            except OSError as error:
                raise self._unwritable(error) from error
        return self.path

    def adopt(self, path: Path) -> None:
        """Go on in the folder of a run that is there already. Raises StateError where another process writes to it."""
        try:
            self._lock(path)
            for left in path.iterdir():
                if _UNFINISHED.fullmatch(left.name):
                    shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        except OSError as error:
            self.release()
            raise self._unwritable(error) from error
        self.path = path

    def release(self) -> None:
        """Let another process go on with the run."""
        lock, self._locked = self._locked, None
        if lock is not None:
            lock.close()

    def _lock(self, path: Path) -> None:
        lock = open(path / LOCK, "a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process, however it ends
        except OSError as error:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            fix = "close that run first (run.close(), or shut its kernel down); two runs can't write to one folder"
            raise StateError(f"go on in {path}", f"the run is open already, in process {owner}", fix) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._locked = lock

    def _make(self) -> Path:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for number in itertools.count():  # two runs may start within a second
            path = self.root / (f"{self.name}-{stamp}" + (f"-{number}" if number else ""))
            with suppress(FileExistsError):
                path.mkdir()
                return path
        raise AssertionError("unreachable")

    def _unwritable(self, error: OSError) -> ConfigError:
        found = f"it can't be written ({error.strerror or error})"
        return ConfigError(f"run folder {str(self.root)!r}", found, "give another one: Run(folder=...)")

    def _link(self, link: Path) -> None:
        """Point ``runs/NAME`` at this run, unless something that is no link has that name."""
        if link.exists() and not link.is_symlink():
            return
        target = self.make().name
        fresh = link.with_name(f".{target}.link")
        fresh.symlink_to(target)
        fresh.replace(link)

    def write_json(self, name: str, data: Any) -> Path:
        """Write ``data`` as JSON, whole or not at all."""
        return self.write(name, lambda path: path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8"))

    def write(self, name: str, fill: Callable[[Path], Any]) -> Path:
        """Let ``fill`` write a file or folder under a temporary name, then put it in the place of ``name`` at once.

        In a folder that is there already, each file is replaced at once, by itself: it is never absent.
        """
        final, fresh = self.make() / name, self.make() / f".{name}.{os.getpid()}"
        if fresh.is_dir():
            shutil.rmtree(fresh)  # of a save that was interrupted
        fill(fresh)
        if final.is_dir():
            for file in fresh.iterdir():
                file.replace(final / file.name)
            fresh.rmdir()
        else:
            fresh.replace(final)
        return final


def is_alive(path: Path) -> bool:
    """Whether a process holds the run in the folder ``path`` open."""
    try:
        with open(path / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
