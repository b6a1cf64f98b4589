"""Busy time and bubbles: written runs with sums by hand, and that every device's time adds up whatever happened."""

import pytest

from tests.telemetry.runs import Story, a_load, any_run
from workbench.errors import ConfigError, StateError
from workbench.records import Checkpoint
from workbench.telemetry.bubbles import SHARED, Bubbles, bubbles

APART = {"actor": ["local:0"], "rollout": ["local:1"], "reference": ["local:0"], "reward": ["cpu:0"]}


def told(found: Bubbles, device: str) -> tuple[dict[str, float], dict[str, float]]:
    """Busy and idle seconds of a device, to the millisecond."""
    one = next(one for one in found.devices if one.device == device)
    return tuple({name: round(seconds, 3) for name, seconds in part.items()} for part in (one.busy_seconds, one.idle_seconds))  # type: ignore[return-value]


def a_usual_step(story: Story) -> None:
    """4 s of rollout, 1 of reward, 1 of reference, 2 of update, 0.5 of sync."""
    for name, seconds in (("rollout", 4.0), ("reward", 1.0), ("reference", 1.0), ("advantages", 0.0), ("update_actor", 2.0), ("sync", 0.5)):
        story.phase(name, seconds)


# ---------------------------------------------------------------- whatever happens


@pytest.mark.parametrize("seeds", [range(begin, begin + 60) for begin in (0, 60, 120, 180)], ids=lambda seeds: f"from {seeds[0]}")
def test_busy_and_idle_add_up_to_the_wall_time_exactly(seeds: range) -> None:
    for seed in seeds:
        found = bubbles(any_run(seed).events)
        assert found.wall_ns > 0, seed
        for one in found.devices:
            assert sum(one.busy_ns.values()) + sum(one.idle_ns.values()) == found.wall_ns, seed
            assert one.spans[0].begin == 0
            assert one.spans[-1].end == found.wall_ns
            assert all(left.end == right.begin for left, right in zip(one.spans, one.spans[1:], strict=False)), seed
            assert all(sum(ns for _, ns in span.shares) == span.length for span in one.spans if span.shares), seed
        assert str(found).startswith("story · step")


def test_parts_of_a_run_add_up_to_the_whole() -> None:
    for seed in range(40):
        events = any_run(seed).events
        whole = bubbles(events)
        if not any(event.kind == "restored" for event in events):
            assert sum(bubbles(events, step, step).wall_ns for step in range(whole.first, whole.last + 1)) == whole.wall_ns


# ---------------------------------------------------------------- by hand


def test_one_after_the_other() -> None:
    story = Story(APART)
    a_usual_step(story)
    story.end()
    found = bubbles(story.events)
    assert found.seconds == 8.5
    assert told(found, "local:0") == ({"actor": 2.5, "reference": 1.0}, {"rollout": 4.0, "reward": 1.0})
    assert told(found, "local:1") == ({"rollout": 4.5}, {"update_actor": 2.0, "reward": 1.0, "reference": 1.0})
    assert told(found, "cpu:0") == ({"reward": 1.0}, {"rollout": 4.0, "update_actor": 2.0, "reference": 1.0, "sync": 0.5})
    assert found.worst == ("local:0", "rollout", 4.0)
    assert str(found).splitlines()[:3] == [
        "story · step 1 in 8.5 s · devices idle for 65% of it",  # 5 + 4 + 7.5 of 25.5
        "device   roles             busy  by role                     idle, waiting for",
        "local:0  actor, reference  41%   actor 29 %, reference 12 %  rollout 47 %, reward 12 %",
    ]


def test_pauses_evaluations_and_checkpoints_between_steps() -> None:
    story = Story(APART)
    a_usual_step(story)
    story.end()
    story.now += 0.25  # the driver alone
    story.rest(3.0)
    story.evaluate(2.0)
    story.now += 0.5
    story.tell(Checkpoint(1, "step-1", 1, 0.5))
    a_usual_step(story)
    story.end()
    found = bubbles(story.events)
    assert told(found, "local:0")[1] == {
        "rollout": 8.0,
        "paused": 3.0,
        "evaluation": 2.0,
        "reward": 2.0,
        "checkpoint": 0.5,
        "nothing": 0.25,
    }
    assert told(found, "local:1")[0] == {"rollout": 11.0}  # it answers the held-out prompts too
    assert bubbles(story.events, 2).seconds == 8.5 + 0.25 + 3.0 + 2.0 + 0.5


def test_waits_for_prompts_and_for_a_service() -> None:
    story = Story(APART)
    story.phase("rollout", 4.0)  # 1.5 s of it for prompts
    begin = story.now
    story.now += 0.25
    story.rest(5.0, "rewards: connection refused")
    story.now += 0.75
    story.phase("reward", 1.0, at=begin)  # its seconds are without the rest
    story.phase("update_actor", 2.0)
    story.end(data_wait_seconds=1.5)
    found = bubbles(story.events)
    assert found.seconds == 12.0
    assert told(found, "local:1") == ({"rollout": 2.5}, {"service": 5.0, "update_actor": 2.0, "data": 1.5, "reward": 1.0})
    assert told(found, "cpu:0") == ({"reward": 1.0}, {"service": 5.0, "rollout": 2.5, "update_actor": 2.0, "data": 1.5})


