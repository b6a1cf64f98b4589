"""A run's folder: ``runs/NAME-TIMESTAMP/``, with ``runs/NAME`` as a link to the newest. Every file is written whole or not at all."""

import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError


class RunFolder:
    """Makes the folder and writes into it. Raises ConfigError where that can't be done."""

    def __init__(self, root: Path, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ConfigError(f"name={name!r}", "it becomes the name of a folder", "use letters, digits, '.', '_' and '-'")
        self.path = self._make(root, name)
        self._link(root / name)

    @staticmethod
    def _make(root: Path, name: str) -> Path:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        try:
            root.mkdir(parents=True, exist_ok=True)
            for number in range(1000):  # two runs may start within a second
                path = root / (f"{name}-{stamp}" + (f"-{number}" if number else ""))
                try:
                    path.mkdir()
                    return path
                except FileExistsError:
                    continue
        except OSError as error:
            found = f"it can't be written ({error.strerror or error})"
            raise ConfigError(f"run folder {str(root)!r}", found, "give another one: Run(folder=...)") from error
        raise ConfigError(f"run folder {str(root)!r}", f"a thousand runs {name!r} within a second", "give each a name of its own")

    def _link(self, link: Path) -> None:
        """Point ``runs/NAME`` at this run, unless something that is no link has that name."""
        if link.exists() and not link.is_symlink():
            return
        fresh = link.with_name(f".{self.path.name}.link")
        fresh.symlink_to(self.path.name)
        fresh.replace(link)

    def write_json(self, name: str, data: Any) -> Path:
        """Write ``data`` as JSON, whole or not at all."""
        return self.write(name, lambda path: path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8"))

    def write(self, name: str, fill: Callable[[Path], Any]) -> Path:
        """Let ``fill`` write a file or folder under a temporary name, then put it in the place of ``name`` at once."""
        final, fresh = self.path / name, self.path / f".{name}.{os.getpid()}"
        fill(fresh)
        if final.is_dir():
            old = self.path / f".{name}.old"
            final.rename(old)
            fresh.rename(final)
            shutil.rmtree(old)
        else:
            fresh.replace(final)
        return final
