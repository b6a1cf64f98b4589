"""Findings on load: when each is seen, with which numbers, when it is over; and that healthy runs are silent."""

from dataclasses import replace

import pytest

from tests.telemetry import streams
from tests.telemetry.loads import APART, GPUS, HEALTHY, a_step_of, healthy, said, written
from tests.telemetry.runs import Story, a_load
from workbench.findings import LOAD_CODES
from workbench.records import Knob, Queue, Seen, Step
from workbench.telemetry import Limits, LoadLookout
from workbench.telemetry.load_lookout import LoadWatcher
from workbench.telemetry.load_signs import LOAD_RULES
from workbench.telemetry.step_load import StepLoad, step_load


def seen(**columns: str) -> list[Seen]:
    """All that is said of these columns."""
    return said(written(columns))


def brief(found: list[Seen]) -> list[tuple[str, int, int, bool]]:
    return [(one.code, one.step, one.since, one.ended) for one in found]


# ---------------------------------------------------------------- noise


@pytest.mark.parametrize("seeds", [range(begin, begin + 25) for begin in (0, 25, 50, 75)], ids=lambda seeds: f"from {seeds[0]}")
def test_healthy_loads_are_silent(seeds: range) -> None:
    assert {seed: brief(found) for seed in seeds if (found := said(healthy(seed)))} == {}


def test_runs_without_any_sample_are_silent() -> None:
    for seed in range(100):
        watcher = LoadWatcher()
        assert [one for record in streams.healthy(seed) if isinstance(record, Step) for one in watcher.look(StepLoad(record))] == []


def test_every_rule_has_its_code_and_every_code_its_rule() -> None:
    assert [code for code in LOAD_CODES if any(code in (rule.__doc__ or "") for rule in LOAD_RULES)] == list(LOAD_CODES)
    assert len(LOAD_RULES) == len(LOAD_CODES)


# ---------------------------------------------------------------- a step's load


def test_what_a_step_makes_of_its_samples() -> None:
    story = Story(dict(APART))
    begin = story.now
    for at, busy in ((0.5, 0.2), (1.0, 0.4), (2.5, 0.9), (9.0, 0.0)):  # two in the rollout, one in the update, one after it
        columns = {
            "memory_gib": [70.0 + at],
            "total_gib": [140.0],
            "pcie_rx_gb_s": [at],
            "pcie_tx_gb_s": [1.0],
            "throttled": ["heat" if at > 2 else ""],
        }
        story.tell(a_load(["local:2"], busy=[busy], sm=[None if at < 1 else busy / 2], **columns), begin + at)
    story.phase("rollout", 2.0)
    story.phase("update_actor", 3.0)
    record = streams.a_step(1)
    (one,) = step_load(record, story.events, APART).devices
    assert (one.device, one.busy, one.use) == (
        "local:2",
        pytest.approx(0.3),
        pytest.approx(0.2),
    )  # busy 0.2 where SMs aren't told, and 0.4 / 2
    assert (one.full, one.pcie_gb_s, one.nvlink_gb_s) == (79 / 140, 1.75, None)
    assert one.slowed == {"heat": 0.5}
    assert one.by_phase == {"rollout": pytest.approx(0.3), "update_actor": 0.9}


# ---------------------------------------------------------------- each sign


def test_steps_that_wait_for_their_prompts() -> None:
    found = seen(wait="0 for 10, 0.25 for 10, 0 for 10")
    assert brief(found) == [("WB731", 15, 11, False), ("WB731", 25, 11, True)]
    assert "25 % of a step's time goes by until its prompts are there" in found[0].found
    assert "offload_strategy: cpu_prefetch" in found[0].fix
    assert seen(wait="0.19 for 20") == []
    assert seen(wait="0 for 3, 0.5 for 4, 0 for 5, 0.5 for 4") == []