def test_a_step_sampled_ahead_hides_the_update() -> None:
    story = Story(APART)
    a_usual_step(story)
    story.end()
    # Step 1's reference began at 1005; the rollout of step 2 from there on, 3 s, and its reward, 0.5 s, which end at its sync.
    story.phase("rollout", 3.0, at=1005.0, step=2)
    story.phase("reward", 0.5, at=1008.0, step=2)
    story.phase("rollout", 0.0)  # waits for what is there
    story.phase("update_actor", 2.0)
    story.end()
    found = bubbles(story.events)
    assert found.seconds == 10.5
    assert told(found, "local:1")[0] == {"rollout": 4.0 + 3.5}  # the sync's last half second falls together with the reward's
    assert told(found, "local:1")[1] == {"update_actor": 2.0, "reward": 1.0}
    # From 1004 to 1005 reward, then reference, update and sync of step 1 and the update of step 2.
    assert told(found, "local:0") == ({"actor": 4.5, "reference": 1.0}, {"rollout": 4.0, "reward": 1.0})


def test_a_device_waits_for_what_ends_when_it_begins() -> None:
    story = Story({"actor": ["local:0"], "critic": ["local:1"], "rollout": ["local:2"], "reference": ["local:3"], "reward": ["cpu:0"]})
    story.phase("reference", 1.0, at=story.now)
    story.phase("values", 3.0)
    story.phase("update_actor", 1.0)
    story.end()
    found = bubbles(story.events)
    assert told(found, "local:0") == ({"actor": 1.0}, {"values": 3.0})  # the reference was done long before
    assert told(found, "local:3") == ({"reference": 1.0}, {"values": 2.0, "update_actor": 1.0})


SAME = {"actor": ["local:0"], "critic": ["local:1"], "rollout": ["local:1"], "reference": ["local:1"], "reward": ["cpu:0"]}


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({"critic": 0.6, "reference": 0.2}, {"critic": 3.5, "reference": 0.5}),  # of two seconds together, and two alone
        ({}, {"critic": 2.0, SHARED: 2.0}),
        ({"critic, reference": 0.9}, {"critic": 2.0, SHARED: 2.0}),  # one process: its use is not theirs
    ],
)
def test_two_roles_at_once_on_a_device(shares: dict[str, float], expected: dict[str, float]) -> None:
    story = Story(SAME)
    story.phase("reference", 2.0, at=story.now)
    story.tell(a_load(["local:1"], role_busy=[shares]), at=story.now + 1.0)
    story.phase("values", 4.0)
    story.end()
    found = bubbles(story.events)
    assert told(found, "local:1") == (expected, {})


def test_a_sample_of_another_time_says_nothing() -> None:
    story = Story(SAME)
    story.tell(a_load(["local:1"], role_busy=[{"critic": 1.0}]), at=story.now - 0.1)
    story.phase("reference", 2.0, at=story.now)
    story.phase("values", 2.0)
    story.tell(a_load(["local:1"], role_busy=[{"critic": 1.0}]), at=story.now + 0.6)
    story.end()
    assert told(bubbles(story.events), "local:1") == ({SHARED: 2.0}, {})


def test_a_restored_run_is_the_sum_of_its_processes() -> None:
    story = Story(APART)
    for _ in range(3):
        a_usual_step(story)
        story.end()
    story.restore(2, now=5.0, placement={**APART, "actor": ["local:2"]})
    a_usual_step(story)
    story.end()
    found = bubbles(story.events)
    assert found.seconds == 3 * 8.5  # the third step was made again
    assert told(found, "local:2") == ({"actor": 2.5}, {"no role here": 17.0, "rollout": 4.0, "reward": 1.0, "reference": 1.0})
    assert told(found, "local:0")[0] == {"actor": 5.0, "reference": 3.0}


def test_a_run_without_a_step_and_steps_that_are_not_there() -> None:
    story = Story(APART)
    with pytest.raises(StateError, match="no step has been made yet"):
        bubbles(story.events)
    story.phase("rollout", 1.0)
    story.end()
    with pytest.raises(ConfigError, match="there are steps 1 to 1"):
        bubbles(story.events, 1, 2)
    with pytest.raises(ConfigError, match="the number of a step"):
        bubbles(story.events, "1")  # type: ignore[arg-type]


def test_a_long_run_takes_no_time() -> None:
    import time

    story = Story(APART)
    for _ in range(1000):
        a_usual_step(story)
        story.end()
    begin = time.process_time()
    assert bubbles(story.events).wall_ns == 8_500_000_000_000
    assert time.process_time() - begin < 5
