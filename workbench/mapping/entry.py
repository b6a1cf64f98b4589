"""A map's file as it is written: every key of it, with its values; and the JSON Schema of that, for editors."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr

Devices = StrictInt | StrictStr | list[StrictInt | StrictStr]
Size = Annotated[StrictInt, Field(ge=1, le=4096)]


class GroupEntry(BaseModel):
    """A named group of devices, and how a model lies on it."""

    model_config = ConfigDict(extra="forbid")

    devices: Devices | None = Field(None, description="Devices: cpu, 0, [0, 1], 0-3, node1:0-3.")
    gpus_per_node: Size | None = Field(None, description="GPUs of the group on each node; without devices, the next free ones.")
    layout: StrictStr | None = Field(None, description="ddp (a whole model on each device), fsdp (one in shards), tp=N.")
    tp: Size | None = Field(None, description="Devices that one model is split over.")
    dp: Size | None = Field(None, description="Copies of the model; tp x dp is the number of devices.")
    tp_size: Size | None = Field(None, description="The same as tp.")
    parallel_strategy: StrictStr | None = Field(None, description="ddp, fsdp or tp.")
    sharding_strategy: StrictStr | None = Field(None, description="FULL_SHARD, SHARD_GRAD_OP or NO_SHARD.")
    mesh_shape: list[Size] | dict[Literal["dp", "tp"], Size] | None = Field(None, description="[dp, tp]; the product is the group.")
    inference_only: StrictBool | None = Field(None, description="No role that trains may be here.")


class RoleEntry(GroupEntry):
    """Where one role runs."""

    device_group: Devices | None = Field(None, description="Devices; a name is that of a group in the table 'groups'.")
    share: StrictStr | None = Field(None, description="The role whose model it shares: actor.")
    url: StrictStr | None = Field(None, description="The service that does it: http://host:8080.")
    service_url: StrictStr | None = Field(None, description="The same as url.")
    shared_mem_name: StrictStr | None = Field(None, description="Shared-memory block for token ids, to a service on this machine.")
    mode: Literal["auto", "zero_copy", "merged", "adapter", "full"] | None = Field(None, description="How the engine gets the weights.")
    placement_policy: Literal["hybrid", "static"] | None = Field(None, description="Weights may be resharded between phases, or not.")
    offload_strategy: Literal["cpu_prefetch"] | None = Field(None, description="Prompts are tokenized and batched ahead on the CPU.")
    prompt_loading: Literal["disabled"] | None = Field(None, description="The role loads no prompts itself.")
    nccl_backend: Literal["p2p", "ring", "none"] | None = Field(None, description="P2P required; NCCL_ALGO=Ring; no gradient group.")


class SizesEntry(BaseModel):
    """Sizes of one role in ``parallelism_config``."""

    model_config = ConfigDict(extra="forbid")

    tp: Size | None = Field(None, description="Devices that one model is split over.")
    dp: Size | None = Field(None, description="Copies of the model.")
    pp: Size | None = Field(None, description="Pipeline stages: only 1, more is not supported.")
    expert: Size | None = Field(None, description="Expert parallelism: only 1, more is not supported.")


RoleValue = StrictStr | StrictInt | RoleEntry


class MapEntry(BaseModel):
    """A device map: which role runs on which devices."""

    model_config = ConfigDict(extra="forbid", title="Workbench device map")

    actor: RoleValue | None = Field(None, description="The policy that trains.")
    critic: RoleValue | None = Field(None, description="The value model, for PPO.")
    rollout: RoleValue | None = Field(None, description="The engine (vLLM) that samples; left out: on the actor's devices.")
    reference: RoleValue | None = Field(None, description="The frozen policy for the KL; left out: the actor with its adapter off.")
    reward: RoleValue | None = Field(None, description="What scores completions; left out: functions on the CPU.")
    groups: dict[StrictStr, GroupEntry] | None = Field(None, description="Named groups of devices, for device_group.")
    parallelism_config: dict[StrictStr, SizesEntry] | None = Field(None, description="Sizes by role; only beside devices.")


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a map's file, with the other names of the roles."""
    from workbench.roles import ALIASES

    schema = MapEntry.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    for alias, role in ALIASES.items():
        schema["properties"][alias] = schema["properties"][role] | {"description": f"The same as {role}."}
    return schema
