"""Roles: which an algorithm takes, who shares, who overlaps."""

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from workbench.errors import ConfigError
from workbench.mapping.checks import read_algo


def test_ppo_takes_a_critic():
    found = only(ask("l40s-4", actor="0-3", algo="ppo"), "WB111")
    assert (found.role, found.fix.patch) == ("critic", {"critic": {"share": "actor"}})
    assert codes(ask("l40s-4", actor="0-3", critic="share:actor", algo="PPO")) == []
    assert codes(ask("l40s-4", actor="0-3")) == []


def test_without_lora_the_missing_critic_gets_a_model_of_its_own():
    found = only(ask("hgx-h100", actor="0-7 fsdp", algo="ppo", lora=False), "WB111")
    assert found.fix.patch == {"critic": {"devices": list(range(8)), "layout": "fsdp"}}


@pytest.mark.parametrize("algo", ["grpo", "RLOO", "Dr. GRPO", "REINFORCE++", "dapo", "gspo"])
def test_a_critic_under_an_algorithm_without_one_is_refused(algo):
    question = ask("l40s-4", actor="0-3", critic="share:actor", algo=algo)
    assert only(question, "WB112").fix.patch == {"critic": None}
    assert question.devices.apply(only(question, "WB112")).critic is None


def test_an_unknown_algorithm_is_refused_where_it_is_written():
    with pytest.raises(ConfigError, match=r"algo 'adam': the algorithms are ppo, grpo"):
        ask("l40s-4", actor="0", algo="adam")
    assert read_algo("reinforce++") == "reinforceplusplus"


def test_no_actor():
    found = only(ask("l40s-4", rollout="0-3"), "WB111", "actor")
    assert (found.severity, found.fix.patch) == ("error", {"actor": {"devices": [0, 1, 2, 3]}})


def test_inference_only():
    found = only(ask("l40s-4", actor={"devices": [0, 1, 2, 3], "inference_only": True}), "WB113")
    assert (found.fix.patch, found.fix.text) == (None, "leave inference_only out, or give the role devices that train")
    assert codes(ask("l40s-4", actor="0-1", rollout={"devices": [2, 3], "inference_only": True})) == []


@pytest.mark.parametrize(
    ("role", "share", "words"),
    [
        ("reference", "rollout", "only the actor's model can be shared"),
        ("critic", "reference", "only the actor's model can be shared"),
        ("rollout", "actor", "the rollout has a model of its own"),
        ("reward", "actor", "the reward has a model of its own"),
    ],
)
def test_what_can_not_be_shared(role, share, words):
    question = ask("l40s-4", actor="0-3", **{role: f"share:{share}"})
    assert only(question, "WB114").found == words
    assert "WB114" not in [one.code for one in question.devices.apply(only(question, "WB114")).check(question.topology)]


def test_without_lora_there_is_no_base_to_share():
    found = only(ask("hgx-h100", actor="0-7", critic="share:actor", algo="ppo", lora=False), "WB114")
    assert found.found == "without LoRA all weights of both train: they can't be the same ones"
    assert found.fix.patch == {"critic": {"devices": list(range(8))}}


def test_overlap():
    found = only(ask("dgx-a100", actor="0-3", rollout="3-7 tp5"), "WB115")
    assert found.found.startswith("both have local:3, and not the same ones beside")
    assert found.fix.patch == {"rollout": {"devices": [4, 5, 6, 7]}}
    assert "WB115" not in codes(ask("dgx-a100", actor="0-3", rollout="4-7"))
    assert "WB115" not in codes(ask("dgx-a100", actor="0-7", rollout="0-7"))


def test_the_rollout_may_take_turns_with_the_critic_but_not_have_half_of_it():
    assert "WB115" not in codes(ask("dgx-a100", actor="0-3", critic="4-7", rollout="4-7"))
    assert only(ask("dgx-a100", actor="0-3", critic="4-5", rollout="4-7"), "WB115").role == "critic"


def test_reference_and_reward_overlap_whom_they_like():
    assert "WB115" not in codes(ask("dgx-a100", actor="0-3", rollout="4-7", reference="2-5", reward="0"))
