"""Sizes: of the group, of the model, and what goes together."""

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from workbench.errors import ConfigError
from workbench.mapping.checks import check
from workbench.roles import Role
from workbench.runtime.pools import split

QWEN, SMALL = "shape:qwen2.5-7b", "shape:qwen2.5-1.5b"


def test_tp_divides_the_group():
    found = only(ask("l40s-4", actor="0", rollout="1-3 tp2"), "WB204")
    assert found.found == "groups of 2 can't be made of 3 devices"
    assert found.fix.patch == {"rollout": {"devices": [1, 2, 3]}}
    assert only(ask(None, actor="0", rollout="0 tp2"), "WB204").found == "groups of 2 can't be made of 1 device"


def test_the_product_is_the_group():
    found = only(ask("dgx-a100", actor="0-3", rollout={"devices": [4, 5, 6, 7], "tp": 2, "dp": 4}), "WB205")
    assert found.found == "tp 2 x dp 4 is 8, and the group has 4 devices"
    assert "WB205" not in codes(ask("dgx-a100", actor="0-3", rollout={"devices": [4, 5, 6, 7], "tp": 2, "dp": 2}))


def test_heads():
    found = only(ask("dgx-a100", actor="0-7", rollout="0-7 tp8", model=QWEN), "WB201")
    assert (found.asked, found.found) == ("rollout: tp 8 of qwen2.5-7b", "28 attention heads can't be split 8 ways")
    assert found.fix.patch == {"rollout": {"devices": list(range(8)), "tp": 4}}
    assert "WB201" not in codes(ask("dgx-a100", actor="0-7", rollout="0-7 tp4", model=QWEN))


def test_key_value_heads_are_copied_by_the_engine_alone():
    found = only(ask("dgx-a100", actor="0-3 tp4", rollout="4-7 tp4", model=SMALL), "WB202")
    assert (found.role, found.found) == ("actor", "2 key-value heads can't be split 4 ways")
    uneven = only(ask("dgx-a100", actor="0", rollout="1-3 tp3", model=SMALL), "WB202")  # 12 heads / 3, but 2 heads on 3 ranks
    assert uneven.found == "2 key-value heads can't be split 3 ways or copied evenly"


def test_vocabulary_costs_the_trainer_memory_and_the_engine_nothing():
    assert only(ask("dgx-a100", actor="0-2 tp3", model=SMALL), "WB203").severity == "warning"
    assert only(ask("dgx-a100", actor="0", rollout="1-3 tp3", model=SMALL), "WB203").severity == "info"
    assert "151936 can't be split 3 ways" in only(ask("dgx-a100", actor="0-2 tp3", model=SMALL), "WB203").found


@pytest.mark.parametrize(
    ("roles", "words"),
    [
        ({"actor": "0-1", "rollout": "2-3 fsdp"}, "the engine splits a model by tensor parallelism"),
        ({"actor": "0 fsdp"}, "this is one"),
        ({"actor": "0-3 fsdp tp2"}, "fsdp and tp at once are not supported"),
    ],
)
def test_layouts_that_can_not_be(roles, words):
    assert words in only(ask("l40s-4", **roles), "WB206").found


def test_static():
    hybrid = {"rollout": "0-3 tp2", "actor": {"devices": [0, 1, 2, 3], "layout": "fsdp", "placement_policy": "static"}}
    found = only(ask("dgx-a100", **hybrid), "WB207")
    assert "trains as fsdp and the engine samples as tp=2" in found.found
    apart = {"actor": {"devices": [0, 1, 2, 3], "layout": "fsdp", "placement_policy": "static"}, "rollout": "4-7 tp2"}
    assert "WB207" not in codes(ask("dgx-a100", **apart))


