"""PPO runs: in one process on one base, and five roles on four; what goes into records, checkpoints and folders."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

import workbench as wb
from tests.runtime.conftest import worker_of
from tests.test_run import PROMPTS, likes_a, make
from workbench.errors import ConfigError, DivergedError, StateError
from workbench.run import Run
from workbench.runtime.plans import Post
from workbench.runtime.pools import split
from workbench.runtime.trainers import Trainers

TIMED = ("seconds", "phase_seconds", "data_wait_seconds", "ahead_seconds", "scored_early", "rested_seconds")
ALGO = wb.PPO(group_size=4, minibatches=2, epochs=2, kl=0.05, kl_target=0.01, kl_horizon=320)
WITH_CRITIC = wb.DeviceMap(actor="cpu", critic="share:actor")
TASK = wb.tasks.from_list(PROMPTS, scorer=likes_a)


def numbers(run: Run) -> list[dict[str, object]]:
    return [{name: value for name, value in asdict(step).items() if name not in TIMED} for step in run.steps]


def ppo(model: Path, folder: Path, **changes: Any) -> Run:
    return make(model, folder, **{"algo": ALGO, "critic": wb.Critic(warmup_steps=2), "checkpoint_every": 3, "trackers": (), **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(free_process: None, small_model: Path, folder: Path) -> Iterator[Run]:
    run = ppo(small_model, folder, name="ppo", optimizer=wb.Optimizer(learning_rate=5e-3))
    list(run.train(6))
    yield run
    run.close()


def test_a_map_without_a_critic_gets_one_on_the_actors_base(run: Run) -> None:
    worker = worker_of(run._training.crew.team)
    assert worker.critic.base is worker.actor
    seats = json.loads((run.path / "placement.json").read_text())
    assert {(seat["role"], seat["device"]) for seat in seats} >= {("actor", "cpu:0"), ("critic", "cpu:0")}
    assert [route.phase for route in run.routes][:8:2] == ["rollout", "reference", "values", "update_critic"]


def test_in_the_first_steps_the_critic_learns_alone(run: Run) -> None:
    warm, learnt = run.steps[:2], run.steps[2:]
    assert [(step.tokens_trained, step.skipped, step.adapter_version) for step in warm] == [(0, False, 1)] * 2
    assert all("update_critic" in step.phase_seconds and "update_actor" not in step.phase_seconds for step in warm)
    assert all(step.tokens_trained > 0 and step.logprob_diff_max < 1e-3 for step in learnt)
    assert [step.adapter_version for step in learnt] == [1, 2, 3, 4]


def test_the_record_tells_of_the_critic(run: Run) -> None:
    assert all(step.value_loss > 0 and step.critic_grad_norm > 0 and 0 <= step.value_clip_fraction <= 1 for step in run.steps)
    assert run.steps[0].explained_variance == pytest.approx(0, abs=1e-6)  # the first values are all 0
    assert run.steps[-1].explained_variance != 0
    assert all(step.groups_without_variance <= step.groups for step in run.steps)


def test_the_weight_of_the_kl_adapts(run: Run) -> None:
    """By a factor 1 + clip(KL/target - 1, ±0.2)·32/320 after each step that the actor learns in."""
    weights = [step.kl_weight for step in run.steps]
    assert weights[:3] == [0.05] * 3
    for before, after, step in zip(weights[2:], weights[3:], run.steps[2:], strict=False):
        assert after == pytest.approx(before * (1 + max(-0.2, min(step.kl / 0.01 - 1, 0.2)) * 32 / 320))
    assert run.knobs.kl == 0.05  # what a person has set


def test_a_stop_between_two_steps_of_the_critic_leaves_no_checkpoint(run: Run) -> None:
    """In the warm-up, too, when the actor makes none."""
    learner = worker_of(run._training.crew.team).critic.learner
    step = learner.step

    def and_stop() -> None:
        step()
        run._stop.set()

    learner.step = and_stop
    assert list(run.train(1)) == []
    learner.step = step
    with pytest.raises(StateError, match="broken off between two updates"):
        run.checkpoint()


def test_a_critic_that_has_diverged_is_named(run: Run) -> None:
    bias = worker_of(run._training.crew.team).critic.head.bias
    bias.data.fill_(float("inf"))
    with pytest.raises(DivergedError, match=r"^values: the critic's values are not finite"):
        list(run.train(1))
    bias.data.zero_()


def test_steps_that_overlap_adapt_one_weight(small_model: Path, folder: Path) -> None:
    """The next step has begun, with its weight, before one has ended. Nothing is loaded here."""
    training = ppo(small_model, folder, name="weight")._training

    def begins(number: int) -> float:
        return float(training._adapted(training.knobs.take(number).algo).kl)

    weights = [begins(1), begins(2)]
    for number in (3, 4):
        training._adapt(0.02, 320)  # twice the target: by a fifth
        weights.append(begins(number))
    training.knobs.kl = 0.2
    weights.append(begins(5))
    training._adapt(0.02, 320)  # of a step from before the turn
    weights.append(begins(6))
    assert weights == pytest.approx([0.05, 0.05, 0.06, 0.072, 0.2, 0.24])


def test_a_warm_up_as_long_as_the_run_is_said(run: Run) -> None:
    training = run._training
    notices = [event.data["text"] for event in run.events if event.kind == "notice"]
    assert not any("only the critic learns" in text for text in notices)
    done, end, training.done, training.end = training.done, training.end, 0, 2
    try:
        training._begin(1)
    finally:
        training.done, training.end = done, end
        training.knobs.take(done)
    notices = [event.data["text"] for event in run.events if event.kind == "notice"]
    assert "only the critic learns: its warm-up is 2 steps, and the run has 2" in notices


def test_a_restored_run_makes_the_same_steps(run: Run, small_model: Path, folder: Path) -> None:
    run.close()
    assert {file.name for file in (run.path / "critic").iterdir()} >= {"adapter_model.safetensors", "value_head.safetensors"}
    again = Run.restore(run.path / "checkpoints" / "step-000003", task=TASK)
    assert again.plan.critic == wb.Critic(warmup_steps=2)
    list(again.train(3))
    assert numbers(again)[3:] == numbers(run)[3:6]
    kept = load_file(again.path / "checkpoints" / "step-000006" / "trainer.safetensors")
    assert any(name.startswith("critic/exp_avg.") for name in kept)
    again.knobs.kl = 0.2
    (step,) = again.train(1)
    assert step.kl_weight == 0.2  # a person's word is the last
    again.close()


def test_five_roles_on_four_processes(free_process: None, small_model: Path, folder: Path) -> None:
    """Actor, critic and rollout each on one, reference and a reward model on the fourth; then restored into one process."""
    reward = wb.rewards.RewardModel(wb.rewards.tiny_reward_model(folder / "reward"))
    places = wb.DeviceMap(actor="0", critic="1", rollout="2", reference="3", reward="3")
    run = ppo(small_model, folder, devices=places, name="spread", topology=wb.Topology.cpu(slots=4), reward=reward)
    list(run.train(3))
    seats = json.loads((run.path / "placement.json").read_text())
    assert {seat["role"]: seat["device"] for seat in seats} == {
        "actor": "cpu:0",
        "critic": "cpu:1",
        "rollout": "cpu:2",
        "reference": "cpu:3",
        "reward": "cpu:3",
    }
    assert len({seat["pid"] for seat in seats}) == 4
    moved = {(route.phase, route.source): route.bytes for route in run.routes}
    assert all(moved[phase, source] > 0 for phase in ("values", "update_critic") for source in ("driver", "critic"))
    phases = [event for event in run.events if event.kind == "phase" and event.data["step"] == 3]
    spans = {event.phase: (event.data["begin_mono"], event.data["begin_mono"] + event.data["seconds"]) for event in phases}
    assert spans["update_critic"][0] < spans["update_actor"][1]
    assert spans["update_actor"][0] < spans["update_critic"][1]  # at the same time: they are apart
    assert all(step.reward_std > 0 for step in run.steps)
    run.close()
    again = Run.restore(run.path, task=TASK, reward=reward, devices="cpu", runtime="inline")
    (step,) = again.train(1)
    assert step.step == 4
    assert step.explained_variance is not None
    again.close()


def test_a_critic_of_its_own_has_its_own_micro_batches(small_model: Path, folder: Path) -> None:
    critic = wb.Critic(optimizer=wb.Optimizer(token_budget=64))
    plan = ppo(small_model, folder, devices=wb.DeviceMap(actor="cpu", critic="cpu"), critic=critic).plan
    (pool,) = split(plan.devices)
    trainers = Trainers(plan.worker(small_model, "cpu", small_model), Post(pool))
    trainers.load()
    assert (trainers.actor.budget, trainers.critic.base.budget) == (4096, 64)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        (
            {"algo": wb.GRPO(), "critic": None, "devices": wb.DeviceMap(actor="cpu", critic="share:actor")},
            r"GRPO takes advantages from rewards alone.*\n.*wb\.PPO",
        ),
        ({"algo": wb.GRPO(), "critic": wb.Critic()}, r"GRPO has no critic.*\n.*wb\.PPO"),
        ({"critic": wb.Critic(full=True)}, r"Critic\(full=True\): on the actor's base it is an adapter.*\n.*devices in the map"),
        ({"critic": wb.Critic(model="tiny")}, r"Critic\(model='tiny'\): on the actor's base"),
        (
            {"critic": wb.Critic(model="./nowhere"), "devices": wb.DeviceMap(actor="cpu", critic="cpu")},
            r"model '\./nowhere': no such folder",
        ),
        (
            {"critic": wb.Critic(optimizer=wb.Optimizer(token_budget=64))},
            r"token_budget=64\)\): on the actor's base micro-batches are the actor's.*\n.*Run\(optimizer=",
        ),
        ({"critic": "share:actor"}, r"critic='share:actor'.*\n.*wb\.Critic"),
    ],
)
def test_a_critic_that_can_not_be(small_model: Path, folder: Path, changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        ppo(small_model, folder, **{"critic": wb.Critic(), **changes})
