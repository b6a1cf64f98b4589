"""A map's text as plain data, and on which line each key stands.

YAML is read event by event, once: plain values only, no tags, no code. Numbers are decimal and "yes" is text, as in YAML 1.2 (to YAML 1.1,
1:30 is ninety and 010 is eight). A key that is written twice is an error, where YAML would silently take the last. Files end at 64 KiB,
nesting at 20 levels, and values at 20 000 with every alias written out: a few lines can't stand for billions.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from workbench.errors import ConfigError
from workbench.mapping.devices import LONGEST, check_length
from workbench.mapping.words import shown

Key = tuple[str, ...]
LARGEST = LONGEST  # bytes of a file, characters of a text
DEEPEST = 20
MOST_VALUES = 20_000
MOST_OF_PYTHON = 2 * MOST_VALUES  # five roles may list 4096 devices each
_MEND = "mend the file; recipes/maps/ has examples"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where it is there: ten times as fast
_WORDS = {"": None, "~": None, "null": None, "Null": None, "NULL": None} | {
    word: value for value in (True, False) for word in (str(value), str(value).lower(), str(value).upper())
}
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT = re.compile(r"[-+]?(?:[0-9]{1,18}\.[0-9]{0,18}|\.[0-9]{1,18}|\.inf|\.nan)", re.IGNORECASE)


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


def from_python(data: Mapping[Any, Any]) -> Source:
    """What a program says, within the limits of a file: no deeper, no more values, no longer texts. Raises ConfigError."""
    values = 0
    level: list[Any] = list(data.values())
    for _ in range(DEEPEST):
        values += len(level)
        if values > MOST_OF_PYTHON:
            raise ConfigError("device map", f"more than {MOST_OF_PYTHON} values", "give a device map")
        for text in level:
            if isinstance(text, str):
                check_length(text, "device map")
        level = [part for value in level for part in _parts(value)]
        if not level:
            return Source("device map", data)
    raise ConfigError("device map", f"nested deeper than {DEEPEST} levels", "write devices, or a mapping of a role's keys")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def read_file(path: Path) -> Source:
    """The file's data. Raises ConfigError where it can't be read or holds no mapping."""
    asked = f"device map {str(path)!r}"
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST + 1)  # no more: it may be a device without an end
        text = content.decode("utf-8-sig") if len(content) <= LARGEST else ""
    except UnicodeDecodeError as error:
        raise ConfigError(asked, f"no YAML: byte {error.start} is no UTF-8", "save it as UTF-8") from error
    except (OSError, ValueError) as error:
        raise ConfigError(asked, getattr(error, "strerror", None) or str(error), "give a file that can be read") from error
    if len(content) > LARGEST:
        raise ConfigError(asked, f"it has more than {LARGEST} bytes", "give a device map: a short file")
    return read_text(text, str(path), is_json=path.suffix == ".json")


def read_text(text: str, name: str, is_json: bool = False) -> Source:
    """The data of YAML or JSON text. ``name``: for messages. ``is_json``: it has to be JSON, which YAML else includes."""
    if len(text) > LARGEST:
        raise ConfigError(name, f"it has {len(text)} characters, and a map at most {LARGEST}", "give a device map")
    if is_json or "\t" in text:
        text = _json_for_yaml(text, name, is_json)
    reader = _Reader(name, text)
    try:
        data = reader.read()
    except yaml.MarkedYAMLError as error:
        raise _no_yaml(name, error) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(name, "no YAML: it has characters that no text has", _MEND) from error
    if not isinstance(data, dict):
        raise ConfigError(name, f"holds {_kind(data)}, not roles", "write lines such as 'actor: {devices: cpu}'")
    return Source(name, data, reader.lines)


def _json_for_yaml(text: str, name: str, is_json: bool) -> str:
    """JSON with blanks for its tabs, the one thing of it that YAML does not read; within JSON's strings there are none."""
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        if not is_json:
            return text
        line = getattr(error, "lineno", None)
        raise ConfigError(f"{name}, line {line}" if line else name, f"no JSON: {getattr(error, 'msg', error)}", _MEND) from error
    return text.replace("\t", " ")


