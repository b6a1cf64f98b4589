"""A map's text, where its roles are in it, and the edits that make it another map."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import yaml

from workbench.mapping.device_map import DeviceMap, flow
from workbench.mapping.entry import WRAPPERS
from workbench.mapping.placement import Placement
from workbench.mapping.source import read_text
from workbench.roles import ALIASES, Role

COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)
ALIAS = re.compile(r"\s*:\s*(\*\S+)")
Pair = tuple[yaml.Node, yaml.Node]


@dataclass(frozen=True)
class Edit:
    """Text that takes the place of what lies between two positions."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text after ``edits``, which do not overlap."""
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def read_map(text: str, is_json: bool) -> DeviceMap:
    """The map that a text says."""
    return DeviceMap.of(read_text(text, "device map", is_json=is_json))


@dataclass(frozen=True)
class Document:
    """A map's text and where things are in it. ``root``: all of it; ``roles``: the mapping that has them, within its wrapper if any."""

    text: str
    root: yaml.MappingNode
    roles: yaml.MappingNode
    is_json: bool

    @classmethod
    def of(cls, text: str, is_json: bool) -> "Document":
        """What ``text``, which is a map, has where."""
        root = yaml.compose(text.replace("\t", " "), Loader=yaml.SafeLoader)  # tabs are in JSON alone, and positions stay
        inner = (value for key, value in root.value if key.value in WRAPPERS and isinstance(value, yaml.MappingNode))
        return cls(text, root, next(inner, root), is_json)

    @property
    def names(self) -> dict[str, str]:
        """Role -> as the file calls it."""
        return {ALIASES.get(key.value, key.value): key.value for key, _ in self.roles.value}

    @cached_property
    def old(self) -> dict[str, Any]:
        """The map that it says, with what it leaves out."""
        return read_map(self.text, self.is_json).to_dict()

    def ways(self, new: DeviceMap) -> Iterator[list[Edit]]:
        """Edits that may make it ``new``, those that change least first: of the roles' values or their groups', with their sizes or not."""
        groups = self._groups(new)
        for sizes, grouped, more in product((False, True), (True, False) if groups else (False,), self._added(new)):
            edits = self._changes(new, groups if grouped else {}) + self._additions({role: new.places[Role(role)] for role in more})
            yield edits + (self._sizes(new) if sizes else [])

    def _added(self, new: DeviceMap) -> list[tuple[str, ...]]:
        """Roles that might have to be written though the file does not name them: none, those it did not have, those that changed, all."""
        wanted = new.to_dict()
        roles = [role for role in wanted if role not in self.names]
        fresh = tuple(role for role in roles if role not in self.old)
        return [(), fresh, tuple(role for role in roles if self.old.get(role) != wanted[role]), tuple(roles)]

    def _changes(self, new: DeviceMap, groups: Mapping[str, Edit]) -> list[Edit]:
        """The values of the roles that differ from ``new``, those that are gone cut out; of ``groups`` the group instead."""
        wanted, edits = new.to_dict(), set(groups.values())
        for at, (key, value) in enumerate(self.roles.value):
            role = ALIASES.get(key.value, key.value)
            if role not in list(Role) or self.old.get(role) == wanted.get(role) or _group_of(value) in groups:
                continue
            edits.add(self._set(self.roles, (key, value), new.places[Role(role)]) if role in wanted else self._cut(self.roles, at))
        return list(edits)

    def _table(self, name: str) -> yaml.MappingNode | None:
        """ "groups" or "parallelism_config", beside the roles or outside their wrapper."""
        pairs = [*self.roles.value, *self.root.value]
        return next((value for key, value in pairs if key.value == name and isinstance(value, yaml.MappingNode)), None)

    def _groups(self, new: DeviceMap) -> dict[str, Edit]:
        """Named groups all of whose roles get the same other devices -> the edit that gives them to the group."""
        wanted: dict[str, set[tuple[str, ...]]] = {}
        for key, value in self.roles.value:
            role, name = ALIASES.get(key.value, key.value), _group_of(value)
            if name is not None and role in list(Role) and Role(role) in new.places:
                wanted.setdefault(name, set()).add(new.places[Role(role)].devices)
        table = self._table("groups")
        found = {}
        for key, value in table.value if table else ():
            devices = next(iter(wanted.get(key.value, ())), ())
            node = _entry(value, "devices") if isinstance(value, yaml.MappingNode) else value
            if len(wanted.get(key.value, ())) == 1 and devices and node is not None:
                found[key.value] = Edit(node.start_mark.index, self._end(node, key), self._devices(devices, node))
        return {name: edit for name, edit in found.items() if edit.text != self.text[edit.start : edit.end]}

    def _devices(self, devices: tuple[str, ...], node: yaml.Node) -> str:
        """Devices as the file had them: a compact string, or a list."""
        place = Placement(devices=devices)
        value = str(place) if isinstance(node, yaml.ScalarNode) else place.to_dict()["devices"]
        return json.dumps(value) if self.is_json else flow(_plain(value))

    def _sizes(self, new: DeviceMap) -> list[Edit]:
        """``parallelism_config`` with the sizes of ``new``: each number in its place; of roles without devices none."""
        table = self._table("parallelism_config")
        edits = []
        for at, (key, value) in enumerate(table.value if table else ()):
            place = new.places.get(Role(ALIASES.get(key.value, key.value)))
            if table is not None and (place is None or not place.devices):
                edits.append(self._cut(table, at))
            elif place is not None:
                right = {"tp": place.tp, "dp": place.copies}
                numbers = [(one, right[name.value]) for name, one in value.value if name.value in right]
                edits += [Edit(one.start_mark.index, one.end_mark.index, str(number)) for one, number in numbers]
        return edits

    def _set(self, mapping: yaml.MappingNode, pair: Pair, place: Placement) -> Edit:
        """Another value for a key. Comments that stood within the old one go above the key."""
        key, value = pair
        start, end = key.end_mark.index, self._end(value, key)
        comments = [] if mapping.flow_style else COMMENT.findall(self.text[start:end])
        indent = " " * key.start_mark.column
        above = "".join(f"{comment.rstrip()}\n{indent}" for comment in comments)
        written = self._value(place, value, key)
        return Edit(key.start_mark.index, end, f"{above}{self.text[key.start_mark.index : start]}:{written}")

    def _value(self, place: Placement, old: yaml.Node, key: yaml.Node) -> str:
        """A placement in the form that the old value has: a compact string where it can say all, a block, or braces."""
        compact = isinstance(old, yaml.ScalarNode) and (old.style is None or old.style in "'\">|") and _says_all(place)
        value = str(place) if compact else place.to_dict()
        if self.is_json or self.roles.flow_style:
            return f" {json.dumps(value)}"
        block = isinstance(old, yaml.MappingNode) and not old.flow_style and old.start_mark.index > key.start_mark.index
        if not block or len(place.to_dict()) == 1:
            return f" {flow(_plain(value))}"
        indent = " " * key.start_mark.column
        return "".join(f"\n{indent}  {name}: {flow(one)}" for name, one in place.to_dict().items())

    def _cut(self, mapping: yaml.MappingNode, at: int) -> Edit:
        """Without a key: its lines, or in braces its part up to the next one's."""
        key, value = mapping.value[at]
        if not mapping.flow_style:
            start = self.text.rfind("\n", 0, key.start_mark.index) + 1
            stop = self.text.find("\n", self._end(value, key))
            return Edit(start, len(self.text) if stop < 0 else stop + 1, "")
        if at + 1 < len(mapping.value):
            return Edit(key.start_mark.index, mapping.value[at + 1][0].start_mark.index, "")
        before = self._end(mapping.value[at - 1][1], mapping.value[at - 1][0]) if at else key.start_mark.index
        return Edit(before, self._end(value, key), "")

    def _additions(self, added: Mapping[str, Placement]) -> list[Edit]:
        """Roles that the file does not have, after its last one."""
        if not added or not self.roles.value:
            return []
        key, value = self.roles.value[-1]
        column, end = key.start_mark.column, self._end(value, key)
        if self.roles.flow_style:
            apart = "\n" + " " * column if self.roles.start_mark.line != key.start_mark.line else " "
            parts = (f",{apart}{json.dumps(role)}:{self._value(place, value, key)}" for role, place in added.items())
            return [Edit(end, end, "".join(parts))]
        stop = self.text.find("\n", end)
        lines = [f"{' ' * column}{role}: {flow(place.to_dict())}" for role, place in added.items()]
        if stop < 0:
            return [Edit(len(self.text), len(self.text), "".join(f"\n{line}" for line in lines))]
        return [Edit(stop + 1, stop + 1, "".join(f"{line}\n" for line in lines))]

    def _end(self, node: yaml.Node, key: yaml.Node) -> int:
        """Where a key's value ends. A block's mark is that of the next key, behind blank lines and comments; an alias has its anchor's."""
        alias = ALIAS.match(self.text, key.end_mark.index)
        if alias and node.start_mark.index < key.start_mark.index:
            return alias.end()
        if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
            return self._end_of_block(node, key.start_mark.column)
        if isinstance(node, yaml.ScalarNode) or node.flow_style or not node.value:
            return int(node.end_mark.index)
        last = node.value[-1]
        return self._end(last[1], last[0]) if isinstance(node, yaml.MappingNode) else self._end(last, key)

    def _end_of_block(self, node: yaml.Node, column: int) -> int:
        """Of a text in lines of its own: the last line that is indented more than its key."""
        end = start = int(node.start_mark.index)
        for line in self.text[start : node.end_mark.index].splitlines(keepends=True):
            within = end == node.start_mark.index or len(line) - len(line.lstrip(" ")) > column
            start += len(line)
            end = start - len(line) + len(line.rstrip()) if within and line.strip() else end
        return end


def _group_of(value: yaml.Node) -> str | None:
    """The word that a role's value has for its devices, which may be a group's name."""
    node = _entry(value, "device_group") if isinstance(value, yaml.MappingNode) else value
    return str(node.value) if isinstance(node, yaml.ScalarNode) else None


def _entry(mapping: yaml.MappingNode, name: str) -> yaml.Node | None:
    return next((value for key, value in mapping.value if key.value == name), None)


def _says_all(place: Placement) -> bool:
    """Whether the compact string says all that the placement is."""
    return place == Placement(devices=place.devices, layout=place.layout, tp=place.tp, share=place.share, url=place.url) and (
        place.layout == "ddp" or place.tp == 1
    )


def _plain(value: Any) -> Any:
    """One device is a number in YAML."""
    return int(value) if isinstance(value, str) and value.isdecimal() else value
