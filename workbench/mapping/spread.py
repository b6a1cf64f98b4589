"""From one role's entry to its placement: where it is, and the one layout that all its keys speak of."""

import socket
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any
from urllib.parse import urlparse

from workbench.errors import ConfigError
from workbench.mapping.devices import list_devices, node_of
from workbench.mapping.entry import GroupEntry, RoleEntry
from workbench.mapping.placement import Placement, check_url, read_layout
from workbench.roles import Role

At = Callable[..., str]  # keys of the entry -> what a message calls the place: "map.yaml, line 3: actor.tp"
STRATEGIES = {
    **dict.fromkeys(("ddp", "dp", "data_parallel"), "ddp"),
    **dict.fromkeys(("fsdp", "fsdp2", "fully_sharded"), "fsdp"),
    **dict.fromkeys(("tp", "tensor", "tensor_parallel"), "tp"),
}
UNSUPPORTED = ("pp", "pipeline", "ep", "expert", "zero", "zero1", "zero2", "zero3", "deepspeed", "megatron")
SHARDING = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "fsdp", "NO_SHARD": "ddp"}
_KEPT = ("shared_mem_name", "mode", "placement_policy", "offload_strategy", "prompt_loading", "nccl_backend", "inference_only")


def place(entry: RoleEntry, at: At, groups: Mapping[str, GroupEntry]) -> Placement:
    """The placement that ``entry`` says, with the named group that it may refer to."""
    devices, group = _devices(entry, at, groups)
    whole = entry if group is None else _merged(entry, at, group)
    url = _one_of(whole, at, "url", "service_url")
    _check_place(whole, at, devices, url)
    layout, tp, dp = _layout(whole, at, len(devices))
    return Placement(
        devices=devices,
        layout=layout,  # type: ignore[arg-type]
        tp=tp,
        dp=dp,
        share=Role.read(whole.share) if whole.share else "",
        url=check_url(url, at("service_url")) if url else "",
        sharding_strategy="SHARD_GRAD_OP" if (whole.sharding_strategy or "").upper() == "SHARD_GRAD_OP" else None,
        **{key: getattr(whole, key) for key in _KEPT if getattr(whole, key) is not None},
    )


def _one_of(entry: RoleEntry, at: At, *keys: str) -> Any:
    """The value of keys that mean the same."""
    said = {key: value for key in keys if (value := getattr(entry, key)) is not None}
    if len(set(map(str, said.values()))) > 1:
        raise ConfigError(at(), " and ".join(f"{key}: {value}" for key, value in said.items()), "write one of them")
    return next(iter(said.values()), None)


def _devices(entry: RoleEntry, at: At, groups: Mapping[str, GroupEntry]) -> tuple[tuple[str, ...], GroupEntry | None]:
    """The devices of an entry, and the named group that they came from."""
    if entry.devices is not None and entry.device_group is not None:
        raise ConfigError(at(), "devices and device_group say the same thing", "write one of them")
    if isinstance(entry.device_group, str) and entry.device_group in groups:
        group = groups[entry.device_group]
        return list_devices(group.devices, f"group {entry.device_group!r}"), group
    key = "devices" if entry.devices is not None else "device_group"
    devices = getattr(entry, key)
    if devices is None or devices == []:
        return (), None
    if isinstance(devices, str) and " " in devices.strip():
        raise ConfigError(at(key), f"{devices[:60]!r} says more than devices", "write the layout as a key of its own: layout: fsdp, or tp: 2")
    if key == "device_group" and isinstance(devices, str) and devices[:1].isalpha() and ":" not in devices and devices != "cpu":
        raise _no_group(devices, at(key), groups)
    return list_devices(devices, at(key)), None


def _no_group(name: str, asked: str, groups: Mapping[str, GroupEntry]) -> ConfigError:
    known = f"the groups are {', '.join(groups)}" if groups else "this map has no table of groups"
    near = get_close_matches(name, groups, n=1)
    fix = f"add at the top level: groups: {{{name[:40]}: {{devices: [0, 1]}}}}, or write a list of devices"
    return ConfigError(asked, f"{name[:60]!r} names a group, and {known}", f"write {near[0]!r}, or {fix}" if near else fix)


def _merged(entry: RoleEntry, at: At, group: GroupEntry) -> RoleEntry:
    """The entry with what its group says; the two may not contradict each other."""
    said = {key: value for key in GroupEntry.model_fields if key != "devices" and (value := getattr(group, key)) is not None}
    for key, theirs in said.items():
        own = getattr(entry, key)
        if own is not None and own != theirs:
            raise ConfigError(at(key), f"{own!r}, and its group {entry.device_group!r} says {theirs!r}", "write one of them")
    return entry.model_copy(update=said)


