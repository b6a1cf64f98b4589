"""Devices: absent, twice, ambiguous, mixed, unused."""

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from workbench.mapping import DeviceMap
from workbench.mapping.checks import check, mended
from workbench.topology import Topology


def test_absent_names_what_is_lacking_and_what_is_there():
    found = only(ask("l40s-4", actor="0-4"), "WB101", "actor")
    assert (found.asked, found.found) == ("actor: 0-4", "no local:4; l40s-4 has local:0-3")
    assert found.fix.patch == {"actor": {"devices": [0, 1, 2, 3]}, "rollout": {"devices": [0, 1, 2, 3]}}
    assert codes(ask("l40s-4", actor="0-3")) == []
    assert "WB101" not in codes(ask(None, actor="0-4"))


def test_absent_on_another_node():
    found = only(ask("l40s-4", actor="node7:0-1"), "WB101", "actor")
    assert found.found.startswith("no node7:0-1;")
    assert found.fix.patch["actor"] == {"devices": [0, 1]}


@pytest.mark.parametrize("actor", ["cpu", "0-3", "cpu:0-3", "2"])
def test_slots_of_the_cpu_are_there(actor):
    assert codes(ask("cpu:4", actor=actor, algo="grpo")) == []


def test_slots_that_are_not_there():
    assert "cpu:4" in only(ask("cpu:4", actor="0-4"), "WB101", "actor").found


def test_reward_on_the_cpu_of_a_machine_with_gpus():
    assert codes(ask("l40s-4", actor="0-3", reward="cpu")) == []


def test_twice():
    found = only(ask("l40s-4", actor={"devices": [0, 1, 1, 2, 3]}), "WB102", "actor")
    assert found.found == "local:1 is named twice"
    assert found.fix.patch["actor"] == {"devices": [0, 1, 2, 3]}


def test_ambiguous_takes_the_first_node_or_counts_over_all():
    first = only(ask("2xdgx-a100", actor="0-3"), "WB103", "actor")
    assert "there are 2 nodes (node1, node2)" in first.found
    assert first.fix.patch["actor"]["devices"] == ["node1:0", "node1:1", "node1:2", "node1:3"]
    over_all = only(ask("2xdgx-a100", actor="0-15 fsdp"), "WB103", "actor")
    assert over_all.fix.patch["actor"]["devices"][7:9] == ["node1:7", "node2:0"]
    assert "WB101" not in codes(ask("2xdgx-a100", actor="0-15"))
    assert "WB103" not in codes(ask("2xdgx-a100", actor="node1:0-7,node2:0-7"))


def test_unused_gpus_go_to_the_rollout():
    found = only(ask("dgx-a100", actor="0-3", rollout="4-5 tp2"), "WB104")
    assert (found.severity, found.asked, found.found) == ("warning", "roles on 6 of 8 GPUs", "local:6-7 are mapped to nothing")
    assert found.fix.patch == {"rollout": {"devices": [4, 5, 6, 7], "tp": 2}}
    assert only(ask("dgx-a100", actor="0-3", rollout="4-6"), "WB104").found == "local:7 is mapped to nothing"


@pytest.mark.parametrize(
    "question",
    [
        ask("dgx-a100", actor="0"),  # seven for somebody else
        ask("dgx-a100", actor="0-1", rollout="2"),
        ask("2xdgx-a100", actor="node1:0"),
        ask("hgx-h100", actor="cpu"),
        ask("two-sizes", actor="0-1"),  # of another kind
        ask("dgx-a100", actor="0-3", batch=4),  # no work for more
    ],
)
def test_unused_gpus_are_only_worth_knowing_where_nobody_here_could_use_them(question):
    found = only(question, "WB104")
    assert (found.severity, found.fix.patch) == ("info", None)
    assert codes(question, "warning") == []


def test_a_gpu_out_of_the_fabric_is_not_offered():
    assert codes(ask("one-out", actor="0-2")) == []


def test_mixed():
    found = only(ask("l40s-4", actor="cpu", rollout="0-3"), "WB105")
    assert (found.role, found.fix.patch) == ("actor", {"actor": {"devices": [0, 1, 2, 3]}})
    assert only(ask("l40s-4", actor="0-3", rollout="cpu"), "WB105").role == "rollout"


