"""A GPU's memory by its name, and told for a machine whose matrix does not say it."""

import pytest

from workbench.errors import ConfigError
from workbench.topology import GPU, Topology
from workbench.topology.memory import memory_of


@pytest.mark.parametrize(
    ("name", "gib"),
    [
        ("NVIDIA A100-SXM4-80GB", 80.0),
        ("Tesla V100-SXM2-16GB", 16.0),
        ("NVIDIA H100 80GB HBM3", 80.0),
        ("NVIDIA H200", 140.4),
        ("NVIDIA H20", 95.6),
        ("NVIDIA GeForce RTX 3090", 24.0),
        ("NVIDIA L4", 22.5),
        ("NVIDIA L40S", 45.0),
        ("Tesla V100-SXM2", None),  # 16 or 32
        ("", None),
        (None, None),
    ],
)
def test_by_name(name: str | None, gib: float | None) -> None:
    assert memory_of(name) == gib


def test_told_only_where_it_is_not_known() -> None:
    topology = Topology("mixed", (GPU(0), GPU(1, memory_gib=24.0)))
    assert [gpu.memory_gib for gpu in topology.with_memory(80).gpus] == [80.0, 24.0]
    assert topology.gpus[0].memory_gib is None  # the other is as it was


@pytest.mark.parametrize("memory", [0, -1, 1e7, float("nan"), "80"])
def test_no_memory(memory: object) -> None:
    with pytest.raises(ConfigError, match="memory_gib"):
        Topology.cpu(1).with_memory(memory)  # type: ignore[arg-type]
