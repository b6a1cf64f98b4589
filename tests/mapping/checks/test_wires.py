"""What lies between the devices that work together."""

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from tests.mapping.checks.machines import alike, machine
from workbench.mapping.checks import check

TP_CODES = {"WB301", "WB302", "WB303", "WB307", "WB308"}
V100 = ("Tesla V100-SXM2-32GB", 32.0)


@pytest.mark.parametrize(
    ("preset", "roles"),
    [
        ("dgx-a100", {"actor": "0-7", "rollout": "0-7 tp8"}),  # across sockets, over NVSwitch
        ("hgx-h100", {"actor": "0-3", "rollout": "4-7 tp4"}),
        ("gb200-nvl4", {"actor": "0-3", "rollout": "0-3 tp4"}),
        ("mi300x-8", {"actor": "0-7", "rollout": "0-7 tp8"}),
        ("rtx3090-2-bridge", {"actor": "0-1", "rollout": "0-1 tp2"}),
        ("dgx1-v100", {"actor": "0-7", "rollout": "0-7 tp4"}),  # its two cliques of four
        ("2xdgx-a100", {"actor": "node1:0-7", "rollout": "node2:0-7 tp8"}),
        ("cpu:4", {"actor": "0-3", "rollout": "0-3 tp2"}),
        ("rtx4090-8", {"actor": "0-7", "rollout": "0-7"}),  # no group, no links needed
    ],
)
def test_groups_within_a_clique(preset, roles):
    assert codes(ask(preset, **roles)) == []


def test_outside_a_clique():
    found = only(ask("l40s-4", actor="0-1", rollout="2-3 tp2"), "WB301")
    assert found.asked == "rollout: tp 2 on local:2-3"
    assert "local:2 reaches local:3 over two host bridges of one NUMA node (NODE), about 17.5 GB/s" in found.found
    assert found.fix.patch == {"rollout": {"devices": [2, 3]}}


def test_across_sockets_names_the_worst_pair_and_the_largest_group_that_is_a_clique():
    found = only(ask("dgx1-v100", actor="0-7", rollout="0-7 tp8"), "WB302")
    assert "across sockets (SYS), about 6 GB/s" in found.found
    assert found.fix.patch == {"rollout": {"devices": list(range(8)), "tp": 4}}


def test_a_group_moves_to_a_free_clique():
    free = only(ask("dgx1-v100", actor="0-1", rollout="2,4,5,6 tp4"), "WB302")
    assert free.fix.patch == {"rollout": {"devices": [4, 5, 6, 7], "tp": 4}}
    taken = only(ask("dgx1-v100", actor="0,7", rollout="1,2,5,6 tp4"), "WB302")  # each clique of four has a GPU of the actor
    assert taken.fix.text == "use devices that are linked all to all: 0-3; actor then 5,7"
    assert taken.fix.patch == {"rollout": {"devices": [0, 1, 2, 3], "tp": 4}, "actor": {"devices": [5, 7]}}


def test_roles_exchange_their_places_where_no_clique_is_free():
    """Even and odd GPUs: neither is a group, and the model fits on no smaller one."""
    found = only(ask("dgx1-v100", actor="1,3,5,7 fsdp", rollout="0,2,4,6 tp4", model="shape:llama-34b"), "WB302")
    assert found.severity == "warning"
    assert found.fix.patch == {"rollout": {"devices": [0, 1, 2, 3], "tp": 4}, "actor": {"devices": [4, 5, 6, 7], "layout": "fsdp"}}


def test_sys_within_one_numa_node_is_no_socket():
    assert "WB301" in codes(ask("rtx4090-8", actor="0-3", rollout="4-7 tp2"))
    assert "WB302" in codes(ask("rtx4090-8", actor="0-2", rollout="3-4 tp2"))


def test_numa_ranges_of_a_virtual_machine_are_no_sockets():
    both = machine("vm", alike(2, *V100, numa=(0, 1)), {}, "PHB")
    assert codes(ask(both, actor="0-1", rollout="0-1 tp2")) == ["WB301"]


def test_across_nodes():
    found = only(ask("2xdgx-a100", actor="node1:0-7,node2:0-7 fsdp", rollout="node1:0-7,node2:0-7 tp16"), "WB303")
    assert "node1:0 reaches node2:0 over the network, about 25 GB/s" in found.found
    assert found.fix.patch["rollout"]["tp"] == 8


def test_where_the_model_fits_on_no_smaller_group_it_is_worth_knowing_only():
    found = only(ask("l40s-4", actor="0-3 fsdp", rollout="0-3 tp4", model="shape:llama-34b"), "WB302")
    assert (found.severity, found.fix.patch) == ("info", None)
    assert "fits on no smaller group" in found.fix.text
    assert only(ask("l40s-4", actor="0-3 fsdp", rollout="0-3 tp4", model="shape:qwen2.5-7b"), "WB302").severity == "warning"


def test_members_of_different_memory():
    found = only(ask("two-sizes", actor="0-3", rollout="0-3"), "WB304", "actor")
    assert "local:0-1: NVIDIA A100-SXM4-80GB 80 GiB; local:2-3: NVIDIA A100-SXM4-40GB 40 GiB" in found.found
    assert found.fix.patch["actor"] == {"devices": [0, 1]}
    assert "WB304" not in codes(ask("two-sizes", actor="0-1", rollout="2-3"))


def test_what_is_not_known_of_gpus_makes_no_difference():
    unknown = machine("bare", alike(2, None, None), {}, "NV12")
    assert codes(ask(unknown, actor="0-1", rollout="0-1 tp2")) == []


