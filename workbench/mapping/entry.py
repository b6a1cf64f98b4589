"""A map's file as it is written: every key of it, with its values; and the JSON Schema of that, for editors."""

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from workbench.errors import ConfigError
from workbench.mapping.words import nearest, shown
from workbench.roles import ALIASES, Role

At = Callable[..., str]  # keys of an entry -> what a message calls the place: "map.yaml, line 3: actor.tp"
Position = Annotated[StrictInt, Field(ge=0, le=9999)]
Word = Annotated[StrictStr, Field(pattern=r"\S")]
Devices = Position | Word | Annotated[list[Position | Word], Field(min_length=1, fail_fast=True)]
NoDevices = Annotated[list[Position], Field(max_length=0)]
Size = Annotated[StrictInt, Field(ge=1, le=4096)]
Mesh = Annotated[list[Size], Field(max_length=8, json_schema_extra={"minItems": 1, "maxItems": 2})]  # more axes: refused with the reason
STRATEGIES = {
    **dict.fromkeys(("ddp", "dp", "data_parallel"), "ddp"),
    **dict.fromkeys(("fsdp", "fsdp2", "fully_sharded"), "fsdp"),
    **dict.fromkeys(("tp", "tensor", "tensor_parallel"), "tp"),
}
SHARDING = {"FULL_SHARD": "fsdp", "SHARD_GRAD_OP": "fsdp", "NO_SHARD": "ddp"}
LAYOUT = r"^(ddp|fsdp|tp=?([1-9][0-9]{0,2}|[1-3][0-9]{3}|40[0-8][0-9]|409[0-6]))$"
GROUP = r"^[^\W\d][\w.-]*$"
ROLES = [*map(str, Role), *ALIASES]
WRAPPERS = ("device_map", "device_mapping", "roles")

# What other frameworks call our keys, where the spelling alone would not tell.
ELSEWHERE = {
    **dict.fromkeys(("tensor_parallel_size", "tensor_model_parallel_size", "tensor_parallel", "tp_size"), "tp"),
    **dict.fromkeys(("data_parallel_size", "data_parallel", "dp_size"), "dp"),
    **dict.fromkeys(("gpus", "gpu_ids", "gpu", "device", "device_ids", "ranks"), "devices"),
    **dict.fromkeys(("share_with", "shared_with", "colocate_with"), "share"),
    **dict.fromkeys(("service", "endpoint"), "url"),
    **{"n_gpus_per_node": "gpus_per_node", "strategy": "layout", "sync": "mode"},
}


def _either_case(words: Iterable[str]) -> list[str]:
    """The words in small letters and in capitals: both are read."""
    return [case for word in words for case in (word.lower(), word.upper())]


def _key(description: str, *examples: Any, **schema: Any) -> Any:
    """A key that may be left out. ``examples``: values, for editors and for messages. ``schema``: what else the JSON Schema says of it."""
    return Field(None, description=description, examples=list(examples), json_schema_extra=schema or None)


def _place(schema: dict[str, Any]) -> None:
    """Say in the schema of a role that it has a place; an empty ``device_group`` is none."""
    group = {"required": ["device_group"], "properties": {"device_group": {"not": {"const": []}}}}
    schema["anyOf"] = [group, *({"required": [key]} for key in ("devices", "share", "url", "service_url"))]


