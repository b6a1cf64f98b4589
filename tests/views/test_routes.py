"""The ways of a role's data through a machine."""

import workbench as wb
from workbench.views.machine import bare
from workbench.views.routes import routes


def test_the_slowest_way_counts() -> None:
    topology = wb.Topology.preset("2xhgx-h100")
    placement = {"actor": ["node1:0", "node1:1"], "rollout": ["node1:2", "node2:0"]}
    among, weights = routes(topology, placement, "actor")
    assert among[0] == "among its devices"
    assert among[1].startswith("node1:0 - ")
    assert among[1].partition("about ")[2].startswith("450 GB/s")
    assert weights[0] == "weights to rollout"
    assert weights[1].partition("about ")[2].startswith("50 GB/s")  # over the network, not over NVLink


def test_on_the_same_devices_nothing_moves() -> None:
    placement = {"actor": ["local:0", "local:1"], "rollout": ["local:1", "local:0"]}
    found = dict(routes(wb.Topology.preset("l40s-4"), placement, "actor"))
    assert found["weights to rollout"] == "the same devices: nothing crosses a link"


def test_what_is_not_on_the_machine_goes_through_the_driver() -> None:
    placement = {"rollout": ["local:0"], "reward": ["cpu:0"]}
    assert routes(wb.Topology.preset("l40s-4"), placement, "rollout") == (("completions to reward", "through the driver's memory"),)


def test_of_a_machine_that_nobody_described_nothing_is_said() -> None:
    placement = {"actor": ["local:0"], "rollout": ["local:1"]}
    assert routes(bare(placement), placement, "actor") == (("weights to rollout", "what lies between them is not known"),)


def test_a_service_is_reached_over_http() -> None:
    placement = {"rollout": ["local:0"], "reward": [], "actor": ["local:0"]}
    found = dict(routes(wb.Topology.preset("l40s-4"), placement, "rollout"))
    assert found["completions to reward"] == "over HTTP: one of them is a service"
    assert routes(wb.Topology.preset("l40s-4"), placement, "reward")[0] == ("rewards to actor", "over HTTP: one of them is a service")
