"""A map's text as plain data, and on which line each key stands.

YAML is read by the safe loader: no tags, no code. An alias may not hold another (a few lines could stand for billions),
nesting ends at 20 levels and files at 64 KiB; a key that is written twice is an error, where YAML would silently take the last.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from workbench.errors import ConfigError

Key = tuple[str, ...]
LARGEST = 64 * 1024  # characters
DEEPEST = 20
_MEND = "mend the file; recipes/maps/ has examples"


@dataclass(frozen=True)
class Source:
    """What was written: a name for it, plain data, and the line of each key where it came from a file."""

    name: str
    data: Mapping[str, Any]
    lines: Mapping[Key, int] = field(default_factory=dict)

    def at(self, *path: str) -> str:
        """A key for a message: "map.yaml, line 3: actor.layout"."""
        line = next((self.lines[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.lines), None)
        place = self.name if line is None else f"{self.name}, line {line}"
        return f"{place}: {'.'.join(path)}" if path else place


def read_file(path: Path) -> Source:
    """The file's data. Raises ConfigError where it can't be read or holds no mapping."""
    asked = f"device map {str(path)!r}"
    try:
        if path.stat().st_size > 4 * LARGEST:
            raise ConfigError(asked, f"it has {path.stat().st_size} bytes, and a map at most {4 * LARGEST}", "give a device map")
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = "no YAML: it is no UTF-8" if isinstance(error, UnicodeDecodeError) else getattr(error, "strerror", None) or str(error)
        raise ConfigError(asked, reason, "give a file that can be read") from error
    return read_text(text, str(path), is_json=path.suffix == ".json")


def read_text(text: str, name: str, is_json: bool = False) -> Source:
    """The data of YAML or JSON text. ``name``: for messages."""
    if len(text) > LARGEST:
        raise ConfigError(name, f"it has {len(text)} characters, and a map at most {LARGEST}", "give a device map")
    if is_json:
        _check_json(text, name)
        text = text.replace("\t", " ")  # YAML reads JSON, but for tabs; within JSON's strings there are none
    try:
        _check_events(text, name)
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        lines: dict[Key, int] = {}
        if node is not None:
            _walk(node, (), lines, name)
        data = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, AttributeError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(name, f"no YAML: {' '.join(str(error).split())[:300]}", _MEND) from error
    if not isinstance(data, dict):
        raise ConfigError(name, f"holds {_kind(data)}, not roles", "write lines such as 'actor: {devices: cpu}'")
    return Source(name, data, lines)


def _check_json(text: str, name: str) -> None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(name, f"no JSON: {error}", _MEND) from error


def _check_events(text: str, name: str) -> None:
    """Refuse what would make little text much data, before anything is built of it."""
    depth, anchored = 0, []
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) and anchored:
            raise ConfigError(name, f"line {event.start_mark.line + 1}: an alias within an anchor", "write it out")
        if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            depth += 1
            anchored += [depth] if event.anchor else []
        if isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            anchored = anchored[:-1] if anchored and anchored[-1] == depth else anchored
            depth -= 1
        if depth > DEEPEST:
            raise ConfigError(name, f"line {event.start_mark.line + 1}: nested deeper than {DEEPEST} levels", _MEND)


def _walk(node: yaml.Node, path: Key, lines: dict[Key, int], name: str) -> None:
    """Note the line of each key; refuse one that is written twice."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _walk(item, path, lines, name)
    if not isinstance(node, yaml.MappingNode):
        return
    seen: dict[str, int] = {}
    for key, value in node.value:
        text, line = str(key.value), key.start_mark.line + 1
        if text in seen and key.tag != "tag:yaml.org,2002:merge":
            raise ConfigError(f"{name}, line {line}: {text[:60]}", f"it is written on line {seen[text]} already", "write it once")
        seen[text] = line
        lines.setdefault((*path, text), line)
        _walk(value, (*path, text), lines, name)


def _kind(data: Any) -> str:
    return {type(None): "nothing", str: "text", list: "a list"}.get(type(data), f"a {type(data).__name__}")