def test_a_service_is_for_rewards():
    question = ask(None, actor="http://host:80", reward="http://host:80")
    assert [finding.role for finding in question.devices.check() if finding.code == "WB116"] == ["actor"]
    assert DeviceMap(actor="0", reward="http://host:80").check() == ()


@pytest.mark.parametrize(
    ("roles", "role", "placement"),
    [
        ({"actor": "0-3 tp2", "rollout": "0,1,2,9 tp2"}, "rollout", "0-3 tp2"),  # a slip: it takes turns with the actor
        ({"actor": "0,0,1,2", "rollout": "0-3 tp4"}, "actor", "0-3"),
        ({"actor": "0-3", "rollout": "4,5,6,9 tp4"}, "rollout", "4-7 tp4"),  # beside the actor, as many
        ({"actor": "0-3", "rollout": "8-11 tp4"}, "rollout", "4-7 tp4"),
        ({"actor": "0-7", "rollout": "8-15 tp8"}, "rollout", "0-7 tp8"),  # none is free
        ({"actor": "0-4", "rollout": "5-8 tp2"}, "rollout", "5-6 tp2"),  # whole groups of what is there
        ({"actor": "0-1,9", "rollout": "4-7"}, "actor", "0-2"),
        ({"actor": "0,0,1", "rollout": "4-7"}, "actor", "0-2"),
        ({"actor": "0-9"}, "actor", "0-7"),
        ({"actor": "0-9 tp2", "rollout": "0-9 tp2"}, "actor", "0-7 tp2"),
    ],
)
def test_a_repair_keeps_the_number_of_devices_and_tp(roles, role, placement):
    question = ask("dgx-a100", **roles, model="shape:llama-70b", batch=64)
    found = [one for one in check(question) if one.code in ("WB101", "WB102") and one.role == role]
    assert str(question.devices.apply(found[0]).places[role]) == placement


def test_what_a_repair_has_to_give_up_is_said():
    found = only(ask("l40s-4", actor="0-7 tp8"), "WB101", "actor")
    assert found.fix.text == "name devices that are there: 0-3, in a group of 4 instead of 8; actor then tp 4"


def test_gpus_of_another_type_stand_in_for_nobody():
    assert only(ask("two-sizes", actor="0,9", rollout="1"), "WB101").fix.patch == {"actor": {"devices": [0]}}


def test_fixing_a_typo_gives_nothing_away():
    better, done = mended(ask("dgx-a100", actor="0-3 tp2", rollout="0,1,2,9 tp2"))
    assert (str(better.actor), str(better.rollout), [one.code for one in done]) == ("0-3 tp2", "0-3 tp2", ["WB101"])
    assert "WB104" in [one.code for one in better.check("dgx-a100")]  # said, and left to the person
    assert [one.code for one in mended(ask("dgx-a100", actor="0-3", rollout="4-5"))[1]] == ["WB104"]  # nothing was wrong


def test_an_implied_rollout_is_no_second_mistake():
    assert codes(ask("dgx-a100", actor="0-9"), "error") == ["WB101"]
    assert codes(ask("dgx-a100", actor="0,0"), "error") == ["WB102"]
    assert codes(ask("2xdgx-a100", actor="0-7"), "error") == ["WB103"]
    assert codes(ask("dgx-a100", actor="0-9", critic="0-9"), "error") == ["WB101", "WB101"]


def test_slots_of_the_cpu_are_not_on_machines_with_gpus():
    found = only(ask("dgx-a100", actor="cpu:7"), "WB101")
    assert found.found == "no cpu:7; dgx-a100 has local:0-7"
    assert found.fix.patch == {"actor": {"devices": "cpu"}, "rollout": {"devices": "cpu"}}
    assert "WB101" not in codes(ask("dgx-a100", actor="cpu:0"))


def test_a_machine_with_no_devices():
    found = only(ask(Topology("empty", ()), actor="0-1"), "WB101")
    assert (found.found, found.fix.patch) == ("no local:0-1; empty has no devices", None)
