"""From a map as it is written to placements: the keys of this package and those of this field's tutorials.

Each key has its effect or is refused with the reason; none is read and dropped (docs/maps.md lists them one by one).
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any

from pydantic import BaseModel, ValidationError

from workbench.errors import ConfigError
from workbench.mapping.devices import list_devices
from workbench.mapping.entry import GroupEntry, MapEntry, RoleEntry, SizesEntry
from workbench.mapping.placement import Placement, parse
from workbench.mapping.source import Source
from workbench.mapping.spread import place
from workbench.roles import ALIASES, Role

# What other frameworks call our keys, where the spelling alone would not tell.
ELSEWHERE = {
    "tensor_parallel_size": "tp",
    "tensor_model_parallel_size": "tp",
    "tensor_parallel": "tp",
    "data_parallel_size": "dp",
    "gpus": "devices",
    "gpu_ids": "devices",
    "gpu": "devices",
    "device": "devices",
    "device_ids": "devices",
    "ranks": "devices",
    "n_gpus_per_node": "gpus_per_node",
    "strategy": "layout",
    "sync": "mode",
    "service": "url",
    "endpoint": "url",
    "share_with": "share",
    "shared_with": "share",
    "colocate_with": "share",
}
WRAPPERS = ("device_map", "device_mapping", "roles")


def placements(source: Source) -> dict[Role, Placement]:
    """Role -> placement, for the roles that the map has. Raises ConfigError with file and line."""
    data = dict(source.data)
    if len(data) == 1 and (outer := next(iter(data))) in WRAPPERS and isinstance(data[outer], dict):
        lines = {path[1:]: line for path, line in source.lines.items() if len(path) > 1}
        return placements(Source(source.name, data[outer], lines))
    entry = _validated(source, _renamed(source, data))
    groups = _groups(source, entry)
    sizes = _sizes(source, entry)
    found = {}
    for role in Role:
        value = getattr(entry, role)
        if value is not None:
            placement = _placement(source, _written(source, role), value, groups)
            found[role] = _sized(source, role, placement, sizes.pop(role, None))
    for role in sizes:
        raise ConfigError(source.at("parallelism_config", role), "that role has no devices in this map", f"give {role} devices")
    return found


def _renamed(source: Source, data: Mapping[Any, Any]) -> dict[str, Any]:
    """Roles under their own names; an unknown key is refused here, with the nearest."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        name = ALIASES.get(key, key) if isinstance(key, str) else key
        if name not in MapEntry.model_fields:
            known = [*Role, *ALIASES, "groups", "parallelism_config"]
            near = get_close_matches(str(key), known, n=1)
            fix = f"write {near[0]!r}" if near else "use one of these names"
            raise ConfigError(source.at(str(key)[:60]), f"role {str(key)[:60]!r}: the roles are {', '.join(Role)}", fix)
        if name in found:
            raise ConfigError(source.at(str(key)), f"the {name} is there already, under another of its names", "write it once")
        found[name] = value
    return found


def _validated(source: Source, data: dict[str, Any]) -> MapEntry:
    for role in Role:
        if role in data and not isinstance(data[role], str | int | dict | BaseModel):
            found = f"{data[role]!r:.60} is not understood"
            raise ConfigError(source.at(_written(source, role)), found, "write {devices: [0, 1]}, or a string such as '0-1 fsdp'")
    try:
        return MapEntry.model_validate(data)
    except ValidationError as error:
        raise _explained(source, error) from error