def test_use_and_pcie_fall_together() -> None:
    (one,) = seen(busy="0.9 for 15, 0.5 for 5", pcie="3 for 15, 1 for 5")
    assert brief([one]) == [("WB731", 20, 16, False)]
    assert "local:0: use fell from 90% to 50%, and PCIe with it, from 3 to 1 GB/s" in one.found
    assert seen(busy="0.9 for 15, 0.5 for 5") == []  # less use alone may be another batch
    assert seen(busy="0.9 for 15, 0.7 for 5", pcie="3 for 15, 1 for 5") == []  # by a fifth
    assert seen(busy="0.15 for 15, 0.08 for 5", off="0.1 for 20", pcie="3 for 15, 1 for 5") == []  # of little
    assert seen(busy="0.9 for 5, 0.5 for 9", pcie="3 for 5, 1 for 9") == []  # within what is compared with


@pytest.mark.parametrize(("link", "name", "rates"), [("pcie", "PCIe", "3 to 8 GB/s"), ("nvlink", "NVLink", "20 to 50 GB/s")])
def test_use_falls_while_traffic_rises(link: str, name: str, rates: str) -> None:
    level = HEALTHY[link]
    (one,) = seen(busy="0.9 for 15, 0.5 for 5", **{link: f"{level} for 15, {8 if link == 'pcie' else 50} for 5"})
    assert brief([one]) == [("WB732", 20, 16, False)]
    assert f"local:0: use fell from 90% to 50% while {name} traffic rose from {rates}" in one.found
    assert seen(busy="0.9 for 15, 0.5 for 5", **{link: f"{level} for 15, {1.4 * level} for 5"}) == []


def test_small_rates_are_no_traffic() -> None:
    assert seen(busy="0.9 for 15, 0.5 for 5", pcie="0.1 for 15, 1 for 5") == []


def test_after_a_knob_or_a_restore_nothing_is_compared_with_before() -> None:
    for event in ("knob", "restored"):
        story = written({"busy": "0.9 for 15"})
        if event == "knob":
            story.tell(Knob(16, "max_tokens", 64, 128))
        else:
            story.restore(15, now=1.0)
        for _ in range(20):
            a_step_of(story, {**HEALTHY, "busy": 0.5, "pcie": 1.0})
        assert said(story) == []


def test_memory_is_full_and_the_gpu_has_little_to_do() -> None:
    found = seen(full="0.92 for 20", busy="0.9 for 3, 0.2 for 9, 0.9 for 8")
    assert brief(found) == [("WB733", 8, 4, False), ("WB733", 17, 4, True)]
    assert "local:0: 92 % of its memory is taken, and while its roles work kernels run 20 % of the time" in found[0].found
    assert seen(full="0.88 for 20", busy="0.2 for 20") == []
    assert seen(full="0.92 for 20", busy="0.35 for 20") == []


def test_one_rank_is_late() -> None:
    found = seen(late="1 for 5, 1.5 for 7, 1 for 8")
    assert brief(found) == [("WB734", 10, 6, False), ("WB734", 17, 6, True)]
    assert "rank 1 (local:1) takes 1.50 s for its part of update_actor, the others 1.00 s" in found[0].found
    assert seen(late="1.2 for 20") == []
    (early,) = seen(late="0.5 for 20")  # then the other one is late
    assert "rank 0 (local:0) takes 1.00 s for its part of update_actor, the others 0.50 s" in early.found
    assert seen(late=", ".join(["1.5 for 1, 0.5 for 1"] * 10)) == []  # in turns: another batch each time


def test_memory_has_hardly_room() -> None:
    found = seen(full="0.9 for 3, 0.98 for 4, 0.9 for 8")
    assert brief(found) == [("WB735", 6, 4, False), ("WB735", 12, 4, True)]
    assert "local:0: 98.0 % of its memory is in use" in found[0].found
    assert seen(full="0.96 for 20") == []


def test_a_slots_memory_is_not_its_machines() -> None:
    story = Story({"actor": ["cpu:0"]})
    for _ in range(10):
        story.tell(a_load(["cpu:0"], busy=[0.1], memory_gib=[9.9], total_gib=[10.0]), story.now + 0.5)
        story.phase("update_actor", 1.0)
        story.end()
    assert said(story) == []


