"""Write a mended map into its file: only the values of the roles that changed, everything else stays as it is."""

import difflib
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from workbench.errors import StorageError, WorkbenchError
from workbench.mapping.device_map import DeviceMap, flow
from workbench.mapping.entry import WRAPPERS
from workbench.mapping.source import read_text
from workbench.roles import ALIASES, Role

BOM = "\ufeff"
COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)
WRITABLE = 0o222


def rewrite(path: Path, old: DeviceMap, new: DeviceMap) -> str:
    """Write ``new`` over the map ``old`` in the file ``path``, whole or not at all, and return what changed as a diff.

    Of a link the file behind it is written. Raises StorageError where it can't be, and where the file is no longer ``old``.
    """
    target, asked = path.resolve(), f"--fix {path}"
    is_json = path.suffix == ".json"
    try:
        before = target.read_bytes().decode(errors="replace")
        if not _says(before, old, is_json):
            raise StorageError(asked, "it has changed since it was read", "run the command again")
        after = new_text(before, new, is_json)
        if not target.stat().st_mode & WRITABLE:
            raise StorageError(asked, "it is read-only", "chmod u+w it, or mend a copy")
        _replace(target, before, after, asked)
    except OSError as error:
        raise StorageError(asked, f"it can't be written ({error.strerror})", "write it elsewhere, or mend it by hand") from error
    was, now = (text.removeprefix(BOM).splitlines(keepends=True) for text in (before, after))
    return "".join(_ended(line) for line in difflib.unified_diff(was, now, str(path), f"{path} (mended)", n=1))


def _replace(target: Path, before: str, after: str, asked: str) -> None:
    part = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        part.write_bytes(after.encode())
        part.chmod(target.stat().st_mode & 0o7777)
        if target.read_bytes() != before.encode():
            raise StorageError(asked, "it has changed meanwhile", "run the command again")
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _ended(line: str) -> str:
    return line.rstrip("\r\n") + "\n"


def new_text(before: str, new: DeviceMap, is_json: bool = False) -> str:
    """The file's text with the map ``new``: values of roles replaced in place, or, where the roles' values hang on other parts
    of the file (named groups, sizes, anchors), the map written anew beneath the file's comments."""
    bom, text = (BOM, before[1:]) if before.startswith(BOM) else ("", before)
    break_ = "\r\n" if "\r\n" in text else "\n"
    document = _Document.of(text, is_json)
    for write in (document.edited, document.anew):
        for more in document.additions(new):  # what a map may leave out need not be written
            after = bom + write(new, more).replace("\r\n", "\n").replace("\n", break_)
            if _says(after, new, is_json):
                return after
    raise StorageError("--fix", "the mended map can't be written in this file's form", "mend it by hand")


def _read(text: str, is_json: bool) -> DeviceMap:
    return DeviceMap.of(read_text(text.removeprefix(BOM), "device map", is_json=is_json))


def _says(text: str, wanted: DeviceMap, is_json: bool) -> bool:
    """Whether a text reads as the map."""
    try:
        return _read(text, is_json) == wanted
    except WorkbenchError:
        return False


@dataclass(frozen=True)
class _Edit:
    """Text that takes the place of what lies between two positions."""

    start: int
    end: int
    text: str