def _explained(source: Source, error: ValidationError) -> ConfigError:
    """What is wrong, in our words: the first error, an unknown key before all others."""
    errors = [one for one in error.errors() if one["loc"][-1] not in ("str", "int")]
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    path = [str(part) for part in first["loc"] if str(part) not in ("RoleEntry", "constrained-int") and not str(part).startswith(("list[", "dict["))]
    while path and isinstance(first["loc"][-1], int) and path[-1].isdecimal():
        path.pop()
    path = [_written(source, Role(path[0])), *path[1:]] if path and path[0] in Role else path
    key = path[-1] if path else ""
    if first["type"] == "extra_forbidden":
        model = GroupEntry if path[0] == "groups" else SizesEntry if path[0] == "parallelism_config" else RoleEntry
        known = list(model.model_fields)
        near = [ELSEWHERE[key]] if ELSEWHERE.get(key) in known else get_close_matches(key, known, n=1)
        fix = f"write {near[0]!r}" if near else f"the keys are {', '.join(known)}"
        return ConfigError(source.at(*path), f"{key[:60]!r} is no key of a {'group' if model is GroupEntry else 'role'}", fix)
    value = first.get("input")
    return ConfigError(source.at(*path), f"{value!r:.60} does not fit", f"{first['msg'].lower()}")


def _written(source: Source, role: Role) -> str:
    """The role's name as the source spells it."""
    return next((str(key) for key in source.data if ALIASES.get(str(key), str(key)) == role), str(role))


def _groups(source: Source, entry: MapEntry) -> dict[str, GroupEntry]:
    """Named groups, each with its devices: those without take the next free GPUs, in the order of the table."""
    found: dict[str, GroupEntry] = {}
    table = entry.groups or {}
    taken = {
        device
        for name, group in table.items()
        if group.devices is not None
        for device in list_devices(group.devices, source.at("groups", name, "devices"))
    }
    for name, group in table.items():
        if group.devices is None and group.gpus_per_node is None:
            raise ConfigError(source.at("groups", name), "it says no devices", "write devices: [0, 1], or gpus_per_node: 2")
        if group.devices is None:
            free = (str(number) for number in range(10000) if str(number) not in taken)
            devices = [next(free) for _ in range(group.gpus_per_node or 0)]
            taken |= set(devices)
            group = group.model_copy(update={"devices": list(devices)})
        found[name] = group
    return found


def _sizes(source: Source, entry: MapEntry) -> dict[str, SizesEntry]:
    """``parallelism_config`` by role; pipeline and expert parallelism are refused."""
    found = {}
    for name, sizes in (entry.parallelism_config or {}).items():
        role = ALIASES.get(name, name)
        if role not in list(Role):
            near = get_close_matches(name, [*Role, *ALIASES], n=1)
            fix = f"write {near[0]!r}" if near else f"the roles are {', '.join(Role)}"
            raise ConfigError(source.at("parallelism_config", name), f"{name!r} is no role", fix)
        for key in ("pp", "expert"):
            if (getattr(sizes, key) or 1) > 1:
                title = "pipeline" if key == "pp" else "expert"
                found_ = f"{title} parallelism is not supported"
                raise ConfigError(source.at("parallelism_config", name, key), found_, f"write {key}: 1, and split by tp, or use fsdp")
        found[role] = sizes
    return found


def _placement(source: Source, written: str, value: str | int | RoleEntry, groups: Mapping[str, GroupEntry]) -> Placement:
    """One role's placement, from a compact string, the name of a group, or an entry."""
    if isinstance(value, RoleEntry):
        return place(value, partial(source.at, written), groups)
    if value in groups:
        return place(RoleEntry(device_group=str(value)), partial(source.at, written), groups)
    return parse(str(value), f"{source.at(written)}: {str(value)[:80]!r}")


def _sized(source: Source, role: Role, placement: Placement, sizes: SizesEntry | None) -> Placement:
    """The placement with its sizes of ``parallelism_config``. Whether they multiply to the group a check tells."""
    if sizes is None:
        return placement
    asked = source.at("parallelism_config", role)
    if not placement.devices:
        raise ConfigError(asked, "sizes stand only beside devices", f"give {role} devices")
    for key, size in (("tp", sizes.tp), ("dp", sizes.dp)):
        beside = getattr(placement, key)
        if size is not None and beside not in (None, 1, size):
            raise ConfigError(f"{asked}.{key}", f"{size} there and {beside} beside the devices", "write one of them")
    return placement.model_copy(update={"tp": sizes.tp or placement.tp, "dp": sizes.dp or placement.dp})
