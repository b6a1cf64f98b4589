"""Which runtime a map gets, and which maps one process can't obey. No engine, no Ray."""

from pathlib import Path
from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.mapping import DeviceMap
from workbench.models.lora import LoRA
from workbench.models.optimizer import Optimizer
from workbench.rollout.config import VLLM
from workbench.runtime.assemble import assemble, check_inline, check_runtime, choose, is_here
from workbench.runtime.inline import Inline
from workbench.runtime.plans import WorkerPlan
from workbench.runtime.pools import machine_of, split
from workbench.runtime.settings import Ray
from workbench.topology import Topology

CLUSTER = Ray(address="10.0.0.1:6379")


@pytest.mark.parametrize("asked", ["auto", "inline", "ray", CLUSTER])
def test_a_runtime_that_there_is(asked: Any) -> None:
    assert check_runtime(asked) is asked


@pytest.mark.parametrize("asked", ["rey", "Ray", "", None, 3, Ray, {"address": "auto"}, ["ray"]])
def test_any_other_is_refused(asked: Any) -> None:
    with pytest.raises(ConfigError, match=r"there are two runtimes\n  fix: write 'auto', 'inline', 'ray', or wb.Ray\(address=\.\.\.\)"):
        check_runtime(asked)


@pytest.mark.parametrize(
    ("asked", "written", "slots", "chosen"),
    [
        ("auto", {}, None, "inline"),
        ("auto", {"actor": "cpu", "reward": "cpu:0"}, None, "inline"),
        ("auto", {"actor": "0"}, None, Ray()),  # GPUs are for processes of their own: the driver leaves CUDA alone
        ("auto", {"actor": "0", "rollout": "1"}, None, Ray()),
        ("auto", {"actor": "cpu:0", "rollout": "cpu:1"}, None, Ray()),
        ("auto", {"actor": "cpu:0-1"}, None, Ray()),
        ("auto", {"actor": "0", "rollout": "1"}, 2, Ray()),
        ("inline", {}, None, "inline"),
        ("inline", {"actor": "0"}, None, "inline"),
        ("inline", {"actor": "0"}, 4, "inline"),
        ("ray", {}, None, Ray()),
        (CLUSTER, {}, None, CLUSTER),
        (CLUSTER, {"actor": "0-3"}, None, CLUSTER),
    ],
)
def test_the_runtime_of_a_map(asked: Any, written: dict[str, str], slots: int | None, chosen: Any) -> None:
    assert choose(asked, DeviceMap(**written), None if slots is None else Topology.cpu(slots)) == chosen


def test_a_cluster_elsewhere_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert is_here("inline")
    assert is_here(Ray())
    assert not is_here(CLUSTER)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert is_here("inline")
    assert not is_here(Ray())


@pytest.mark.parametrize(
    ("written", "match"),
    [
        (
            {"actor": "0", "rollout": "1"},
            r"^Run\(runtime='inline'\) with actor: '0', rollout: '1', .*: the map has 2 worker processes \(actor\+reference, rollout\), "
            r"and this is one\n  fix: leave runtime out, or write runtime='ray'",
        ),
        ({"actor": "0-3 fsdp"}, r"the map has 4 worker processes \(actor\+rollout\+reference\)"),
        ({"actor": "cpu:0-1"}, r"the map has 2 worker processes"),
        (
            {"actor": "1"},
            r"every model is on the first visible GPU\n  fix: start the kernel with CUDA_VISIBLE_DEVICES=1 and write '0', or leave",
        ),
        ({"actor": "node1:2"}, r"first visible GPU\n.*CUDA_VISIBLE_DEVICES=2"),
    ],
)
def test_what_one_process_cannot_obey(written: dict[str, str], match: str) -> None:
    devices = DeviceMap(**written)
    with pytest.raises(ConfigError, match=match):
        check_inline(devices, split(devices, machine_of(devices, None)))
    with pytest.raises(ConfigError, match=match):
        choose("inline", devices, None)


def recipe(device: str) -> WorkerPlan:
    return WorkerPlan(Path("nowhere"), LoRA(), Optimizer(), VLLM(), device, "float32", seed=0)


@pytest.mark.parametrize(
    ("written", "slots", "device"),
    [({}, None, "cpu"), ({"actor": "0"}, 1, "cpu"), ({"actor": "cpu:0"}, None, "cpu"), ({"actor": "0"}, None, "cuda")],
)
def test_a_team_in_this_process(written: dict[str, str], slots: int | None, device: str) -> None:
    """Made, and not opened: no model is loaded, and CUDA is left alone."""
    team = assemble(DeviceMap(**written), None if slots is None else Topology.cpu(slots), "inline", "test", recipe)
    assert isinstance(team.runtime, Inline)
    assert team.plan.device == device
    assert [pool.name for pool in team.pools] == ["actor+rollout+reference"]
    assert team.notices == ()


def test_a_map_of_several_processes_is_no_team_in_this_one() -> None:
    with pytest.raises(ConfigError, match="the map has 2 worker processes"):
        assemble(DeviceMap(actor="0", rollout="1"), None, "inline", "test", recipe)
