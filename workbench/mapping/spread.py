"""From one role's entry to its placement: where it is, and the one layout that all its keys speak of."""

import re
import socket
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlsplit

from workbench.errors import ConfigError
from workbench.mapping.devices import list_devices, node_of
from workbench.mapping.entry import SHARDING, STRATEGIES, At, GroupEntry, RoleEntry, SizesEntry
from workbench.mapping.placement import Layout, Placement, check_commas, check_url, read_layout, read_role, split_words
from workbench.mapping.words import nearest, shown

UNSUPPORTED = {
    **dict.fromkeys(("pp", "pipeline", "pipeline_parallel"), "pipeline parallelism"),
    **dict.fromkeys(("ep", "expert", "expert_parallel"), "expert parallelism"),
    **dict.fromkeys(("zero", "zero1", "zero2", "zero3", "deepspeed"), "ZeRO"),
    **{"megatron": "Megatron", "HYBRID_SHARD": "shards within a node and copies between nodes"},
}
_KEPT = ("shared_mem_name", "mode", "placement_policy", "offload_strategy", "prompt_loading", "nccl_backend", "inference_only")
_LAYING = ("layout", "tp", "tp_size", "dp", "parallel_strategy", "sharding_strategy", "mesh_shape", "gpus_per_node")


@dataclass(frozen=True)
class Group:
    """A named group: its devices, and what else its entry says."""

    devices: tuple[str, ...]
    entry: GroupEntry


def place(entry: RoleEntry, at: At, groups: Mapping[str, Group], sizes: SizesEntry) -> Placement:
    """The placement that ``entry`` says, with the named group that it may refer to and its sizes of ``parallelism_config``."""
    devices, group = _devices(entry, at, groups)
    whole = entry if group is None else _merged(entry, at, group)
    url = _url(whole, at)
    _check_place(whole, at, devices)
    layout, tp, dp = _layout(whole, at, len(devices), sizes)
    if whole.shared_mem_name is not None:
        _check_shared_memory(whole.shared_mem_name, at("shared_mem_name"), url)
    return Placement(
        devices=devices,
        layout=layout,
        tp=tp,
        dp=dp,
        share=read_role(whole.share, at("share")) if whole.share is not None else "",
        url=url,
        sharding_strategy="SHARD_GRAD_OP" if (whole.sharding_strategy or "").upper() == "SHARD_GRAD_OP" else None,
        **{key: value for key in _KEPT if (value := getattr(whole, key)) is not None},
    )


def _devices(entry: RoleEntry, at: At, groups: Mapping[str, Group]) -> tuple[tuple[str, ...], Group | None]:
    """The devices of an entry, and the named group that they came from."""
    if entry.devices is not None and entry.device_group is not None:
        raise ConfigError(at(), "devices and device_group say the same thing", "write one of them")
    key = "device_group" if entry.devices is None else "devices"
    written = getattr(entry, key)
    if isinstance(written, str) and key == "device_group":
        if written in groups:
            return groups[written].devices, groups[written]
        if re.fullmatch(r"[^\W\d][\w.-]*", written) and written != "cpu":
            raise no_group(written, at(key), groups)
    if isinstance(written, str) and len(words := split_words(written)) > 1:
        check_commas(words, at(key))
        raise ConfigError(
            at(key), f"{shown(written)} says more than devices", "write the layout as a key of its own: layout: fsdp, or tp: 2"
        )
    return (list_devices(written, at(key)) if written is not None else ()), None


def no_group(name: str, asked: str, groups: Mapping[str, Group]) -> ConfigError:
    """The error for a name that no group has; shows how to define it."""
    define = f"at the top level: groups: {{{name[:40]}: {{devices: [0, 1]}}}}"
    if not groups:
        return ConfigError(asked, f"{shown(name)} names a group, and this map has no groups", f"write {define}; or a list of devices")
    return ConfigError(asked, f"{shown(name)} names no group", f"{nearest(name, groups, 'the groups')}, or add {define}")


def _merged(entry: RoleEntry, at: At, group: Group) -> RoleEntry:
    """The entry with what its group says; the two may not contradict each other."""
    said = {key: value for key in GroupEntry.model_fields if key != "devices" and (value := getattr(group.entry, key)) is not None}
    for key, theirs in said.items():
        own = getattr(entry, key)
        if own is not None and own != theirs:
            raise ConfigError(at(key), f"{shown(own)} here, and {shown(theirs)} in its group {entry.device_group!r}", "write one of them")
    return entry.model_copy(update=said)


def _url(entry: RoleEntry, at: At) -> str:
    """The service that an entry names; "" where it names none."""
    if entry.url and entry.service_url and entry.url != entry.service_url:
        raise ConfigError(at(), "url and service_url say different things", "write one of them")
    key = "url" if entry.service_url is None else "service_url"
    url = getattr(entry, key)
    return "" if url is None else check_url(url, at(key))


def _check_place(entry: RoleEntry, at: At, devices: tuple[str, ...]) -> None:
    """An entry says exactly one of devices, share and a service; sizes and layouts only beside devices; and as many devices as it says."""
    url = entry.url or entry.service_url
    said = [name for name, there in (("devices", devices), ("share", entry.share is not None), ("a service", url)) if there]
    if len(said) > 1:
        raise ConfigError(at(), f"it says {' and '.join(said)}, and a role is in one place", "write one of them")
    if not said:
        raise ConfigError(at(), "it says no place", "write devices: [0, 1], share: actor, or service_url: http://host:8080")
    laying = [key for key in _LAYING if getattr(entry, key) is not None]
    if laying and not devices:
        raise ConfigError(at(laying[0]), f"it stands only beside devices, and this role has {said[0]}", "leave it out")
    if url and entry.nccl_backend in ("p2p", "ring"):
        raise ConfigError(at("nccl_backend"), "a service has no processes of this run", "leave it out, or write none")
    _check_per_node(entry.gpus_per_node, at("gpus_per_node"), devices)


