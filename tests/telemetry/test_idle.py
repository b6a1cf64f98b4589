"""Idle time as it adds up, against ``bubbles`` of the whole run."""

import pytest

from tests.telemetry.runs import Story, any_run
from workbench.records import State
from workbench.telemetry.bubbles import bubbles
from workbench.telemetry.idle import IdleTime, seconds

APART = {"actor": ["local:0"], "rollout": ["local:1"]}


def followed(story: Story) -> IdleTime:
    found = IdleTime()
    for event in story.events:
        found.take(event)
    return found


def test_a_step_is_counted_when_the_next_one_has_ended() -> None:
    story = Story(APART)
    for _ in range(2):
        story.phase("rollout", 3.0)
        story.phase("update_actor", 1.0)
        story.end()
    found = followed(story)
    assert sorted(seconds(found.busy)) == [("local:0", "actor", 1.0), ("local:1", "rollout", 3.0)]
    assert sorted(seconds(found.idle)) == [("local:0", "rollout", 3.0), ("local:1", "update_actor", 1.0)]


@pytest.mark.parametrize("state", ["paused", "finished"])
def test_the_last_step_is_counted_when_the_run_rests(state: str) -> None:
    story = Story(APART)
    story.phase("rollout", 3.0)
    story.phase("update_actor", 1.0)
    story.end()
    assert not followed(story).busy
    story.tell(State(state))
    assert sorted(seconds(followed(story).busy)) == [("local:0", "actor", 1.0), ("local:1", "rollout", 3.0)]


def test_what_is_sampled_beside_a_step_and_ends_after_it_counts_as_work() -> None:
    """The rollout of step 2 takes from 3 to 6; step 1 ends at 5."""
    story = Story(APART)
    story.phase("rollout", 3.0)
    began = story.now
    story.phase("update_actor", 2.0)
    story.end()
    story.phase("rollout", 3.0, at=began, step=2)
    story.now = began + 3.0
    story.phase("update_actor", 2.0)
    story.end()
    found = followed(story)  # of step 1, which took from 0 to 5
    assert sorted(seconds(found.busy)) == [("local:0", "actor", 2.0), ("local:1", "rollout", 5.0)]
    assert sorted(seconds(found.idle)) == [("local:0", "rollout", 3.0)]


def test_a_step_that_was_under_way_when_the_run_went_back_is_lost() -> None:
    story = Story(APART)
    story.phase("rollout", 3.0)
    story.end()
    story.restore(0, 50.0)
    story.phase("rollout", 2.0)
    story.end()
    story.tell(State("finished"))
    assert seconds(followed(story).busy) == [("local:1", "rollout", 2.0)]


def test_any_run_adds_up_to_its_bubbles() -> None:
    """Of runs as they come, those that never went back: there is one process."""
    stories = [story for story in map(any_run, range(60)) if "restored" not in {event.kind for event in story.events}]
    assert len(stories) > 20
    for story in stories:
        story.tell(State("finished"))
        whole, found = bubbles(story.events), followed(story)
        for one in whole.devices:
            busy, idle = (sum(ns for (device, _), ns in times.items() if device == one.device) for times in (found.busy, found.idle))
            assert busy + idle == whole.wall_ns
            # These stories sample up to two seconds ahead, over several short steps; a run does so over one, and then nothing is late.
            assert 0.8 * sum(one.busy_ns.values()) <= busy <= sum(one.busy_ns.values())