@dataclass(frozen=True)
class _Document:
    """A map's text and where its roles are in it. ``roles``: the mapping that has them, within its wrapper if there is one."""

    text: str
    roles: yaml.MappingNode
    wrapper: str
    is_json: bool

    @classmethod
    def of(cls, text: str, is_json: bool) -> "_Document":
        root = yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)  # tabs are in JSON alone, and positions stay
        inner = ((value, key.value) for key, value in root.value if key.value in WRAPPERS and isinstance(value, yaml.MappingNode))
        roles, wrapper = next(inner, (root, ""))
        return cls(text, roles, wrapper, is_json)

    @property
    def names(self) -> dict[str, str]:
        """Role -> as the file calls it."""
        return {ALIASES.get(key.value, key.value): key.value for key, _ in self.roles.value}

    @cached_property
    def old(self) -> dict[str, Any]:
        """The map that it says, with what it leaves out."""
        return _read(self.text, self.is_json).to_dict()

    def additions(self, new: DeviceMap) -> Iterator[tuple[str, ...]]:
        """Roles that might have to be written though the file does not name them: none, those it did not have, those that changed, all."""
        roles = [role for role in new.to_dict() if role not in self.names]
        yield ()
        yield tuple(role for role in roles if role not in self.old)
        yield tuple(role for role in roles if self.old.get(role) != new.to_dict()[role])
        yield tuple(roles)

    def edited(self, new: DeviceMap, more: tuple[str, ...]) -> str:
        """The text with the values of the roles that differ from ``new`` replaced, roles that are gone cut out, and ``more`` at the end."""
        wanted = new.to_dict()
        edits = [*self._changes(self.old, wanted), *self._additions({role: wanted[role] for role in more})]
        text = self.text
        for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
            text = text[: edit.start] + edit.text + text[edit.end :]
        return text

    def _changes(self, old: Mapping[str, Any], wanted: Mapping[str, Any]) -> Iterator[_Edit]:
        for at, (key, value) in enumerate(self.roles.value):
            role = ALIASES.get(key.value, key.value)
            if role not in list(Role) or old.get(role) == wanted.get(role):
                continue
            yield self._set(key, value, wanted[role]) if role in wanted else self._cut(at)

    def _set(self, key: yaml.Node, value: yaml.Node, place: Any) -> _Edit:
        """Another value for a key. Comments that stood within the old one go above the key."""
        start, end = key.end_mark.index, _end(value)
        inside = self.text[start:end]
        comments = [] if self.roles.flow_style else COMMENT.findall(inside)
        indent = " " * key.start_mark.column
        above = "".join(f"{comment.rstrip()}\n{indent}" for comment in comments)
        block = isinstance(value, yaml.MappingNode) and not value.flow_style
        return _Edit(key.start_mark.index, end, f"{above}{self.text[key.start_mark.index : start]}:{self._value(place, indent, block)}")

    def _value(self, place: Any, indent: str, block: bool) -> str:
        if self.is_json or self.roles.flow_style:
            return f" {json.dumps(place)}"
        if not block or len(place) == 1:
            return f" {flow(place)}"
        lines = "".join(f"\n{indent}  {key}: {flow(value)}" for key, value in place.items())
        return lines

    def _cut(self, at: int) -> _Edit:
        """Without a role: its lines, or in braces its part up to the next one's."""
        key, value = self.roles.value[at]
        if not self.roles.flow_style:
            start = self.text.rfind("\n", 0, key.start_mark.index) + 1
            stop = self.text.find("\n", _end(value))
            return _Edit(start, len(self.text) if stop < 0 else stop + 1, "")
        if at + 1 < len(self.roles.value):
            return _Edit(key.start_mark.index, self.roles.value[at + 1][0].start_mark.index, "")
        before = _end(self.roles.value[at - 1][1]) if at else key.start_mark.index
        return _Edit(before, _end(value), "")

    def _additions(self, added: Mapping[str, Any]) -> list[_Edit]:
        """Roles that the file does not have, after its last one."""
        if not added or not self.roles.value:
            return []
        key, value = self.roles.value[-1]
        column, end = key.start_mark.column, _end(value)
        if self.roles.flow_style:
            apart = "\n" + " " * column if self.roles.start_mark.line != key.start_mark.line else " "
            return [_Edit(end, end, "".join(f",{apart}{json.dumps(role)}: {json.dumps(place)}" for role, place in added.items()))]
        stop = self.text.find("\n", end)
        lines = [f"{' ' * column}{role}: {flow(place)}" for role, place in added.items()]
        if stop < 0:
            return [_Edit(len(self.text), len(self.text), "".join(f"\n{line}" for line in lines))]
        return [_Edit(stop + 1, stop + 1, "".join(f"{line}\n" for line in lines))]

    def anew(self, new: DeviceMap, more: tuple[str, ...]) -> str:
        """The whole map, with the file's names and comments: the roles that it has, and ``more``."""
        named = {self.names.get(role, role): place for role, place in new.to_dict().items() if role in self.names or role in more}
        data = {self.wrapper: named} if self.wrapper else named
        if self.is_json:
            return json.dumps(data, indent=2) + "\n"
        comments = "".join(f"{line.strip()}\n" for line in self.text.splitlines() if line.lstrip().startswith("#"))
        indent = "  " if self.wrapper else ""
        head = f"{self.wrapper}:\n" if self.wrapper else ""
        return comments + head + "".join(f"{indent}{role}: {flow(place)}\n" for role, place in named.items())


def _end(node: yaml.Node) -> int:
    """Where a value ends: a block's mark is that of the next key, behind blank lines and comments."""
    if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return _end(last[1] if isinstance(node, yaml.MappingNode) else last)