def _check_per_node(size: int | None, asked: str, devices: tuple[str, ...]) -> None:
    per_node = Counter(map(node_of, devices))
    wrong = next((f"{count} on {node or 'the node'}" for node, count in per_node.items() if count != size), None)
    if size is not None and wrong:
        fix = f"write gpus_per_node: {next(iter(per_node.values()))}, or other devices"
        raise ConfigError(asked, f"{size} GPUs on each node, and its devices are {wrong}", fix)


def _check_shared_memory(name: str, asked: str, url: str) -> None:
    if not url:
        raise ConfigError(asked, "it names the block through which a service gets token ids, and there is no service", "add service_url")
    if not re.fullmatch(r"/?[A-Za-z0-9_][A-Za-z0-9_.-]{0,249}", name):
        raise ConfigError(asked, f"{shown(name)} is no name of a shared-memory block", "write a name such as 'rewards'")
    host = urlsplit(url).hostname or ""
    if host not in ("localhost", "127.0.0.1", "::1", socket.gethostname().lower()):
        raise ConfigError(asked, f"{host} is another machine, and memory is shared on one", "leave it out, or ask a service on localhost")


@dataclass
class _Said:
    """What each key says of the layout, of tp and of dp."""

    layout: dict[str, Layout] = field(default_factory=dict)
    tp: dict[str, int] = field(default_factory=dict)
    dp: dict[str, int] = field(default_factory=dict)


def _layout(entry: RoleEntry, at: At, count: int, sizes: SizesEntry) -> tuple[Layout, int, int | None]:
    """Layout, tp and dp of all keys that speak of them; contradictions are refused. Whether they fit the group a check tells."""
    said = _Said()
    if entry.layout is not None:
        layout, tp = read_layout(entry.layout, at("layout"))
        said.layout.update({"layout": layout} if layout else {})
        said.tp.update({"layout": tp} if tp else {})
    if entry.sharding_strategy is not None:
        words = "FULL_SHARD, SHARD_GRAD_OP or NO_SHARD"
        said.layout["sharding_strategy"] = _known(entry.sharding_strategy, str.upper, SHARDING, at("sharding_strategy"), words)
    said.tp |= _there(tp=entry.tp, tp_size=entry.tp_size, parallelism_config=sizes.tp)
    said.dp |= _there(dp=entry.dp, parallelism_config=sizes.dp)
    _add_mesh(said, entry.mesh_shape, at)
    if entry.parallel_strategy is not None:
        strategy = _known(entry.parallel_strategy, str.lower, STRATEGIES, at("parallel_strategy"), "ddp, fsdp or tp")
        if strategy != "tp":
            said.layout["parallel_strategy"] = strategy
        else:
            _add_tp(said, at, count)
    for title, values in (("", said.layout), ("tp ", said.tp), ("dp ", said.dp)):
        if len(set(values.values())) > 1:
            raise ConfigError(at(), " and ".join(f"{key} says {title}{value}" for key, value in values.items()), "write one of them")
    return next(iter(said.layout.values()), "ddp"), next(iter(said.tp.values()), 1), next(iter(said.dp.values()), None)


def _add_tp(said: _Said, at: At, count: int) -> None:
    """``parallel_strategy: tp``: the size that is said elsewhere, else that of all ``count`` devices, shared by the copies."""
    for key, tp in said.tp.items():
        if tp == 1:
            raise ConfigError(at(), f"parallel_strategy says tp and {key} says tp 1", "write one of them")
    copies = next(iter(said.dp.values()), 1)
    if not said.tp and (count % copies or count <= copies):
        found = f"{copies} {'copies' if copies > 1 else 'copy'} on {count} {'devices' if count > 1 else 'device'}: none can be split evenly"
        raise ConfigError(at("parallel_strategy"), found, "write ddp, or 2 or more devices for each copy")
    if not said.tp:
        said.tp["parallel_strategy"] = count // copies


def _there(**sizes: int | None) -> dict[str, int]:
    return {key: size for key, size in sizes.items() if size is not None}


def _add_mesh(said: _Said, shape: Any, at: At) -> None:
    """``mesh_shape`` as sizes: [dp, tp], in the order of torch's DeviceMesh."""
    if isinstance(shape, list) and not 1 <= len(shape) <= 2:
        found = f"{shape} has {len(shape)} axes: pipeline and expert parallelism are not supported"
        raise ConfigError(at("mesh_shape"), found, "write [dp, tp]")
    mesh = dict(zip(("dp", "tp"), [*shape, 1], strict=False)) if isinstance(shape, list) else shape or {}
    said.dp.update({"mesh_shape": mesh["dp"]} if "dp" in mesh else {})
    said.tp.update({"mesh_shape": mesh["tp"]} if "tp" in mesh else {})


def _known(word: str, case: Callable[[str], str], table: Mapping[str, Any], asked: str, forms: str) -> Any:
    """What ``word`` stands for, in small letters or in capitals. ``case``: which of the two the table has."""
    usual = case(word)
    if usual in table and word in (word.lower(), word.upper()):
        return table[usual]
    if usual in UNSUPPORTED:
        raise ConfigError(asked, f"{UNSUPPORTED[usual]} is not supported", f"write {forms}")
    near = get_close_matches(usual[:60], table, n=1)
    raise ConfigError(asked, f"{shown(word)} is unknown", f"write {near[0]}" if near else f"write {forms}")
