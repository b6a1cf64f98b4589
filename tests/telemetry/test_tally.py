"""What Prometheus is told: every series by hand from a run that says everything, and what is told no longer."""

import time

import pytest

from tests.telemetry.runs import Story, a_load
from tests.telemetry.scrapes import everything, of
from workbench.records import HeldOut, Load, Seen, State
from workbench.telemetry import series
from workbench.telemetry.series import Times, place
from workbench.telemetry.tally import FRESH_SECONDS, REST_SECONDS, Tally

GPU = "node=node1 gpu=0"


def starting(said: dict[str, float], *names: str) -> dict[str, float]:
    return {key: value for key, value in said.items() if key.split(" ")[0] in names}


def test_a_gpu_in_base_units() -> None:
    said = of(everything())
    assert starting(said, *(one.name for one in series.DEVICE)) == {
        f"workbench_device_busy_ratio {GPU}": 0.9,
        f"workbench_device_sm_busy_ratio {GPU}": 0.5,
        f"workbench_device_memory_used_bytes {GPU}": 70 * 2**30,
        f"workbench_device_memory_size_bytes {GPU}": 140 * 2**30,
        f"workbench_device_power_watts {GPU}": 612,
        f"workbench_device_temperature_celsius {GPU}": 64,
        f"workbench_device_sm_clock_hertz {GPU}": 1_980_000_000,
        f"workbench_device_memory_clock_hertz {GPU}": 3_201_000_000,
        f"workbench_device_pcie_receive_bytes_per_second {GPU}": 1_500_000_000,
        f"workbench_device_pcie_transmit_bytes_per_second {GPU}": 2_500_000_000,
        f"workbench_device_nvlink_receive_bytes_per_second {GPU}": 20_000_000_000,
        f"workbench_device_nvlink_transmit_bytes_per_second {GPU}": 30_000_000_000,
        "workbench_device_busy_ratio node=local gpu=cpu:0": 0.25,  # of the CPU slot nothing else is known: absent, not 0
        "workbench_device_memory_used_bytes node=local gpu=cpu:0": 2 * 2**30,
    }


def test_whose_a_gpu_is() -> None:
    said = of(everything())
    assert starting(said, "workbench_role_busy_ratio", "workbench_role_memory_used_bytes", "workbench_device_throttled") == {
        f"workbench_role_busy_ratio {GPU} role=actor, rollout": 0.8,
        f"workbench_role_memory_used_bytes {GPU} role=actor, rollout": 60 * 2**30,
        f"workbench_role_memory_used_bytes {GPU} role=others": 10 * 2**30,
        f"workbench_device_throttled {GPU} reason=heat": 1,
        f"workbench_device_throttled {GPU} reason=power cap": 1,
    }
    assert starting(said, "workbench_role_placed").keys() == {
        f"workbench_role_placed {GPU} role=actor",
        f"workbench_role_placed {GPU} role=rollout",
        "workbench_role_placed node=local gpu=cpu:0 role=reward",
    }


def test_sums_of_two_steps() -> None:
    said = of(everything())
    assert starting(said, "workbench_steps_total", "workbench_tokens_total", "workbench_syncs_total", "workbench_sync_bytes_total") == {
        "workbench_steps_total": 2,
        "workbench_tokens_total kind=prompt": 200,
        "workbench_tokens_total kind=completion": 400,
        "workbench_tokens_total kind=trained": 600,
        "workbench_syncs_total mode=merged": 3,
        "workbench_sync_bytes_total": 3000,
    }
    assert starting(said, "workbench_sync_seconds_total", "workbench_sync_proof_seconds_total", "workbench_engine_preemptions_total") == {
        "workbench_sync_seconds_total": 0.75,
        "workbench_sync_proof_seconds_total": 1.5,
        "workbench_engine_preemptions_total": 4,
    }
    assert (said["workbench_step_seconds_sum"], said["workbench_phase_seconds_sum phase=rollout"]) == (16, 8)
    assert said["workbench_phase_seconds_bucket phase=rollout le=3.0"] == 0
    assert said["workbench_phase_seconds_bucket phase=rollout le=10.0"] == 2
    assert said["workbench_phase_seconds_count phase=update_actor"] == 2


def test_the_last_step_and_what_is_said_beside_it() -> None:
    said = of(everything())
    expected = {
        "workbench_step": 2,
        "workbench_steps_wanted": 50,
        "workbench_kl_nats": 0.02,
        "workbench_kl_weight": 0.1,
        "workbench_explained_variance": 0.3,
        "workbench_reward_number name=length": 7,
        "workbench_held_out_step": 0,
        "workbench_held_out_reward_mean": 0.25,
        "workbench_engine_requests_waiting": 3,
        "workbench_rank_seconds role=actor phase=update_actor rank=1": 3,
        f"workbench_device_memory_peak_bytes {GPU}": 100 * 2**30,
        "workbench_finding_active code=WB702 severity=warning title=entropy collapses": 1,
        "workbench_run_state state=running": 1,
        "workbench_last_step_timestamp_seconds": 1016,
        "workbench_last_checkpoint_timestamp_seconds": 1016,
        "workbench_run_info name=story model=m algorithm= task= reward= mode= seed=0": 1,
    }
    assert {name: said[name] for name in expected} == expected


