"""From a map as it is written to placements: the keys of this package and those of this field's tutorials.

Each key has its effect or is refused with the reason; none is read and dropped (docs/maps.md lists them one by one).
"""

import re
from collections.abc import Mapping
from functools import partial
from itertools import count, islice
from typing import Any

from workbench.errors import ConfigError
from workbench.mapping.devices import MOST, list_devices
from workbench.mapping.entry import WRAPPERS, GroupEntry, RoleEntry, SizesEntry, read_entry
from workbench.mapping.placement import Placement, parse, read_role
from workbench.mapping.source import Source
from workbench.mapping.spread import Group, no_group, place
from workbench.mapping.words import nearest, shown
from workbench.roles import ALIASES, Role

TABLES = ("groups", "parallelism_config")
MOST_GROUPS = 64


def placements(source: Source) -> dict[Role, Placement]:
    """Role -> placement, for the roles that the map has. Raises ConfigError with file and line."""
    source = _unwrapped(source)
    written = _roles(source)
    groups, sizes = _groups(source), _sizes(source)
    found = {}
    for role in (role for role in Role if role in written):
        at = partial(source.at, written[role])
        entry = _entry(source.data[written[role]], at, groups)
        found[role] = place(entry, at, groups, sizes.get(role, SizesEntry()))
    for name in source.data.get("parallelism_config", {}):
        role = Role(ALIASES.get(name, name))
        if role not in found or not found[role].devices:
            reason = f"the {role} has no devices of its own, and sizes stand only beside devices"
            raise ConfigError(source.at("parallelism_config", name), reason, "give it devices, or leave its sizes out")
    return found


def _unwrapped(source: Source) -> Source:
    """The map that stands under "device_map", with the tables beside it."""
    outer = next((key for key in WRAPPERS if isinstance(source.data.get(key), Mapping)), None)
    if outer is None or not source.data.keys() <= {outer, *TABLES}:
        return source
    beside = {key: value for key, value in source.data.items() if key != outer}
    for key in beside.keys() & source.data[outer].keys():
        raise ConfigError(source.at(key), f"it stands beside {outer} and in it", "write it once")
    inner = {path[1:]: line for path, line in source.lines.items() if path[0] == outer and len(path) > 1}
    return Source(source.name, {**source.data[outer], **beside}, {**source.lines, **inner})


def _roles(source: Source) -> dict[Role, str]:
    """Role -> its name as written; an unknown key is refused here, with the nearest."""
    found: dict[Role, str] = {}
    for key, value in source.data.items():
        if value is None:
            raise ConfigError(source.at(str(key)[:60]), "nothing is written there", "write devices, or leave it out")
        if key in TABLES:
            continue
        name = ALIASES.get(key, key)
        if name not in list(Role):
            fix = nearest(str(key), [*Role, *ALIASES, *TABLES], "the keys of a map")
            raise ConfigError(source.at(str(key)[:60]), f"{shown(key)} is no role: the roles are {', '.join(Role)}", fix)
        if name in found:
            raise ConfigError(source.at(key), f"the {name} is there already, as {found[Role(name)]!r}", "write it once")
        found[Role(name)] = key
    return found


def _entry(value: Any, at: partial[str], groups: Mapping[str, Group]) -> RoleEntry:
    """One role's entry, from a compact string, the name of a group, devices, or a mapping."""
    if isinstance(value, Placement):
        value = value.to_dict()
    if isinstance(value, Mapping):
        return read_entry(RoleEntry, value, at)
    if isinstance(value, list | tuple):
        return RoleEntry(devices=list(list_devices(value, at())))
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigError(at(), f"{shown(value)} is not understood", "write {devices: [0, 1]}, or a string such as '0-1 fsdp'")
    if value in groups:
        return RoleEntry(device_group=value)
    if groups and re.fullmatch(r"[^\W\d]\w+", str(value)) and value != "cpu":
        raise no_group(str(value), at(), groups)
    return RoleEntry(**parse(str(value), at()).to_dict())


def _groups(source: Source) -> dict[str, Group]:
    """Named groups, each with its devices: those without take the next free GPUs, in the order of the table."""
    table = _table(source, "groups", "{trainers: {devices: [0, 1]}}")
    if len(table) > MOST_GROUPS:
        raise ConfigError(source.at("groups"), f"{len(table)} groups", f"write at most {MOST_GROUPS}: a map has five roles")
    entries = {str(name): _group(source, name, value) for name, value in table.items()}
    written = {name: entry.devices for name, entry in entries.items() if entry.devices not in (None, [])}
    devices = {name: list_devices(value, source.at("groups", name, "devices")) for name, value in written.items()}
    taken = {device for listed in devices.values() for device in listed}
    for name, entry in entries.items():
        if name not in devices:
            free = (str(number) for number in count() if str(number) not in taken)
            devices[name] = tuple(islice(free, entry.gpus_per_node or 0))
            taken.update(devices[name])
    if len(taken) > MOST:
        raise ConfigError(source.at("groups"), f"they have more than {MOST} devices", "name fewer")
    return {name: Group(devices[name], entry) for name, entry in entries.items()}


def _group(source: Source, name: Any, value: Any) -> GroupEntry:
    at = partial(source.at, "groups", str(name)[:60])
    if not isinstance(name, str) or not re.fullmatch(r"[^\W\d][\w.-]*", name) or name in ("cpu", *Role, *ALIASES):
        raise ConfigError(
            at(), f"{shown(name)} can't be the name of a group", "write a word that is no device and no role, such as trainers"
        )
    entry = read_entry(GroupEntry, value if isinstance(value, Mapping) else {"devices": value}, at)
    if entry.devices in (None, []) and entry.gpus_per_node is None:
        raise ConfigError(at(), "it says no devices", "write devices: [0, 1], or gpus_per_node: 2")
    return entry


def _sizes(source: Source) -> dict[Role, SizesEntry]:
    """``parallelism_config`` by role; pipeline and expert parallelism are refused."""
    found: dict[Role, SizesEntry] = {}
    for name, value in _table(source, "parallelism_config", "{actor: {tp: 2, dp: 2}}").items():
        at = partial(source.at, "parallelism_config", str(name)[:60])
        role = read_role(str(name), at())
        if not isinstance(value, Mapping):
            raise ConfigError(at(), f"{shown(value)} are no sizes", "write {tp: 2, dp: 2}")
        sizes = read_entry(SizesEntry, value, at)
        for key, size, title in (("pp", sizes.pp, "pipeline"), ("expert", sizes.expert, "expert")):
            if (size or 1) > 1:
                raise ConfigError(at(key), f"{title} parallelism is not supported", f"write {key}: 1, and split by tp, or use fsdp")
        if role in found:
            raise ConfigError(at(), f"sizes of the {role} are there already", "write them once")
        found[role] = sizes
    return found


def _table(source: Source, key: str, example: str) -> Mapping[Any, Any]:
    table = source.data.get(key, {})
    if not isinstance(table, Mapping):
        raise ConfigError(source.at(key), f"{shown(table)} is no table", f"write {key}: {example}")
    return table
