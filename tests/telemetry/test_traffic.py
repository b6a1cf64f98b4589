"""Ranks put together, and bytes on links: numbers by hand."""

import pytest

from workbench.telemetry.profile import Call
from workbench.telemetry.traffic import Recording, between, links, phases, traffic
from workbench.topology import Topology

DEVICES = ("local:0", "local:1", "local:2", "local:3")


def call(
    collective: str, ranks: tuple[int, ...], count: int | None, peer: int | None = None, group: str = "g", seconds: float = 0.5
) -> Call:
    return Call(collective, group, ranks, count, count or 0, peer, 0.0, seconds, "kernel")


def recording(rank: int, *calls: Call, phase: str = "update_actor", seconds: float = 2.0) -> Recording:
    return Recording("actor", phase, rank, DEVICES[rank], DEVICES, seconds, calls)


def sent(*recordings: Recording) -> dict[tuple[str, str], int]:
    """(from, to) -> bytes, by device numbers."""
    found = {}
    for link in links(1, recordings, None):
        for a, b, count in ((link.a, link.b, link.there), (link.b, link.a, link.back)):
            if count:
                found[a[-1], b[-1]] = count
    return found


def test_phases_add_up_over_the_calls_of_a_step():
    """Two rounds of sampling are one phase."""
    parts = [
        recording(0, call("all_reduce", (0, 1), 8), seconds=2.0),
        recording(0, call("all_reduce", (0, 1), 8), seconds=1.0),
        recording(1),
    ]
    (told,) = phases(4, parts)
    assert (told.role, told.phase, told.record.step) == ("actor", "update_actor", 4)
    assert (told.record.devices, told.record.seconds, told.record.collective_seconds) == (["local:0", "local:1"], [3.0, 2.0], [1.0, 0.0])


def test_groups_of_one_name_are_one_row_with_their_members():
    """tp 2 over four ranks: the gradients go in two groups."""
    ranks = {0: (0, 2), 1: (1, 3), 2: (0, 2), 3: (1, 3)}
    parts = [recording(r, call("all_reduce", ranks[r], 100, seconds=r / 10), call("send", (0, 1, 2, 3), 7, peer=0)) for r in range(4)]
    first, second = (told.record for told in traffic(1, parts))
    assert (first.collective, first.members) == ("all_reduce", [["local:0", "local:2"], ["local:1", "local:3"]])
    assert (first.count, first.bytes, first.seconds, first.timed) == ([1] * 4, [100] * 4, [0.0, 0.1, 0.2, 0.3], "kernel")
    assert (second.collective, second.bytes) == ("send", [7] * 4)  # the most bytes first


def test_bytes_that_are_not_told_are_not_summed():
    (told,) = traffic(1, [recording(0, call("all_reduce", (), None), call("all_reduce", (), 5))])
    assert (told.record.count, told.record.bytes, told.record.members) == ([2], [None], [])


@pytest.mark.parametrize(("collective", "each"), [("all_reduce", 6000), ("all_gather", 3000), ("reduce_scatter", 3000)])
def test_a_ring_of_four(collective, each):
    """4000 bytes: an all-reduce sends 2 * 3/4 of them from each rank to the next, the others 3/4."""
    parts = [recording(rank, call(collective, (0, 1, 2, 3), 4000)) for rank in range(4)]
    assert sent(*parts) == {("0", "1"): each, ("1", "2"): each, ("2", "3"): each, ("3", "0"): each}


def test_a_ring_of_two_uses_both_directions():
    assert sent(*[recording(rank, call("all_reduce", (0, 1), 4000)) for rank in range(2)]) == {("0", "1"): 4000, ("1", "0"): 4000}


def test_a_broadcast_goes_along_the_ring_from_its_root():
    assert sent(*[recording(rank, call("broadcast", (0, 1, 2), 10, peer=1)) for rank in range(3)]) == {("1", "2"): 10, ("2", "0"): 10}
    assert sent(*[recording(rank, call("reduce", (0, 1, 2), 10, peer=1)) for rank in range(3)]) == {("2", "0"): 10, ("0", "1"): 10}


def test_sends_are_counted_once_and_straight():
    assert sent(recording(0, call("send", (0, 1, 3), 11, peer=3)), recording(3, call("recv", (0, 1, 3), 11, peer=0))) == {("0", "3"): 11}


def test_all_to_all_gather_and_scatter_go_straight():
    assert sent(recording(0, call("all_to_all", (0, 1, 2), 30))) == {("0", "1"): 10, ("0", "2"): 10}
    assert sent(*[recording(rank, call("gather", (0, 1, 2), 10, peer=0)) for rank in range(3)]) == {("1", "0"): 10, ("2", "0"): 10}
    assert sent(*[recording(rank, call("scatter", (0, 1, 2), 30, peer=0)) for rank in range(3)]) == {("0", "1"): 10, ("0", "2"): 10}


def test_barriers_groups_of_one_and_groups_not_told_move_nothing():
    assert sent(recording(0, call("barrier", (0, 1), 0), call("all_reduce", (0,), 8), call("all_reduce", (), 8))) == {}


def test_the_busiest_link_comes_first_and_says_what_it_is():
    parts = [recording(0, call("send", (0, 1), 5, peer=1), call("send", (0, 2), 9, peer=2))]
    first, second = links(1, parts, Topology.preset("hgx-h100"))
    assert ((first.a, first.b, first.there), (second.a, second.b, second.there)) == (("local:0", "local:2", 9), ("local:0", "local:1", 5))
    assert (first.link, first.gb_per_s) == ("NV18: NVLink", 450.0)


def test_what_lies_between():
    dgx1 = Topology.preset("dgx1-v100")
    assert between(dgx1, "local:0", "local:5") == ("SYS: the interconnect between NUMA nodes", 6.0)
    assert between(None, "cpu:0", "cpu:1") == ("slots of one CPU: shared memory", None)
    assert between(None, "node1:0", "node2:0") == ("the network", None)
    assert between(None, "node1:0", "node1:1") == ("not known", None)