def test_what_a_step_does_not_have_is_absent() -> None:
    story = Story({"actor": ["local:0"]})
    assert of(story).keys() == {
        "workbench_run_info name=story model=m algorithm= task= reward= mode= seed=0",
        "workbench_role_placed node=local gpu=0 role=actor",
    }
    story.end()
    names = {name.split(" ")[0] for name in of(story)}
    assert not names & {"workbench_value_loss", "workbench_kl_weight", "workbench_reward_number", "workbench_syncs_total"}
    assert "workbench_kl_nats" in names


@pytest.mark.parametrize(("seconds", "lasts"), [(0.5, FRESH_SECONDS), (10.0, 25.0)])
def test_a_sample_of_the_load_is_told_for_a_few_seconds(seconds: float, lasts: float) -> None:
    story = Story({"actor": ["local:0"]})
    story.tell(a_load(["local:0"], seconds, busy=[0.5], role_busy=[{"actor": 0.5}], throttled=["heat"]))
    names = {"workbench_device_busy_ratio", "workbench_role_busy_ratio", "workbench_device_throttled"}
    assert {name.split(" ")[0] for name in of(story, after=lasts)} > names
    assert not {name.split(" ")[0] for name in of(story, after=lasts + 0.1)} & names


@pytest.mark.parametrize(("state", "told"), [("running", True), ("paused", False), ("finished", False), ("failed", False)])
def test_the_last_step_is_told_until_the_run_has_rested_for_a_minute(state: str, told: bool) -> None:
    story = everything()
    story.tell(State(state))
    names = {"workbench_step", "workbench_kl_nats", "workbench_held_out_reward_mean", "workbench_finding_active", "workbench_rank_seconds"}
    assert {name.split(" ")[0] for name in of(story, after=REST_SECONDS)} > names
    later = {name.split(" ")[0] for name in of(story, after=REST_SECONDS + 1)}
    assert (names & later == names) is told
    assert bool(names & later) is told
    assert {"workbench_steps_total", "workbench_run_state", "workbench_run_info"} < later


def test_a_finding_that_ended_is_not_told() -> None:
    story = everything()
    story.tell(Seen("WB702", "entropy collapses", "warning", 3, 1, "it fell", "turn", ended=True))
    assert not starting(of(story), "workbench_finding_active")


def test_a_run_that_goes_back_in_its_process() -> None:
    """Sums are of work that was done, and stay; what was said of a step that was left behind is gone."""
    story = everything()
    story.restore(1, story.now, {"actor": ["node1:1"]})
    said = of(story)
    assert not starting(said, "workbench_step", "workbench_held_out_step", "workbench_finding_active", "workbench_device_busy_ratio")
    assert said["workbench_steps_total"] == 2
    assert starting(said, "workbench_role_placed").keys() == {"workbench_role_placed node=node1 gpu=1 role=actor"}
    story.end()
    assert of(story)["workbench_steps_total"] == 3


def test_what_another_process_did_adds_to_no_sum_and_is_no_load() -> None:
    story = everything()
    story.tell(Seen("WB701", "KL blows up", "error", 2, 2, "it rose", "turn"))
    story.restore(2, story.now)
    names = {name.split(" ")[0] for name in of(story, first=len(story.events))}
    assert names == {"workbench_run_info", "workbench_run_state", "workbench_role_placed", "workbench_finding_active"}


def test_a_node_of_many_gpus_costs_the_writer_little() -> None:
    """A minute's step of 16 GPUs at 4 Hz, settled when the next one ends."""
    gpus = [f"node{number // 8}:{number % 8}" for number in range(16)]
    story, tally = Story({"actor": gpus, "rollout": gpus}), Tally("a-run")
    for _ in range(4):
        for phase in ("rollout", "update_actor"):
            for _ in range(120):
                story.tell(a_load(gpus, 0.25, busy=[0.5] * 16, role_busy=[{"actor": 0.5, "rollout": 0.4}] * 16))
            story.phase(phase, 30.0)
        story.end(phase_seconds={"rollout": 30.0, "update_actor": 30.0})
    began = time.thread_time()
    for event in story.events:
        tally.take(event)
    assert (time.thread_time() - began) / 4 < 0.1  # seconds a step; measured: 0.01, and 0.04 under pytest


def test_places() -> None:
    assert place("local:3", "local") == {"node": "local", "gpu": "3"}
    assert place("node1:0", "local") == {"node": "node1", "gpu": "0"}
    assert place("cpu:2", "node1") == {"node": "node1", "gpu": "cpu:2"}
    assert place("driver:0", "local") == {"node": "local", "gpu": "driver:0"}


def test_times_in_buckets() -> None:
    times = Times()
    for seconds in (0.01, 0.5, 2000.0):
        times.add(seconds)
    found = dict(times.buckets)
    assert (found["0.01"], found["0.3"], found["1.0"], found["1000.0"], found["+Inf"]) == (1, 1, 2, 2, 3)
    assert (times.count, times.sum) == (3, 2000.51)


def test_each_name_follows_the_conventions_and_each_field_exists() -> None:
    every = [one for value in vars(series).values() for one in (value if isinstance(value, tuple) else (value,))]
    names = [one.name for one in every if isinstance(one, series.Series)]
    assert len(set(names)) == len(names) > 60
    assert all(name.startswith("workbench_") for name in names)
    units = ("gib", "mib", "gb", "ms", "mhz", "percent", "fraction", "milliseconds", "kilobytes")
    assert not [name for name in names if name.endswith("_total_total") or name.split("_")[-1] in units]
    assert {one.field for one in series.DEVICE} <= set(Load.__dataclass_fields__)
    assert {one.field for one in series.HELD_OUT} <= set(HeldOut.__dataclass_fields__)