def test_heat_slows_a_gpu_and_a_power_cap_is_no_fault() -> None:
    (one,) = seen(heat="0 for 5, 0.75 for 4")  # the samples say "power cap" all the time
    assert brief([one]) == [("WB736", 8, 6, False)]
    assert "local:0: heat slows its clocks in 75 % of the samples" in one.found
    assert seen(heat="0.25 for 20") == []


def test_rollout_and_update_in_turns() -> None:
    found = seen(busy="0.95 for 12", off="0.3 for 2, 0.05 for 10")
    assert brief(found) == [("WB737", 7, 3, False)]
    assert "the rollout takes 50% of a step and the update 50%, on GPUs of their own" in found[0].found
    assert found[0].fix.startswith("Run(overlap=1) samples the next step meanwhile; or give")
    assert seen(busy="0.75 for 12", off="0.05 for 12") == []
    together = written({"busy": "0.95 for 12", "off": "0.05 for 12"}, {**APART, "rollout": GPUS})
    assert said(together) == []  # all GPUs work in every phase, whatever the samples say of it


def test_uneven_turns_say_who_needs_more() -> None:
    story = Story(dict(APART))
    for _ in range(6):
        a_step_of(story, {**HEALTHY, "busy": 0.95, "off": 0.05}, phase_seconds={"rollout": 6.0, "update_actor": 2.0})
    (one,) = said(story)
    assert "the rollout takes 75% of a step and the update 25%" in one.found
    assert "then rollout needs 3.0 times the GPUs that it has now" in one.fix
    story = Story(dict(APART))
    for _ in range(6):
        a_step_of(story, {**HEALTHY, "busy": 0.95, "off": 0.05}, phase_seconds={"rollout": 7.0, "update_actor": 1.0})
    assert said(story) == []  # a short update is no matter


def test_what_the_engine_does_with_its_requests() -> None:
    (again,) = seen(preempted="0 for 5, 12 for 5")
    assert brief([again]) == [("WB738", 8, 4, False)]  # in three of five
    assert "7 of 512 requests a step lost their place in the KV cache" in again.found
    (long,) = seen(waiting="20 for 5, 500 for 5")
    assert "500 requests wait while 200 are decoded" in long.found
    (short,) = seen(running="200 for 5, 40 for 5")
    assert "of 512 completions 40 are decoded at a time" in short.found
    assert seen(waiting="390 for 10") == []
    assert seen(running="80 for 10") == []
    assert seen(preempted=", ".join(["3 for 1, 0 for 2"] * 6)) == []


# ---------------------------------------------------------------- the stream


def test_who_comes_later_sees_the_same() -> None:
    story = written({"heat": "0 for 5, 1 for 10"})
    assert LoadLookout().news(story.events) == []  # of the last step alone
    lookout, news = LoadLookout(), list[Seen]()
    for end in range(len(story.events) + 1):  # after every event
        news += lookout.news(story.events[:end])
    assert news == said(story) != []


def test_it_remembers_a_few_steps_only() -> None:
    lookout, story = LoadLookout(Limits(load_steps=4)), written({"busy": "0.9 for 60"})
    lookout.news(story.events)
    assert len(lookout._watcher._steps) == 4
    assert len(lookout._watcher._begin) == 10
    assert lookout._since == []


def test_a_sample_without_numbers_and_ranks_of_another_number_are_passed_over() -> None:
    story = Story(dict(APART))
    for _ in range(12):
        story.tell(a_load(GPUS), story.now + 0.5)
        story.phase("update_actor", 1.0)
        story.end(seconds=0.0)
    assert said(story) == []
    watcher = LoadWatcher()
    steps = [StepLoad(streams.a_step(number), ranks={"values": (1.0,) * number, "sync": ()}) for number in range(1, 10)]
    assert [one for step in steps for one in watcher.look(replace(step, queue=Queue(step.step, 0.0, 0.0, 0)))] == []
