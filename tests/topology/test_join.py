import pytest

from workbench.errors import ConfigError
from workbench.topology import GPU, NIC, Link, Topology
from workbench.topology.join import join
from workbench.topology.topology import connect


def pair(**changes) -> Topology:
    gpus = (GPU(0, name="NVIDIA H100 80GB HBM3"), GPU(1, name="NVIDIA H100 80GB HBM3"))
    links = connect(gpus, {("local:0", "local:1"): "NV18"})
    return Topology("pair", gpus, links, (NIC("mlx5_0"),), (Link("local:0", "local:mlx5_0", "PIX"),), **changes)


def test_joined_devices_carry_their_nodes_name():
    topology = Topology.join({"left": pair(), "right": pair()}, 25, "2 x 200 Gb/s InfiniBand")
    assert topology.ids == ("left:0", "left:1", "right:0", "right:1")
    assert topology.nodes == ("left", "right")
    assert [nic.id for nic in topology.nics] == ["left:mlx5_0", "right:mlx5_0"]
    assert [(link.a, link.b) for link in topology.nic_links] == [("left:0", "left:mlx5_0"), ("right:0", "right:mlx5_0")]
    assert topology.islands == (("left:0", "left:1"), ("right:0", "right:1"))
    assert topology.name == "left + right"


def test_every_pair_of_two_nodes_goes_over_the_network():
    topology = join({"a": pair(), "b": pair(), "c": pair()}, 25, "200 Gb/s")
    network = [link for link in topology.links if link.name == "NET"]
    assert len(network) == 3 * 4  # three pairs of nodes, four pairs of GPUs each
    assert {(link.gb_per_s, link.source) for link in network} == {(25.0, "200 Gb/s")}
    assert topology.link("c:1", "a:0").kind == "NET"
    assert "network card of a" in str(topology.path("a:0", "c:1"))
    assert topology.bandwidth("b:0", "b:1") == 450.0


def test_what_was_missing_stays_known():
    topology = join({"a": pair(), "b": pair(complete=False, warnings=("row of GPU1 is missing",))}, 1)
    assert not topology.complete
    assert topology.warnings == ("b: row of GPU1 is missing",)
    assert join({"a": pair(), "b": pair()}, 1).complete


def test_cpu_slots_are_joined_too():
    topology = join({"a": Topology.cpu(2), "b": Topology.cpu(1)}, 0.125)
    assert topology.ids == ("a:0", "a:1", "b:0")
    assert topology.is_cpu
    assert topology.bandwidth("a:1", "b:0") == 0.125
    assert topology.link("a:0", "a:1") is None  # nobody said


def test_many_nodes_have_a_short_name():
    assert join({f"n{i}": Topology.cpu(1) for i in range(9)}, 1).name == "9 nodes"


@pytest.mark.parametrize("name", ["", "1st", "a b", "a:0", "a,b", "nö", "a\n", "-a", 3])
def test_names_that_a_map_could_not_write(name):
    with pytest.raises(ConfigError, match="a letter, then letters"):
        join({name: pair()}, 1)


@pytest.mark.parametrize("name", ["cpu", "CPU", "local", "share", "http"])
def test_names_that_mean_something_else(name):
    with pytest.raises(ConfigError, match=r"reads .* as something else"):
        join({name: pair()}, 1)


def test_what_else_is_refused():
    with pytest.raises(ConfigError, match="has the nodes a, b itself"):
        join({"c": join({"a": pair(), "b": pair()}, 1), "d": pair()}, 1)
    with pytest.raises(ConfigError, match="has no devices"):
        join({"a": Topology("empty", ())}, 1)
    with pytest.raises(ConfigError, match="nothing to join"):
        join({}, 1)
    with pytest.raises(ConfigError, match="that is a str, no topology"):
        join({"a": "pair"}, 1)
    with pytest.raises(ConfigError, match="nothing arrives"):
        join({"a": pair()}, 0)
    with pytest.raises(ConfigError, match="no finite number"):
        join({"a": pair()}, float("nan"))
    with pytest.raises(ConfigError, match="that is a list"):
        join([pair()], 1)
