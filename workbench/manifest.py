"""A folder's list of its own files with their SHA-256: how to know later that each is as it was written."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAME = "manifest.json"


def sha256(path: Path) -> str:
    """64 hex digits of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write(folder: Path, facts: Mapping[str, Any]) -> None:
    """List the files of ``folder``, beside ``facts``; the last file that is to be written there."""
    files = {path.name: sha256(path) for path in sorted(folder.iterdir())}
    (folder / NAME).write_text(json.dumps({"files": files, **facts}, indent=2) + "\n", encoding="utf-8")


def damage(folder: Path) -> str | None:
    """What is wrong with ``folder``, or None where every file is as it was written."""
    try:
        files = json.loads((folder / NAME).read_text(encoding="utf-8"))["files"]
        for name, digest in files.items():
            if sha256(folder / name) != digest:
                return f"{name} is not as it was written"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        return f"{NAME} can't be read: {error}"
    return None