class GroupEntry(BaseModel):
    """A named group of devices, and how a model lies on it."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"anyOf": [{"required": ["devices"]}, {"required": ["gpus_per_node"]}]})

    devices: Devices | None = _key("Devices: cpu, 0, [0, 1], 0-3, node1:0-3.", [0, 1], "0-3", "cpu")
    gpus_per_node: Size | None = _key("GPUs of the group on each node; without devices, the next free ones.", 2)
    layout: StrictStr | None = _key("ddp (whole models), fsdp (one in shards), tp=N (one split over N).", "fsdp", pattern=LAYOUT)
    tp: Size | None = _key("Devices that one model is split over.", 2)
    dp: Size | None = _key("Copies of the model; tp x dp is the number of devices.", 2)
    tp_size: Size | None = _key("The same as tp.", 2)
    parallel_strategy: StrictStr | None = _key("ddp, fsdp or tp.", "ddp", "fsdp", "tp", enum=_either_case(STRATEGIES))
    sharding_strategy: StrictStr | None = _key("FULL_SHARD, SHARD_GRAD_OP or NO_SHARD.", "FULL_SHARD", enum=_either_case(SHARDING))
    mesh_shape: Mesh | Annotated[dict[Literal["dp", "tp"], Size], Field(min_length=1)] | None = _key(
        "[dp, tp]; the product is the group.", [2, 2], {"dp": 2, "tp": 2}
    )
    inference_only: StrictBool | None = _key("No role that trains may be here.", True)


class RoleEntry(GroupEntry):
    """Where one role runs."""

    model_config = ConfigDict(json_schema_extra=_place)

    device_group: Devices | NoDevices | None = _key("Devices; a word is the name of a group in the table 'groups'.", [0, 1], "NAME")
    share: StrictStr | None = _key("The role whose model it shares.", "actor", enum=ROLES)
    url: StrictStr | None = _key("The service that does it.", "http://host:8080")
    service_url: StrictStr | None = _key("The same as url.", "http://host:8080")
    shared_mem_name: StrictStr | None = _key("Shared-memory block for token ids, to a service on this machine.", "rewards")
    mode: Literal["auto", "zero_copy", "merged", "adapter", "full"] | None = _key("How the engine gets the weights.", "auto")
    placement_policy: Literal["hybrid", "static"] | None = _key("Weights may be resharded between phases, or not.", "hybrid")
    offload_strategy: Literal["cpu_prefetch"] | None = _key("Prompts are tokenized and batched ahead on the CPU.", "cpu_prefetch")
    prompt_loading: Literal["disabled"] | None = _key("The role loads no prompts itself.", "disabled")
    nccl_backend: Literal["p2p", "ring", "none"] | None = _key("P2P required; NCCL_ALGO=Ring; no gradient group.", "p2p")


class SizesEntry(BaseModel):
    """Sizes of one role in ``parallelism_config``."""

    model_config = ConfigDict(extra="forbid")

    tp: Size | None = _key("Devices that one model is split over.", 2)
    dp: Size | None = _key("Copies of the model.", 2)
    pp: Size | None = _key("Pipeline stages: only 1, more is not supported.", 1, maximum=1)
    expert: Size | None = _key("Expert parallelism: only 1, more is not supported.", 1, maximum=1)


RoleValue = Devices | RoleEntry


class MapEntry(BaseModel):
    """A device map: which role runs on which devices."""

    model_config = ConfigDict(extra="forbid", title="Workbench device map")

    actor: RoleValue | None = _key("The policy that trains.", "0-3 fsdp")
    critic: RoleValue | None = _key("The value model, for PPO.", "share:actor")
    rollout: RoleValue | None = _key("The engine (vLLM) that samples; left out: on the actor's devices.", "0-3 tp2")
    reference: RoleValue | None = _key("The frozen policy for the KL; left out: the actor with its adapter off.", "share:actor")
    reward: RoleValue | None = _key("What scores completions; left out: functions on the CPU.", "cpu")
    groups: dict[StrictStr, GroupEntry | Devices] | None = _key(
        "Named groups of devices, for device_group.",
        {"trainers": [0, 1]},
        propertyNames={"pattern": GROUP, "not": {"enum": ["cpu", *ROLES]}},
        maxProperties=64,
    )
    parallelism_config: dict[StrictStr, SizesEntry] | None = _key(
        "Sizes by role; only beside devices.", {"actor": {"tp": 2, "dp": 1}}, propertyNames={"enum": ROLES}
    )


Entry = TypeVar("Entry", bound=BaseModel)


def read_entry(model: type[Entry], value: Mapping[Any, Any], at: At) -> Entry:
    """``value`` as ``model``. Raises ConfigError that names the key, and what is possible there."""
    for key in value:
        if key not in model.model_fields:
            raise ConfigError(at(str(key)[:60]), f"{shown(key)} is no key here", _meant(str(key), model))
        if value[key] is None:
            raise ConfigError(at(key), "nothing is written there", "write a value, or leave the key out")
    try:
        return model.model_validate(dict(value))
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise ConfigError(at(key), f"{shown(value[key])} does not fit", _possible(model, key, value[key])) from error


def _meant(key: str, model: type[BaseModel]) -> str:
    known = ELSEWHERE.get(key)
    return f"write {known!r}" if known in model.model_fields else nearest(key, model.model_fields, "the keys")


def _possible(model: type[BaseModel], key: str, value: Any) -> str:
    """What a key may say: its words, or examples of it."""
    field = model.model_fields[key]
    words = [word for kind in get_args(field.annotation) for word in get_args(kind) if isinstance(word, str)]
    if words:
        return nearest(str(value), words, "possible") if len(words) > 1 else f"write {words[0]!r}"
    if StrictBool in get_args(field.annotation):
        return "write true or false"
    if Size in get_args(field.annotation):
        return "write a whole number from 1 to 4096"
    return f"write {' or '.join(map(str, field.examples or []))}"


class _AsWritten(GenerateJsonSchema):
    """A key is left out, never null; and the keys are titles enough."""

    def nullable_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of the value."""
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """The schema of the value, without a default."""
        return self.generate_inner(schema["schema"])

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No titles."""
        return False


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a map's file, with the other names of the roles."""
    schema = MapEntry.model_json_schema(schema_generator=_AsWritten)
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for alias, role in ALIASES.items():
        schema["properties"][alias] = schema["properties"][role] | {"description": f"The same as {role}."}
    for wrapper in WRAPPERS:
        schema["properties"][wrapper] = {"$ref": "#", "description": "The map, where it is kept under a key of its own."}
    return schema
