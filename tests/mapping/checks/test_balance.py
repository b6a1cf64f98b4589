"""Is the work where the machine can do it?"""

from dataclasses import replace

import pytest

from tests.mapping.checks.helpers import ask, codes, only
from workbench.mapping.checks.balance import speed


@pytest.mark.parametrize("critic", ["share:actor", "0-1"])
def test_actor_and_critic_take_turns_while_two_idle(critic):
    question = ask("dgx-a100", actor="0-1", critic=critic, rollout="2-5", algo="ppo")
    found = only(question, "WB401")
    assert found.severity == "warning"
    assert found.found == "they take turns on local:0-1 while local:6-7 idle"
    assert found.fix.patch == {"critic": {"devices": [6, 7]}}
    assert "WB403" not in codes(question)  # not both advices at once
    unused = only(question, "WB104")  # nor the same GPUs to two roles
    assert (unused.severity, unused.fix.patch) == ("warning", None)
    assert "give them to the critic" in unused.fix.text


def test_where_the_rollout_takes_turns_too_all_are_widened():
    """2/8 of a role's work for both in turns, as 1/4 beside one another; and the rollout samples on 8 instead of 4."""
    question = ask("dgx-a100", actor="0-3", critic="share:actor", algo="ppo")
    either = only(question, "WB401")
    assert (either.severity, either.fix.patch) == ("info", None)
    assert either.fix.text.endswith("or give all roles all GPUs (WB104), which takes no longer and samples on more")
    assert only(question, "WB104").fix.patch == {"rollout": {"devices": [*range(8)]}, "actor": {"devices": [*range(8)]}}
    assert only(replace(question, batch=4), "WB401").fix.patch == {"critic": {"devices": [4, 5, 6, 7]}}  # no work for eight


def test_the_critic_is_laid_out_as_the_actor():
    found = only(ask("hgx-h100", actor="0-1 fsdp", rollout="2-5", critic="share:actor", algo="ppo"), "WB401")
    assert found.fix.patch == {"critic": {"devices": [6, 7], "layout": "fsdp"}}


def test_too_few_idle_gpus_are_worth_knowing_only():
    """On two GPUs the critic takes 1/2, turns on four 2/4: nothing is won."""
    found = only(ask("dgx-a100", actor="0-3", rollout="4-5", critic="share:actor", algo="ppo"), "WB401")
    assert (found.severity, found.fix.patch) == ("info", None)
    assert "6-7 would be too few for the critic" in found.fix.text


@pytest.mark.parametrize(
    "roles",
    [
        {"actor": "0-7", "critic": "share:actor"},  # few GPUs, everything together
        {"actor": "0-3", "critic": "4-7"},
    ],
)
def test_no_gpus_that_would_win_anything(roles):
    assert "WB401" not in codes(ask("dgx-a100", **roles, algo="ppo"))


def test_one_idle_gpu_for_one_actor():
    found = only(ask("l40s-4", actor="0", rollout="1-2", critic="share:actor", algo="ppo"), "WB401")
    assert found.found == "they take turns on local:0 while local:3 idles"


def test_gpus_of_somebody_else_are_not_taken():
    found = only(ask("dgx-a100", actor="0", rollout="1", critic="share:actor", algo="ppo"), "WB401")
    assert (found.severity, found.fix.patch) == ("info", None)


def test_a_light_role_on_the_fast_gpus():
    found = only(ask("slow-and-fast", actor="0-1", reward="2-3"), "WB402")
    assert found.found == "the reward has GPUs 2.3 times as fast (local:2-3)"  # 165 / 71
    assert found.fix.patch == {"actor": {"devices": [2, 3]}, "rollout": {"devices": [2, 3]}, "reward": {"devices": [0, 1]}}
    assert codes(ask("slow-and-fast", actor="2-3", reward="0-1")) == []


def test_fast_gpus_that_idle():
    found = only(ask("slow-and-fast", actor="0-1"), "WB402")
    assert found.found == "local:2-3 would be 2.3 times as fast, and idle"


def test_actor_and_critic_train_alike_so_a_swap_wins_nothing():
    assert "WB402" not in codes(ask("slow-and-fast", actor="0-1", rollout="2-3", critic="2-3", algo="ppo"))


def test_gpus_of_unknown_speed_are_not_judged():
    assert speed("Matrox G200") is None
    assert speed(None) is None


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        ("NVIDIA GB200", 2250.0),
        ("NVIDIA H200", 989.0),
        ("NVIDIA H20", 148.0),
        ("NVIDIA A100-PCIE-40GB", 312.0),
        ("NVIDIA A10", 125.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA L40", 181.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA RTX 6000 Ada Generation", 364.0),
        ("AMD Instinct MI300X", 1307.0),
    ],
)
def test_speeds(name, tflops):
    assert speed(name) == tflops


def test_the_reference_is_the_actor_without_its_adapter():
    question = ask("dgx-a100", actor="0-7", reference="0-7")
    assert only(question, "WB403").fix.patch == {"reference": {"share": "actor"}}
    assert "WB403" not in codes(ask("dgx-a100", actor="0-7 fsdp", reference="0-7 fsdp", lora=False))


def test_a_critic_apart_is_right_with_many_gpus():
    assert codes(ask("dgx-a100", actor="0-1", critic="2-3", rollout="4-7", algo="ppo")) == []


def test_fewer_completions_than_ranks():
    found = only(ask("l40s-4", actor="0-3", rollout="0-3", batch=3), "WB404", "actor")
    assert (found.severity, found.found) == ("warning", "4 ranks share 3 completions a step: 1 has none")
    assert only(ask("l40s-4", actor="0-3", batch=1), "WB404", "actor").found == "4 ranks share 1 completion a step: 3 have none"
    assert codes(ask("l40s-4", actor="0-3", batch=4)) == []


def test_an_uneven_batch_is_worth_knowing_where_ranks_wait_for_each_other():
    found = only(ask("l40s-4", actor="0-3", batch=66), "WB404")
    assert (found.role, found.severity) == ("actor", "info")
    assert found.found == "4 ranks share 66 completions a step: 2 have one fewer, and wait for the others"
    assert found.fix.text == "make the batch a multiple of 4: 68"
    assert codes(ask("l40s-4", actor="0-3 tp2", batch=66)) == ["WB301"]  # two copies of two


def test_ranks_of_a_reward_model_without_work():
    found = only(ask("dgx-a100", actor="0", reward="1-7", batch=2), "WB404", "reward")
    assert found.found == "7 ranks share 2 completions a step: 5 have none"
    assert codes(ask("dgx-a100", actor="0", reward="cpu", batch=1)) == ["WB104"]


def test_one_finding_for_an_actor_and_the_rollout_that_follows_it():
    assert codes(ask("l40s-4", actor="0-3", batch=3)) == ["WB404"]
    assert only(ask("l40s-4", actor="0-3", batch=3), "WB404").fix.patch.keys() == {"actor", "rollout"}
