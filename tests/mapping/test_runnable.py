"""Which maps this version runs, and what is said of the others before anything is loaded."""

from typing import Any

import pytest
import torch

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.mapping.runnable import limit
from workbench.topology import Topology


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"actor": "cpu"},
        {"actor": "0"},
        {"actor": "1"},
        {"actor": "local:2"},
        {"actor": "0-1"},
        {"actor": "0", "rollout": "1"},
        {"actor": "0-3 fsdp", "rollout": "0-3 tp2"},
        {"actor": "0-3", "rollout": "4-7 tp2", "reference": "8-9 fsdp", "reward": "10"},
        {"actor": "0-1 tp2", "rollout": "2"},
        {"actor": "cpu", "critic": "share:actor"},
        {"actor": "cpu", "reward": "http://h:1"},
        {"actor": "0-1", "critic": "2-3 fsdp", "rollout": "4"},
        {"actor": "node1:0-1", "rollout": "node2:0"},
        {"actor": "0", "rollout": {"devices": 0, "mode": "adapter"}},
        {"actor": "0", "rollout": {"devices": 0, "mode": "zero_copy"}},
        {"actor": "0-1 fsdp", "rollout": {"devices": "0-1", "tp": 2, "mode": "merged"}},
        {"actor": "0-1 tp2", "rollout": {"devices": "0-1", "mode": "merged"}},
        {"actor": "local:0", "rollout": "0"},
        {"actor": "cpu:0", "rollout": "cpu", "reward": "cpu:0"},
        {"actor": "cpu:0-1", "rollout": "cpu:2", "reference": "cpu:3", "reward": "cpu:3"},
        {"actor": {"devices": 0, "nccl_backend": "none"}},
        {"actor": {"devices": "0-1", "nccl_backend": "ring"}},
    ],
)
def test_what_this_version_runs(written: dict[str, Any]) -> None:
    devices = DeviceMap(**written)
    devices.check_runnable(None if devices.device == "cuda" else Topology.cpu(4))
    assert limit(devices) == ""


@pytest.mark.parametrize(
    ("written", "match"),
    [
        ({"actor": "0", "rollout": {"devices": 0, "mode": "full"}}, r"^rollout: mode 'full': .*only the adapter changes"),
    ],
)
def test_what_this_version_does_not_run(written: dict[str, Any], match: str) -> None:
    devices = DeviceMap.load(written)
    with pytest.raises(ConfigError, match=match) as told:
        devices.check_runnable()
    assert limit(devices) == told.value.found


def test_all_weights_are_trained_where_the_engine_is() -> None:
    DeviceMap(actor="0-1 fsdp", rollout="0-1 tp2").check_runnable(lora=False)
    with pytest.raises(
        ConfigError, match=r"^rollout: '1', all weights trained: whole weights reach engines in the trainer's own processes"
    ):
        DeviceMap(actor="0", rollout="1").check_runnable(lora=False)
    with pytest.raises(ConfigError, match="gradients of what stays whole would be partial"):
        DeviceMap(actor="0-1 tp2", rollout="0-1").check_runnable(lora=False)


def test_slots_that_are_not_there_are_refused() -> None:
    DeviceMap(actor="0-1", rollout="2").check_runnable(Topology.cpu(3))
    with pytest.raises(ConfigError, match=r"\(WB101\): .*cpu, 2 slots"):
        DeviceMap(actor="0-1", rollout="2").check_runnable(Topology.cpu(2))


def test_the_first_error_is_told_and_how_many_more_there_are() -> None:
    with pytest.raises(ConfigError, match=r"\(WB1\d\d\): .* \(1 more: devices\.check\(\)\)\n  fix: "):
        DeviceMap(actor="0-1 tp2", rollout="1-2", critic="share:actor", reference="share:critic").check_runnable()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_map_of_gpus_where_there_is_none() -> None:
    DeviceMap().check_present()
    DeviceMap(actor="cpu:0-1").check_present()
    match = r"^actor: '0-3 fsdp': torch sees no GPU here.*\n  fix: write 'cpu'; rehearse it with Run\(topology=wb\.Topology\.cpu"
    with pytest.raises(ConfigError, match=match):
        DeviceMap(actor="0-3 fsdp").check_present()
    assert not torch.cuda.is_initialized()
