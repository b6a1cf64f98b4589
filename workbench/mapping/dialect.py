"""From a map as it is written to placements: the keys of this package and those of this field's tutorials.

Each key has its effect or is refused with the reason; none is read and dropped (docs/maps.md lists them one by one).
"""

import re
from collections.abc import Mapping
from functools import partial
from itertools import count, islice
from typing import Any

from workbench.errors import ConfigError
from workbench.mapping.devices import FORMS, MOST, list_devices
from workbench.mapping.entry import WRAPPERS, GroupEntry, RoleEntry, SizesEntry, read_entry
from workbench.mapping.placement import Placement, read_compact, read_role
from workbench.mapping.resolve import name_device
from workbench.mapping.source import Source
from workbench.mapping.spread import Group, no_group, place
from workbench.mapping.words import nearest, shown
from workbench.roles import ALIASES, Role

TABLES = ("groups", "parallelism_config")
MOST_GROUPS = 64
TRAINED = (Role.ACTOR, Role.CRITIC)


def placements(source: Source) -> dict[Role, Placement]:
    """Role -> placement, for the roles that the map has. Raises ConfigError with file and line."""
    source = _unwrapped(source)
    written = _roles(source)
    groups, sizes = _groups(source), _sizes(source)
    entries = {role: _entry(source.data[key], partial(source.at, key), groups) for role, key in written.items()}
    _check_groups(source, groups, {str(entry.device_group) for entry in entries.values()})
    found = {}
    for role in (role for role in Role if role in written):
        at = partial(source.at, written[role])
        found[role] = place(entries[role], at, groups, sizes.get(role, SizesEntry()))
        if role in TRAINED:
            found[role] = _reserved(found[role], entries[role], at, groups)
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
    if isinstance(value, list | tuple) and not value:
        raise ConfigError(at(), "it names no device", FORMS)
    if isinstance(value, list | tuple):
        return RoleEntry(devices=list(list_devices(value, at())))
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ConfigError(at(), f"{shown(value)} is not understood", "write {devices: [0, 1]}, or a string such as '0-1 fsdp'")
    if value in groups:
        return RoleEntry(device_group=value)
    if groups and re.fullmatch(r"[^\W\d]\w+", str(value)) and value != "cpu":
        raise no_group(str(value), at(), groups)
    if isinstance(value, int):
        return RoleEntry(devices=list(list_devices(value, at())))
    return read_entry(RoleEntry, read_compact(value, at()), at)


def _groups(source: Source) -> dict[str, Group]:
    """Named groups, each with its devices: those without take the next free GPUs, in the order of the table."""
    table = _table(source, "groups", "{trainers: {devices: [0, 1]}}")
    if len(table) > MOST_GROUPS:
        raise ConfigError(source.at("groups"), f"{len(table)} groups", f"write at most {MOST_GROUPS}: a map has five roles")
    entries = {str(name): _group(source, name, value) for name, value in table.items()}
    written = {name: entry.devices for name, entry in entries.items() if entry.devices not in (None, [])}
    devices = {name: list_devices(value, source.at("groups", name, "devices")) for name, value in written.items()}
    if sum(map(len, devices.values())) > len(Role) * MOST:
        raise ConfigError(source.at("groups"), f"they list more than {len(Role) * MOST} devices", "name fewer")
    taken = {device for listed in devices.values() for device in listed}
    fresh = {name: entry.gpus_per_node or 0 for name, entry in entries.items() if name not in devices}
    if len(taken) + sum(fresh.values()) > MOST:
        raise ConfigError(source.at("groups"), f"they have more than {MOST} devices", "name fewer")
    free = (str(number) for number in count() if str(number) not in taken)
    devices |= {name: tuple(islice(free, size)) for name, size in fresh.items()}
    return {name: Group(devices[name], entry) for name, entry in entries.items()}


def _check_groups(source: Source, groups: Mapping[str, Group], used: set[str]) -> None:
    """Raise ConfigError where a group says what no role could, and where it is of no use: no role has it, and it forbids nothing."""
    for name, group in groups.items():
        place(RoleEntry(device_group=name), partial(source.at, "groups", name), groups, SizesEntry())
        if name not in used and not group.entry.inference_only:
            fix = f"write device_group: {name} at a role, or leave the group out"
            raise ConfigError(source.at("groups", name), "no role is in this group", fix)


def _reserved(placement: Placement, entry: RoleEntry, at: partial[str], groups: Mapping[str, Group]) -> Placement:
    """The placement of a role that trains; marked where its devices are also those of a group for inference only: a check refuses that."""
    mine = {name_device(device, None) for device in placement.devices}
    for name, group in groups.items():
        both = mine & {name_device(device, None) for device in group.devices} if group.entry.inference_only else set()
        if both and entry.inference_only is False:
            found = f"False here, and {min(both)} is also in the group {name!r}, which is for inference only"
            raise ConfigError(at("inference_only"), found, "write one of them, or other devices")
        if both:
            placement = placement.model_copy(update={"inference_only": True})
    return placement


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
