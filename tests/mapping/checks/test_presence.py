"""Devices: absent, twice, ambiguous, mixed, unused."""

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from workbench.mapping import DeviceMap


def test_absent_names_what_is_lacking_and_what_is_there():
    found = only(ask("l40s-4", actor="0-4"), "WB101", "actor")
    assert (found.asked, found.found) == ("actor: 0-4", "no local:4; l40s-4 has local:0, local:1, local:2, local:3")
    assert found.fix.patch == {"actor": {"devices": [0, 1, 2, 3]}, "rollout": {"devices": [0, 1, 2, 3]}}
    assert codes(ask("l40s-4", actor="0-3")) == []
    assert "WB101" not in codes(ask(None, actor="0-4"))


def test_absent_on_another_node():
    found = only(ask("l40s-4", actor="node7:0-1"), "WB101", "actor")
    assert found.found.startswith("no node7:0, node7:1;")
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
