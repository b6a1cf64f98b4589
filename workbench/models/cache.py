"""Models that were made on this machine, kept for the next run.

An entry is a checkpoint folder with a list of its files and their SHA-256, written into a temporary folder and renamed when
it is whole. Two processes at once both make it, and the first one's stays.
"""

import errno
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.manifest import damage, write

STALE_SECONDS = 24 * 3600.0  # a temporary folder this old belongs to a process that was killed

Make = Callable[[Path], dict[str, Any]]
"""Fills an empty folder with a checkpoint; returns what the manifest says about it."""
Say = Callable[[float, str], None]
"""``(share, note)``: how much is done, from 0 to 1. What it raises ends the work."""


def kept(name: str, make: Make, say: Say) -> Path:
    """The folder of the model ``name``: from the cache, or made now.

    What ``make`` or ``say`` raises leaves nothing behind. Warns where the entry is damaged, and makes it again. Raises
    ConfigError on a cache that can't be written.
    """
    folder = cache_folder() / "models" / name
    fault = damage(folder)
    if fault is None:
        say(1.0, "from the cache")
        return folder
    if folder.exists():
        text = f"the cached model {folder} is damaged ({fault}): making it again"
        warnings.warn(text, stacklevel=3)
        say(0.0, text)
    temporary = _temporary(folder)
    try:
        write(temporary, make(temporary))
        _publish(temporary, folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    say(1.0, f"saved in {folder}")
    return folder


def cache_folder() -> Path:
    """Where things are kept that can be made again: $WORKBENCH_CACHE, or rl-workbench in $XDG_CACHE_HOME or ~/.cache."""
    own = os.environ.get("WORKBENCH_CACHE")
    if own:
        return Path(own).expanduser()
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path.home() / ".cache") / "rl-workbench"


def _temporary(folder: Path) -> Path:
    """A fresh folder beside ``folder``. Clears what killed processes left there long ago."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(".making-*"):
            if time.time() - left.stat().st_mtime > STALE_SECONDS:
                shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
    except OSError as error:
        raise ConfigError(f"cache folder {folder.parent}", f"can't be written: {error}", "set WORKBENCH_CACHE to one that can") from error


def _publish(temporary: Path, folder: Path) -> None:
    """Put a whole entry in its place, unless another process has done so meanwhile."""
    try:
        temporary.rename(folder)
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    if damage(folder) is not None:
        aside = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
        folder.rename(aside / "damaged")
        shutil.rmtree(aside, ignore_errors=True)
        _publish(temporary, folder)
