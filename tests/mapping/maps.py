"""Strategies of hypothesis that build placements and maps."""

from typing import Any

from hypothesis import strategies as st

from workbench.mapping.devices import in_order
from workbench.mapping.placement import Placement
from workbench.roles import Role

_NODES = st.sampled_from(["", "node1:", "gpu-box.lab:"])
_GPUS = st.lists(st.builds("{}{}".format, _NODES, st.integers(0, 99)), min_size=1, max_size=9)
DEVICES = st.just(("cpu",)) | _GPUS.map(in_order)


@st.composite
def _placed(draw: Any) -> Placement:
    """On devices, with any of the keys."""
    layout = draw(st.sampled_from(["ddp", "fsdp"]))
    return Placement(
        devices=draw(DEVICES),
        layout=layout,
        tp=draw(st.integers(1, 8)),
        dp=draw(st.none() | st.integers(1, 8)),
        mode=draw(st.sampled_from(["auto", "zero_copy", "merged", "adapter", "full"])),
        placement_policy=draw(st.sampled_from([None, "hybrid", "static"])),
        offload_strategy=draw(st.sampled_from([None, "cpu_prefetch"])),
        prompt_loading=draw(st.sampled_from([None, "disabled"])),
        nccl_backend=draw(st.sampled_from([None, "p2p", "ring", "none"])),
        sharding_strategy=draw(st.sampled_from([None, "SHARD_GRAD_OP"])) if layout == "fsdp" else None,
        inference_only=draw(st.booleans()),
    )


_SHARED = st.builds(Placement, share=st.sampled_from(list(map(str, Role))))
_SERVICES = st.builds(Placement, url=st.just("http://localhost:8080"), shared_mem_name=st.sampled_from(["", "rewards"]))
PLACEMENTS = _placed() | _SHARED | _SERVICES
MAPS = st.dictionaries(st.sampled_from(list(map(str, Role))), PLACEMENTS, min_size=1)
