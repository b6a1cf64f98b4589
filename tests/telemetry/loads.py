"""Streams of a run's load: written as text, or drawn as healthy runs are. Two GPUs train, one samples."""

import random
from collections.abc import Mapping
from typing import Any

from tests.telemetry.runs import Story, a_load
from tests.telemetry.streams import values
from workbench.records import Queue, Ranks, Seen
from workbench.telemetry import LoadLookout

APART = {"actor": ["local:0", "local:1"], "reference": ["local:0", "local:1"], "rollout": ["local:2"], "reward": ["cpu:0"]}
GPUS = ["local:0", "local:1", "local:2"]
HEALTHY = {
    "busy": 0.9,  # of the GPUs whose phase it is
    "off": 0.5,  # of the others
    "full": 0.8,  # share of the memory in use
    "pcie": 3.0,  # GB/s, both directions together
    "nvlink": 20.0,
    "heat": 0.0,  # share of the samples
    "wait": 0.0,  # share of the step until its prompts are there
    "late": 1.0,  # seconds of rank 1 in the update; rank 0 takes 1.0
    "running": 200.0,  # requests in the engine, of 512
    "waiting": 20.0,
    "preempted": 0.0,
}


def written(columns: Mapping[str, str], placement: Mapping[str, list[str]] = APART) -> Story:
    """A run with these columns (as of ``streams.values``); what is not named is healthy."""
    known = {name: values(text) for name, text in columns.items()}
    assert known.keys() <= HEALTHY.keys()
    story = Story(dict(placement))
    for at in range(max(map(len, known.values()))):
        a_step_of(story, {**HEALTHY, **{name: column[min(at, len(column) - 1)] for name, column in known.items()}})
    return story


def a_step_of(story: Story, now: Mapping[str, float], **changed: Any) -> None:
    """4 s of rollout, 4 of update, with a sample twice a second."""
    for phase, workers in (("rollout", GPUS[2:]), ("update_actor", GPUS[:2])):
        begin = story.now
        for at in range(8):
            busy: list[float | None] = [now["busy"] if device in workers else now["off"] for device in GPUS]
            story.tell(
                a_load(
                    GPUS,
                    busy=busy,
                    memory_gib=[140 * now["full"]] * 3,
                    total_gib=[140.0] * 3,
                    pcie_rx_gb_s=[now["pcie"] / 2] * 3,
                    pcie_tx_gb_s=[now["pcie"] / 2] * 3,
                    nvlink_rx_gb_s=[now["nvlink"]] * 3,
                    nvlink_tx_gb_s=[0.0] * 3,
                    throttled=["heat, power cap" if at < 8 * now["heat"] else "power cap"] * 3,
                ),
                begin + (at + 1) / 2,
            )
        story.phase(phase, 4.0)
    story.tell(Ranks(story.step, [1.0, now["late"]]), role="actor", phase="update_actor")
    story.tell(Queue(story.step, now["running"], now["waiting"], round(now["preempted"])), role="rollout", phase="rollout")
    seconds = {"rollout": 4.0, "update_actor": 4.0}
    story.end(**{"seconds": 8.0, "phase_seconds": seconds, "data_wait_seconds": 8.0 * now["wait"], **changed})


def said(story: Story) -> list[Seen]:
    """All that is said of a run, asked after every step."""
    lookout, found = LoadLookout(), list[Seen]()
    ends = [at + 1 for at, event in enumerate(story.events) if event.kind == "step"]
    for end in ends:
        found += lookout.news(story.events[:end])
    return found


def healthy(seed: int) -> Story:
    """A healthy run, with the noise of real ones: full or not, in turns or ahead, over PCIe or NVLink, short or long steps."""
    dice = random.Random(seed)
    level = {"busy": dice.uniform(0.4, 0.97), "off": dice.uniform(0.25, 0.9), "full": dice.uniform(0.2, 0.95)}
    level |= {"pcie": dice.lognormvariate(0, 1.5), "nvlink": dice.lognormvariate(2, 1.5), "wait": 0.0, "heat": 0.0}
    running = dice.uniform(0.2, 0.9) * 512
    story = Story(dict(APART))
    for _ in range(dice.randint(1, 40)):
        now = {
            name: min(0.96, value * dice.gauss(1, 0.08)) if value <= 1 else value * dice.lognormvariate(0, 0.2)
            for name, value in level.items()
        }
        now["heat"] = 0.3 if dice.random() < 0.05 else 0.0
        now["wait"] = dice.uniform(0, 0.4) if dice.random() < 0.1 else 0.0
        now["late"] = dice.gauss(1, 0.08) if dice.random() < 0.9 else 1.6
        now |= {"running": running * dice.gauss(1, 0.05), "waiting": dice.uniform(0, running), "preempted": float(dice.random() < 0.1)}
        a_step_of(story, now)
    return story