@pytest.mark.parametrize(
    ("roles", "lora", "words"),
    [
        ({"actor": "0", "rollout": {"devices": [1], "mode": "zero_copy"}}, True, "share no devices"),
        ({"actor": "0", "rollout": {"devices": [1], "mode": "merged"}}, True, "share no devices"),
        ({"actor": "0-1 fsdp", "rollout": {"devices": [0, 1], "mode": "zero_copy"}}, True, "both lie alike"),
        ({"actor": "0", "rollout": {"devices": [0], "mode": "zero_copy"}}, False, "the very weights"),
        ({"actor": "0", "rollout": {"devices": [0], "mode": "adapter"}}, False, "no adapter without LoRA"),
        ({"actor": {"devices": [0], "mode": "full"}}, True, "only the rollout's engine gets weights"),
    ],
)
def test_modes_that_can_not_be(roles, lora, words):
    assert words in only(ask(None, **roles, lora=lora), "WB208").found


@pytest.mark.parametrize("mode", ["auto", "zero_copy", "merged", "adapter", "full"])
def test_modes_on_the_actors_gpu(mode):
    assert codes(ask(None, actor="0", rollout={"devices": [0], "mode": mode})) == []


def test_gradients():
    found = only(ask("l40s-4", actor={"devices": [0, 1, 2, 3], "nccl_backend": "none"}), "WB209")
    assert found.found == "each of its 4 devices would train a policy of its own"
    assert codes(ask(None, actor={"devices": [0], "nccl_backend": "none"})) == []


def test_one_setting_a_pool():
    both = {"actor": {"devices": [0, 1], "nccl_backend": "ring"}, "rollout": {"devices": [0, 1], "nccl_backend": "p2p"}}
    assert "actor, whose nccl_backend is ring" in only(ask(None, **both), "WB210").found
    assert codes(ask(None, **{**both, "rollout": {"devices": [2, 3], "tp": 2, "nccl_backend": "p2p"}})) == []


def test_roles_that_share_are_in_the_pool_too():
    reference = {"share": "actor", "nccl_backend": "ring"}
    found = only(ask(None, actor={"devices": [0, 1], "nccl_backend": "p2p"}, reference=reference, rollout="2"), "WB210")
    assert (found.role, found.fix.patch) == ("reference", {"reference": {"share": "actor", "nccl_backend": "p2p"}})


@pytest.mark.parametrize(
    ("actor", "critic", "words", "mended"),
    [
        ("0-3 fsdp", "0-3", "laid out as fsdp:", {"layout": "fsdp"}),
        ("0-3", {"devices": [0, 1, 2, 3], "tp": 2, "dp": 2}, "laid out as ddp:", {}),
        ("0-3 tp2", "0-3 tp4", "laid out as tp=2:", {"tp": 2}),
        (
            {"devices": [0, 1, 2, 3], "layout": "fsdp", "sharding_strategy": "SHARD_GRAD_OP"},
            "local:0-3 fsdp",
            "laid out as fsdp SHARD_GRAD_OP:",
            {"layout": "fsdp", "sharding_strategy": "SHARD_GRAD_OP"},
        ),
    ],
)
def test_two_training_layouts_in_one_pool(actor, critic, words, mended):
    question = ask("dgx-a100", actor=actor, critic=critic, rollout="4-7", algo="ppo")
    found = only(question, "WB211")
    assert (found.role, found.severity) == ("critic", "error")
    assert words in found.found
    patch = dict(found.fix.patch["critic"])
    assert [str(device).removeprefix("local:") for device in patch.pop("devices")] == ["0", "1", "2", "3"]
    assert patch == mended
    with pytest.raises(ConfigError, match="lays its models out in one way"):
        split(question.devices, question.topology)
    split(question.devices.apply(found), question.topology)


@pytest.mark.parametrize("critic", ["0-3 fsdp", "share:actor", "4-7"])
def test_one_training_layout_in_each_pool(critic):
    question = ask("dgx-a100", actor="0-3 fsdp", critic=critic, rollout="0-3 tp2", algo="ppo")
    assert "WB211" not in codes(question)
    split(question.devices, question.topology)


