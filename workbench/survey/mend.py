"""Write a mended map into its file: only the lines of the roles that changed, comments stay."""

import difflib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import StorageError, WorkbenchError
from workbench.mapping.device_map import DeviceMap, flow
from workbench.mapping.source import read_text
from workbench.roles import ALIASES

KEEP = ("#", "---")


def rewrite(path: Path, old: DeviceMap, new: DeviceMap) -> str:
    """Write ``new`` over the map ``old`` in the file ``path``, and return what changed as a diff. Raises StorageError where it can't."""
    before = path.read_text(encoding="utf-8-sig")
    after = new_text(before, old, new, is_json=path.suffix == ".json")
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(after, encoding="utf-8")
        part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise StorageError(f"--fix {path}", f"it can't be written ({error.strerror})", "write it elsewhere, or mend it by hand") from error
    return "".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(path), f"{path} (mended)", n=1))


def new_text(before: str, old: DeviceMap, new: DeviceMap, is_json: bool = False) -> str:
    """The file's text with the map ``new``. Where its form leaves no line to a role (JSON, groups), it is written anew."""
    if is_json:
        return json.dumps(new.to_dict(), indent=2) + "\n"
    text = _by_line(before, old.to_dict(), new.to_dict())
    try:
        if DeviceMap.parse(text) == new:
            return text
    except WorkbenchError:
        pass  # the roles' lines depend on others: groups, parallelism_config
    head = []
    for line in before.splitlines(keepends=True):
        if line.strip() and not line.startswith(KEEP):
            break
        head.append(line)
    return "".join(head) + new.to_yaml()


def _by_line(before: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """``before`` with other lines for the roles that changed; a new role stands at the end."""
    lines = before.splitlines()
    starts = sorted((line - 1, path[0]) for path, line in read_text(before, "map").lines.items() if len(path) == 1)
    wanted = {role: f"{role}: {flow(place)}" for role, place in new.items() if old.get(role) != place}
    wanted |= {role: "" for role in old if role not in new}
    for at, (start, key) in reversed(list(enumerate(starts))):
        role = ALIASES.get(key, key)
        if role not in wanted:
            continue
        end = starts[at + 1][0] if at + 1 < len(starts) else len(lines)
        while end > start + 1 and (not lines[end - 1].strip() or lines[end - 1].startswith("#")):
            end -= 1
        line = wanted.pop(role).replace(f"{role}:", f"{key}:", 1)
        lines[start:end] = [line] if line else []
    return "\n".join([*lines, *(line for line in wanted.values() if line)]) + "\n"