def _no_yaml(name: str, error: Any) -> ConfigError:
    """YAML's own error with the line, and the line of what was begun."""
    mark = error.problem_mark or error.context_mark
    begun = f", {error.context} from line {error.context_mark.line + 1}" if error.context and error.context_mark else ""
    return ConfigError(f"{name}, line {mark.line + 1}" if mark else name, f"no YAML: {error.problem}{begun}", _MEND)


class _Reader:
    """Builds plain data from YAML's events, one at a time."""

    def __init__(self, name: str, text: str) -> None:
        self.lines: dict[Key, int] = {}
        self._name, self._events = name, self._checked(yaml.parse(text, Loader=_LOADER))
        self._anchors: dict[str, tuple[Any, int]] = {}  # name -> data, and how many values it is
        self._values = 0

    def read(self) -> Any:
        """The data of the only document; None where there is none."""
        data = None
        for event in self._events:
            if isinstance(event, yaml.NodeEvent):
                data = self._node(event, ())
        return data

    def _checked(self, events: Iterator[Any]) -> Iterator[Any]:
        """The events, up to one that a map does not have."""
        depth = documents = 0
        for event in events:
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            documents += isinstance(event, yaml.DocumentStartEvent)
            if depth > DEEPEST:
                raise self._error(event, f"nested deeper than {DEEPEST} levels", _MEND)
            if documents > 1:
                raise self._error(event, "a second document, and a map is one", "leave out what follows '---'")
            if getattr(event, "tag", None) not in (None, "!"):
                raise self._error(event, f"{shown(event.tag)} is a tag, and a map has plain values", "leave it out")
            yield event

    def _node(self, event: Any, path: Key) -> Any:
        """The data that begins with ``event``. ``path``: the keys that lead to it."""
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._values
        self._count(1, event)
        if isinstance(event, yaml.MappingStartEvent):
            data: Any = self._mapping(path)
        elif isinstance(event, yaml.SequenceStartEvent):
            data = [self._node(item, path) for item in self._until(yaml.SequenceEndEvent)]
        else:
            data = _plain(event.value) if event.implicit[0] else event.value
        if event.anchor:
            self._anchors[event.anchor] = data, self._values - before
        return data

    def _alias(self, event: Any) -> Any:
        if event.anchor not in self._anchors:
            raise self._error(event, f"'*{event.anchor[:40]}' stands for nothing that ends before it", "write it out")
        data, values = self._anchors[event.anchor]
        self._count(values, event)
        return data

    def _mapping(self, path: Key) -> dict[str, Any]:
        """A mapping, with the keys of "<<" where it does not write them itself."""
        written: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for event in self._until(yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error(event, "a key is a word", _MEND)
            key = event.value
            if key in written:
                line = self.lines.get((*path, key))
                raise self._error(event, f"it is written on line {line} already", "write it once", key)
            self.lines[(*path, key)] = event.start_mark.line + 1
            value = self._node(next(self._events), (*path, key))
            if key == "<<" and event.implicit[0]:
                merged = self._merged(event, value, merged)
            else:
                written[key] = value
        return merged | written

    def _merged(self, event: Any, value: Any, found: dict[str, Any]) -> dict[str, Any]:
        """``found`` and what "<<" adds to it: a mapping, or several of which the first holds."""
        for part in value if isinstance(value, list) else [value]:
            if not isinstance(part, dict):
                raise self._error(event, f"{shown(part)} has no keys to merge", "write <<: *NAME of a mapping", "<<")
            found = part | found
        return found

    def _until(self, end: type) -> Iterator[Any]:
        """The events of one collection, each the first of an item."""
        while not isinstance(event := next(self._events), end):
            yield event

    def _count(self, values: int, event: Any) -> None:
        self._values += values
        if self._values > MOST_VALUES:
            raise self._error(event, f"more than {MOST_VALUES} values, aliases written out", "give a device map: a short file")

    def _error(self, event: Any, found: str, fix: str, key: str = "") -> ConfigError:
        return ConfigError(f"{self._name}, line {event.start_mark.line + 1}{f': {key[:60]}' if key else ''}", found, fix)


def _plain(text: str) -> Any:
    """A word without quotes, as YAML 1.2 reads it: null, true, false, a number, else text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text.lower().replace(".inf", "inf").replace(".nan", "nan")) if _FLOAT.fullmatch(text) else text


def _kind(data: Any) -> str:
    return {type(None): "nothing", str: "text", list: "a list", bool: "true or false"}.get(type(data), "a number")
