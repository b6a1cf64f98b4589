"""Streams of events of runs that never were: written phase by phase, with clocks of our own."""

import random
from dataclasses import asdict, dataclass, field
from typing import Any

from tests.telemetry.streams import a_step
from workbench.events import Event
from workbench.records import Load, Phase, Progress, Record, Restored, RunStarted, State, kind_of
from workbench.telemetry.reading import VALUES

ROLE_OF_PHASE = {
    "rollout": "rollout",
    "reward": "reward",
    "reference": "reference",
    "sync": "rollout",
    "values": "critic",
    "update_critic": "critic",
}


@dataclass
class Story:
    """Writes events at a clock that is moved by hand (seconds)."""

    placement: dict[str, list[str]]
    now: float = 1000.0
    step: int = 1
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.tell(RunStarted("story", "m", {}, {}, self.placement, {}, 0))

    def tell(self, record: Record, at: float | None = None, role: str | None = None, phase: str | None = None) -> None:
        when = self.now if at is None else at
        self.events.append(Event(len(self.events), when, when, "local", None, role, phase, kind_of(record), asdict(record)))

    def phase(self, name: str, seconds: float, *, at: float | None = None, step: int | None = None) -> None:
        """A phase from now on, or beside others from ``at`` on."""
        begin = self.now if at is None else at
        if at is None:
            self.now += seconds
        self.tell(Phase(step or self.step, begin, seconds), begin + seconds, ROLE_OF_PHASE.get(name, "actor"), name)

    def end(self, **changed: Any) -> None:
        """The step is over."""
        self.tell(a_step(self.step, **changed))
        self.step += 1

    def rest(self, seconds: float, why: str = "") -> None:
        self.tell(State("paused", why))
        self.now += seconds
        self.tell(State("running"))

    def evaluate(self, seconds: float) -> None:
        self.tell(Progress("held_out", 0, 1))
        self.now += seconds
        self.tell(Progress("held_out", 1, 1))

    def restore(self, after: int, now: float, placement: dict[str, list[str]] | None = None) -> None:
        """Another process goes on after step ``after``, whose clock shows ``now``."""
        self.now, self.step = now, after + 1
        self.tell(Restored(after, f"step-{after}" if after else "", {}, placement or {}))


def a_load(devices: list[str], seconds: float = 0.5, **columns: list[Any]) -> Load:
    """A sample of ``devices``; of what is not given nothing is known."""
    every: dict[str, list[Any]] = {name: [None] * len(devices) for name in VALUES}
    return Load(seconds=seconds, devices=devices, missing={}, **{**every, **columns})


def any_run(seed: int) -> Story:
    """A run as they come: roles together and apart, steps ahead, several rounds, rests, pauses, restores, samples of load."""
    dice = random.Random(seed)
    pool = [f"local:{number}" for number in range(dice.randint(1, 4))] + ["cpu:0"]
    roles = ["actor", "rollout", "reference", "reward", *(["critic"] if dice.random() < 0.5 else [])]

    def placement() -> dict[str, list[str]]:
        return {role: sorted(dice.sample(pool, dice.randint(1, len(pool)))) for role in roles}

    story = Story(placement(), now=dice.uniform(0, 1e6))
    for _ in range(dice.randint(1, 6)):
        _a_step(story, dice)
        if dice.random() < 0.3:
            story.rest(dice.uniform(0, 3))
        if dice.random() < 0.3:
            story.evaluate(dice.uniform(0, 2))
        if dice.random() < 0.2:
            story.restore(dice.randint(0, story.step - 1), dice.uniform(0, 1e6), dice.choice([None, placement()]))
    _a_step(story, dice)
    return story


def _a_step(story: Story, dice: random.Random) -> None:
    if dice.random() < 0.5:
        time = story.now - dice.uniform(0, 2)  # ahead, beside the step before
        story.phase("rollout", dice.uniform(0, 3), at=time)
    for _ in range(dice.randint(1, 2)):
        story.phase("rollout", dice.uniform(0, 2))
        begin = story.now
        if dice.random() < 0.2:
            story.rest(dice.uniform(0, 1), "the service is down")
        story.now = max(begin, story.now)
        story.phase("reward", dice.uniform(0, 1), at=begin)
        story.now += dice.uniform(0, 1)
    story.phase("reference", dice.uniform(0, 1), at=story.now)
    for name in ("values", "advantages", "update_critic", "update_actor", "sync"):
        if dice.random() < 0.3:
            story.phase(name, dice.uniform(0, 2), at=story.now)
        else:
            story.phase(name, dice.uniform(0, 2))
        devices = sorted({device for devices in story.placement.values() for device in devices})
        shares = [{role: dice.random() for role in story.placement if dice.random() < 0.5} for _ in devices]
        story.tell(a_load(devices, role_busy=shares))
    story.end(data_wait_seconds=dice.choice([0.0, dice.uniform(0, 3)]))