def test_a_reference_lies_as_the_actor_beside_it():
    found = only(ask("dgx-a100", actor="0-3 tp2", reference="0-3 fsdp", rollout="4-7"), "WB211")
    assert (found.role, found.severity, found.fix.patch) == ("reference", "warning", {"reference": {"devices": [0, 1, 2, 3], "tp": 2}})
    assert "WB211" not in codes(ask("dgx-a100", actor="0-3 tp2", reference="0-1", rollout="4-7"))  # some of them: a pool of its own


def test_layouts_that_memory_rules_out_are_not_patched_in():
    """61 GiB of weights: beside a whole actor there is room for an eighth of a critic, and not for another whole one."""
    found = only(ask("dgx-a100", actor="0-7", critic="0-7 fsdp", algo="ppo", model="shape:qwen2.5-32b"), "WB211")
    assert found.fix.patch is None
    assert found.fix.text == "write ddp for both, or give the critic devices of its own"


RING = {"nccl_backend": "ring"}


@pytest.mark.parametrize(
    ("roles", "role", "words"),
    [
        ({"actor": {"devices": [0], **RING}}, "actor", "it is one process"),
        ({"actor": "0", "rollout": {"devices": [0], "nccl_backend": "p2p"}}, "rollout", "it is one process"),
        ({"actor": "0-1", "rollout": {"devices": [2, 3], **RING}}, "rollout", "each of its processes works by itself"),
        ({"actor": "0-1", "rollout": {"devices": [2, 3], "tp": 2, **RING}}, None, ""),
        ({"actor": "0-1", "rollout": {"devices": [0, 1], **RING}}, None, ""),  # the actor's processes are its own
        ({"actor": "0-1", "reference": {"devices": [2, 3], **RING}}, None, ""),
        ({"actor": "0-1", "reward": {"devices": [2, 3], **RING}}, "reward", "each of its processes works by itself"),
        ({"actor": {"devices": [0], "nccl_backend": "none"}}, None, ""),
    ],
)
def test_collective_settings_without_collectives(roles, role, words):
    question = ask(None, **roles)
    assert [finding.role for finding in check(question) if finding.code == "WB212"] == ([role] if role else [])
    for pool in split(question.devices):
        assert not pool.nccl or pool.is_world != (role in pool.roles)  # what is said is what is built
    if role:
        found = only(question, "WB212")
        assert (found.severity, found.found) == ("info", f"{words}, and NCCL connects several")
        assert "nccl_backend" not in found.fix.patch[role]


def test_peer_access_on_the_cpu_is_told_once():
    assert codes(ask(None, actor={"devices": "cpu", "nccl_backend": "p2p"})) == ["WB307"]


def test_two_names_of_one_device_are_one():
    """ "local:0-3" is "0-3" where there is one node, and "cpu" is the first slot."""
    same = ask("dgx-a100", actor="local:0-3", rollout={"devices": "0-3", "mode": "merged"})
    assert "WB208" not in codes(same)
    assert "WB208" not in codes(ask("cpu:2", actor="cpu", rollout={"devices": "cpu:0", "mode": "merged"}))
    assert same.together(Role.ACTOR) == [Role.ACTOR, Role.ROLLOUT]
    assert only(ask("dgx-a100", actor="local:0-7", critic="0-7", algo="ppo"), "WB403").role == "critic"


def test_an_engine_that_pads_is_left_alone():
    found = only(ask("dgx-a100", actor="0", rollout="1-3 tp3", model=SMALL), "WB203")
    assert (found.severity, found.fix.patch) == ("info", None)


def test_dp_that_is_written_stays_written():
    found = only(ask("dgx-a100", actor="0-3", rollout={"devices": [4, 5, 6, 7], "tp": 2, "dp": 4}), "WB205")
    assert found.fix.patch == {"rollout": {"devices": [4, 5, 6, 7], "tp": 2, "dp": 2}}