def _check_place(entry: RoleEntry, at: At, devices: tuple[str, ...], url: str | None) -> None:
    """An entry says exactly one of devices, share and a service; and its devices are as many as it says."""
    said = [name for name, there in (("devices", devices), ("share", entry.share), ("a service", url)) if there]
    if len(said) > 1:
        raise ConfigError(at(), f"{' and '.join(said)}: a role is in one place", "write one of them")
    if not said:
        raise ConfigError(at(), "it says no place", "write devices: [0, 1], share: actor, or service_url: http://host:8080")
    if entry.shared_mem_name is not None:
        _check_shared_memory(entry.shared_mem_name, at("shared_mem_name"), url)
    per_node = {node: sum(node_of(device) == node for device in devices) for node in map(node_of, devices)}
    wrong = next((f"{count} on {node or 'the node'}" for node, count in per_node.items() if count != entry.gpus_per_node), None)
    if entry.gpus_per_node is not None and wrong:
        fix = f"write gpus_per_node: {next(iter(per_node.values()))}, or other devices"
        raise ConfigError(at("gpus_per_node"), f"{entry.gpus_per_node} asked, and its devices are {wrong}", fix)


def _check_shared_memory(name: str, asked: str, url: str | None) -> None:
    if not url:
        raise ConfigError(asked, "it names the block through which a service gets token ids, and there is no service", "add service_url")
    if not name.strip("/") or "/" in name.strip("/") or len(name) > 250:
        raise ConfigError(asked, f"{name[:60]!r} is no name of a shared-memory block", "write a name such as 'rewards'")
    host = urlparse(url).hostname
    if host not in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
        raise ConfigError(asked, f"{host} is another machine, and memory is shared on one", "leave it out, or ask a service on localhost")


def _layout(entry: RoleEntry, at: At, count: int) -> tuple[str, int, int | None]:
    """Layout, tp and dp of all keys that speak of them; contradictions are refused. Whether they fit the group a check tells."""
    layouts: dict[str, str] = {}
    sizes: dict[str, int] = {}

    def note(key: str, layout: str | None, size: int | None) -> None:
        layouts.update({key: layout} if layout else {})
        sizes.update({key: size} if size else {})

    if entry.layout is not None:
        layout, size = read_layout(entry.layout, at("layout"))
        note("layout", layout if size == 1 else None, size if size > 1 else None)
    tp = _one_of(entry, at, "tp", "tp_size")
    note("tp", None, tp)
    if entry.parallel_strategy is not None:
        strategy = _known(entry.parallel_strategy.lower(), STRATEGIES, at("parallel_strategy"), "ddp, fsdp or tp")
        note("parallel_strategy", strategy if strategy != "tp" else None, (tp or count) if strategy == "tp" else None)
    if entry.sharding_strategy is not None:
        note("sharding_strategy", _known(entry.sharding_strategy.upper(), SHARDING, at("sharding_strategy"), ", ".join(SHARDING)), None)
    mesh = _mesh(entry, at)
    note("mesh_shape", None, mesh.get("tp"))
    for said in (layouts, sizes):
        if len(set(said.values())) > 1:
            raise ConfigError(at(), " and ".join(f"{key} says {value}" for key, value in said.items()), "write one of them")
    if mesh and entry.dp not in (None, mesh["dp"]):
        raise ConfigError(at("mesh_shape"), f"dp is {mesh['dp']} there and {entry.dp} beside", "write one of them")
    return next(iter(layouts.values()), "ddp"), next(iter(sizes.values()), 1), mesh.get("dp", entry.dp)


def _known(text: str, table: Mapping[str, str], asked: str, forms: str) -> str:
    if text in table:
        return table[text]
    if text == "HYBRID_SHARD":
        raise ConfigError(asked, f"{text} is not supported: shards within a node, copies between nodes", f"write {forms}")
    raise ConfigError(asked, f"{text[:60]!r} is {'not supported' if text in UNSUPPORTED else 'unknown'}", f"write {forms}")


def _mesh(entry: RoleEntry, at: At) -> dict[str, int]:
    """``mesh_shape`` as sizes: [dp, tp], in the order of torch's DeviceMesh."""
    shape = entry.mesh_shape
    if shape is None:
        return {}
    if isinstance(shape, dict):
        return {"dp": 1, "tp": 1} | {str(key): size for key, size in shape.items()}
    if not 1 <= len(shape) <= 2:
        found = f"{shape} has {len(shape)} axes; pipeline and expert parallelism are not supported"
        raise ConfigError(at("mesh_shape"), found, "write [dp, tp]")
    return {"dp": shape[0], "tp": shape[1] if len(shape) == 2 else 1}