def test_one_switch():
    found = only(ask("two-switches", actor="0,2", rollout="1,3"), "WB305")
    assert found.found.startswith("local:0 and local:1 are behind one PCIe switch (PIX), and 1 pair more: while both work")
    assert found.fix.patch == {"actor": {"devices": [0, 1]}, "rollout": {"devices": [2, 3]}}
    assert codes(ask("two-switches", actor="0-1", rollout="2-3")) == []
    assert codes(ask("two-switches", actor="0-3")) == []  # they take turns


def test_one_switch_for_all_leaves_no_choice():
    single = machine("single", alike(2, "NVIDIA A30", 24.0), {}, "PIX")
    assert only(ask(single, actor="0", rollout="1"), "WB305").severity == "info"


@pytest.mark.parametrize("kind", ["PHB", "NODE", "SYS", "NV4"])
def test_other_links_are_no_switch(kind):
    pair = machine("pair", alike(2, "NVIDIA A30", 24.0), {}, kind)
    assert codes(ask(pair, actor="0", rollout="1")) == []


def test_out_of_the_fabric():
    found = only(ask("one-out", actor="0-3"), "WB306", "actor")
    assert found.found.startswith("local:3 has no direct link, and the others of that type here have")
    assert found.fix.patch["actor"] == {"devices": [0, 1, 2]}


@pytest.mark.parametrize("name", ["bridged", "dgx1-v100", "rtx4090-8", "rtx3090-2-bridge", "l40s-4"])
def test_machines_with_no_gpu_out(name):
    assert "WB306" not in codes(ask(name, actor="0-1"))


def test_peer_access_asked_for_and_denied():
    found = only(ask("rtx4090-8", actor={"devices": list(range(8)), "nccl_backend": "p2p"}), "WB307")
    assert (found.severity, found.role) == ("error", "actor")
    assert "the driver denies local:0 and local:1 to read each other's memory (SYS), and 27 pairs more" in found.found
    assert found.fix.patch == {"actor": {"devices": list(range(8))}}


def test_peer_access_of_a_group():
    found = only(ask("rtx4090-8", actor="0-5", rollout="6-7 tp2"), "WB307")
    assert (found.severity, found.role) == ("warning", "rollout")
    assert codes(ask("rtx4090-8", actor="0-5", rollout="6-7")) == []
    assert "WB307" not in codes(ask("hgx-h100", actor={"devices": [0, 1], "nccl_backend": "p2p"}))  # nobody said


def test_unknown_links():
    found = only(ask("cut-off", actor="0-1", rollout="2-3 tp2"), "WB308")
    assert (found.severity, found.found) == ("info", "what lies between local:2 and local:3 is not known")
    assert not TP_CODES & set(codes(ask("cut-off", actor="2-3", rollout="0-1 tp2")))


def test_peer_access_between_nodes_and_on_the_cpu():
    found = only(ask("2xdgx-a100", actor={"devices": "node1:0-7,node2:0-7", "nccl_backend": "p2p"}), "WB307")
    assert (found.severity, found.found) == (
        "error",
        "node1:0 and node2:0 are on different nodes, and no GPU reads another node's memory, and 63 pairs more",
    )
    assert "nccl_backend" not in found.fix.patch["actor"]
    for machine_ in (None, "l40s-4"):
        found = only(ask(machine_, actor={"devices": "cpu", "nccl_backend": "p2p"}), "WB307")
        assert (found.severity, found.found[:16]) == ("error", "it is on the CPU")


def test_peer_access_of_which_nobody_said_anything():
    found = only(ask("cut-pcie", actor={"devices": [0, 1], "nccl_backend": "p2p"}, rollout="2-3"), "WB307")
    assert (found.severity, found.fix.patch) == ("info", None)
    assert found.found == "nobody said whether local:0 and local:1 may read each other's memory (PHB)"


@pytest.mark.parametrize(("backend", "code"), [("none", "WB209"), ("ring", "WB210"), ("p2p", "WB307")])
def test_a_role_that_shares_has_its_settings_too(backend, code):
    machine_ = "dgx-a100" if backend == "ring" else "rtx4090-8"
    actor = {"devices": [0, 1, 2, 3], "nccl_backend": "p2p"} if backend == "ring" else "0-3"
    question = ask(machine_, actor=actor, critic={"share": "actor", "nccl_backend": backend}, rollout="4-7", algo="ppo")
    found = only(question, code, "critic")
    assert found.severity == "error"
    assert found.fix.patch["critic"]["share"] == "actor"


def test_through_the_host_within_one_numa_node():
    found = only(ask("rtx4090-8", actor="0-3", rollout="4-5 tp2"), "WB301")
    assert "local:4 reaches local:5 through the host (SYS, though both are on one NUMA node)" in found.found


def test_two_findings_give_no_two_advices():
    """What does not fit has to be mended first; what fits on no smaller group is not told to take one; one tp mends both."""
    big = {finding.code: finding for finding in check(ask("l40s-4", actor="0-1 fsdp", rollout="2-3 tp2", model="shape:llama-70b"))}
    assert "mend the errors first" in big["WB301"].fix.text
    tight = {one.code: one for one in check(ask("rtx4090-8", actor="0-3 fsdp", rollout="4-5 tp2", model="shape:qwen2.5-14b"))}
    assert "write tp" not in tight["WB307"].fix.text + tight["WB301"].fix.text
    both = check(ask("dgx-a100", actor="0-3", rollout="4-7 tp16", model="shape:qwen2.5-7b"))
    assert {one.fix.text[:11] for one in both if one.code in ("WB201", "WB202", "WB204")} == {"write tp: 4"}
