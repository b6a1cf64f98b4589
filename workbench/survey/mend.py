"""Write a mended map into its file: only what changed, everything else stays as it is."""

import difflib
import errno
import fcntl
import os
from io import FileIO
from pathlib import Path

from workbench.errors import StorageError, WorkbenchError
from workbench.mapping.device_map import DeviceMap, flow
from workbench.survey.document import Document, edited, read_map

BOM = "\ufeff"
WRITABLE = 0o222


def rewrite(path: Path, old: DeviceMap, new: DeviceMap) -> str:
    """Write ``new`` over the map ``old`` in the file ``path``, whole or not at all, and return what changed as a diff.

    It stays the same file: owner, permissions and links stay. Raises StorageError where it can't be written, and where it is no longer
    ``old``, as when another ``--fix`` was quicker.
    """
    asked, is_json = f"--fix {path}", path.suffix == ".json"
    try:
        if not path.stat().st_mode & WRITABLE:
            raise StorageError(asked, "it is read-only", "chmod u+w it, or mend a copy")
        with path.open("r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            content = file.read()
            before = content.decode(errors="replace")
            if not _says(before, old, is_json):
                raise StorageError(asked, "it has changed since it was read, perhaps mended by another --fix", "run the command again")
            after = new_text(before, new, is_json)
            _overwrite(file, content, after.encode())
    except OSError as error:
        raise StorageError(asked, f"it can't be written ({error.strerror})", "write it elsewhere, or mend it by hand") from error
    was, now = (text.removeprefix(BOM).splitlines(keepends=True) for text in (before, after))
    return "".join(_ended(line) for line in difflib.unified_diff(was, now, str(path), f"{path} (mended)", n=1))


def _overwrite(file: FileIO, before: bytes, after: bytes) -> None:
    """Write in one go, with line breaks over the rest of what was longer: cut off at any moment, the file is one of the two maps."""
    padded = after.ljust(len(before), b"\n")
    if os.pwrite(file.fileno(), padded, 0) < len(padded):
        os.pwrite(file.fileno(), before, 0)
        file.truncate(len(before))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file.truncate(len(after))
    os.fsync(file.fileno())


def _ended(line: str) -> str:
    return line.rstrip("\r\n") + "\n"


def new_text(before: str, new: DeviceMap, is_json: bool = False) -> str:
    """The file's text with the map ``new``, written in place: the roles that differ, else the devices of named groups, and sizes that
    stand apart. Raises StorageError, with what to write, where that does not say ``new`` (anchors that several roles refer to)."""
    bom, text = (BOM, before[1:]) if before.startswith(BOM) else ("", before)
    break_ = "\r\n" if "\r\n" in text else "\n"
    document = Document.of(text, is_json)
    for edits in document.ways(new):
        after = bom + edited(text, edits).replace("\r\n", "\n").replace("\n", break_)
        if _says(after, new, is_json):
            return after
    lines = "".join(f"\n    {role}: {flow(place)}" for role, place in new.to_dict().items() if place != document.old.get(role))
    raise StorageError("--fix", "this file's form (anchors, groups that roles share) has no place for it", f"write by hand:{lines}")


def _says(text: str, wanted: DeviceMap, is_json: bool) -> bool:
    """Whether a text reads as the map."""
    try:
        return read_map(text.removeprefix(BOM), is_json) == wanted
    except WorkbenchError:
        return False
