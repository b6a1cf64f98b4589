"""The order in which engine and trainer give each other the GPU. The engine here only writes down what it is told: none sleeps on a CPU."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from workbench.errors import ConfigError
from workbench.models.actor import Actor, ActorPlan
from workbench.models.lora import LoRA
from workbench.models.offload import Offload
from workbench.models.optimizer import Optimizer
from workbench.rollout.config import VLLM, check_device, check_mode
from workbench.runtime.turns import Turns


class Sleeper:
    """Of an engine, what ``Turns`` knows."""

    def __init__(self, told: list[str], sleep: bool = True) -> None:
        self.told, self.parts = told, set[str]()
        self.plan = SimpleNamespace(config=SimpleNamespace(sleep=sleep))

    @property
    def asleep(self) -> bool:
        return bool(self.parts)

    def sleep(self) -> None:
        self.told.append("sleep")
        self.parts = {"weights", "kv_cache"}

    def wake(self, part: str) -> None:
        if part in self.parts:
            self.told.append(part)
            self.parts.remove(part)


@pytest.fixture(scope="module")
def actor(small_model: Path) -> Actor:
    return Actor(ActorPlan(small_model, LoRA(rank=4, alpha=8), Optimizer(), "cpu", "bfloat16", 0))


def test_the_engine_leaves_before_the_trainer_comes_and_its_cache_comes_last(actor: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(Offload, "leave", lambda self: told.append("trainer leaves"))
    monkeypatch.setattr(Offload, "come_back", lambda self: told.append("trainer is back"))
    turns = Turns(Sleeper(told), actor.learner)
    for _ in range(2):  # reference, then the update
        turns.learn()
    assert turns.sync(lambda: told.append("write") or 7) == 7
    assert told == ["sleep", "trainer is back", "trainer is back", "weights", "write", "trainer leaves", "kv_cache"]


def test_an_engine_that_still_sleeps_gets_its_weights_before_it_samples(actor: Actor) -> None:
    told: list[str] = []
    turns = Turns(Sleeper(told), actor.learner)
    turns.sample(lambda: told.append("write"))
    assert told == []
    turns.learn()
    turns.sample(lambda: told.append("write"))
    turns.sample(lambda: told.append("write"))
    assert told == ["sleep", "weights", "write", "kv_cache"]


def test_nobody_moves_where_it_is_off_or_nothing_learns(actor: Actor) -> None:
    told: list[str] = []
    for turns in (Turns(Sleeper(told, sleep=False), actor.learner), Turns(Sleeper(told))):
        turns.learn()
        assert turns.sync(lambda: 1) == 1
    assert told == []


def test_what_a_learner_keeps_is_named_once_each_and_stays_on_a_cpu(actor: Actor) -> None:
    for parameter in actor.masters.parameters:
        parameter.grad = torch.ones_like(parameter)
    actor.learner.step()
    before = {name: tensor.clone() for name, tensor in actor.trainer_state().items()}
    offload = Offload(actor.learner)
    places = [place for place, _, _ in offload._kept()]
    assert len(set(places)) == len(places) == 3 * len(actor.masters.parameters)  # master and two moments
    offload.leave()
    assert offload.away
    offload.come_back()
    assert all(torch.equal(tensor, before[name]) for name, tensor in actor.trainer_state().items())


def test_where_the_engine_can_not_sleep() -> None:
    with pytest.raises(ConfigError, match=r"VLLM\(sleep=True\) on a CPU: its memory is the host's"):
        check_device(VLLM(sleep=True), "cpu")
    with pytest.raises(ConfigError, match="the trainer learns on the very weights"):
        check_mode(VLLM(sleep=True), "zero_copy")
    check_mode(VLLM(sleep=True), "merged")
