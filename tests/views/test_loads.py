"""The load of devices over the last minutes, with numbers that can be added in the head."""

import pytest

from workbench.records import PhaseBegan, Restored
from workbench.views.loads import LEAST, POINTS, WIDTH, Loads, Use

from . import made

APART = {"actor": ["local:0"], "rollout": ["local:1"]}
TOGETHER = {"actor": ["local:0"], "rollout": ["local:0"]}


def filled(until: float, busy: float = 0.5, devices: tuple[str, ...] = ("local:0",), start: float = 0.0) -> Loads:
    loads = Loads()
    for at in range(int(2 * start), int(2 * until)):
        for device in devices:
            loads.feed(made.load(device, at / 2, busy))
    return loads


def sampled(*events: made.Event) -> Loads:
    loads = Loads()
    for event in events:
        loads.feed(event)
    return loads


def test_a_sample_is_read_as_it_was_written() -> None:
    loads = sampled(made.load("local:0", 3.0, 0.25, 20.0, 80.0, role_memory_gib={"actor": 12.0}))
    assert loads.latest == {"local:0": Use("local:0", 0.25, 20.0, 80.0, {"actor": 12.0})}
    assert loads.full("local:0")[-1] == 0.25
    assert not loads.feed(made.begun(APART).events[0])


def test_what_is_not_known_stays_unknown() -> None:
    loads = sampled(made.load("local:0", 3.0, None, None, None, why="n/a: MIG"))
    assert loads.latest["local:0"] == Use("local:0", why="n/a: MIG")
    assert loads.busy("local:0") == loads.full("local:0") == [None] * LEAST


def test_what_else_is_known_is_said_in_words() -> None:
    rates = {"pcie_rx_gb_s": 3.14, "pcie_tx_gb_s": 0.2, "nvlink_rx_gb_s": 120.0}  # of NVLink only one direction
    loads = sampled(made.load("local:0", 3.0, 0.5, watts=612.4, celsius=71.0, throttled="heat", **rates), made.load("local:1", 3.0, 0.5))
    assert loads.latest["local:0"].facts == "PCIe 3.1 in, 0.2 out GB/s, 612 W, 71 °C, slowed by heat"
    assert loads.latest["local:1"].facts == ""


def test_samples_of_one_stretch_are_averaged() -> None:
    loads = Loads()
    for at, busy in ((0.0, 0.2), (0.5, 0.4), (1.0, None), (1.5, 1.0)):
        loads.feed(made.load("local:0", at, busy, 20.0 + at, 80.0))
    assert loads.busy("local:0")[-2:] == pytest.approx([0.3, 1.0])
    assert loads.full("local:0")[-2:] == [21 / 80, 21.5 / 80]
    assert loads.busy("local:0")[0] is None
    assert loads.latest["local:0"].busy == 1.0


def test_a_pause_of_the_sampler_is_a_gap() -> None:
    loads = filled(1.5)
    loads.feed(made.load("local:0", 6.0, 0.5))
    assert loads.busy("local:0")[-5:] == [0.5, None, None, None, 0.5]


def test_its_memory_does_not_grow() -> None:
    loads = filled(2 * POINTS * WIDTH)
    assert len(loads.busy("local:0")) == POINTS
    assert all(len(past) <= POINTS for past in loads._past.values())


def test_a_role_has_the_use_of_its_devices_while_its_phases_run() -> None:
    loads = filled(6.0, 0.8, ("local:0", "local:1"))
    log = made.begun(APART)
    made.phase(log, "rollout", 1, 0.0, 2.25)  # a whole stretch, and half of the next
    for event in log.events:
        loads.feed(event)
    assert loads.of_role("rollout", APART)[-4:] == pytest.approx([0.8, 0.4, 0, 0])
    assert loads.of_role("actor", APART)[-4:] == [0, 0, 0, 0]


def test_work_of_two_roles_at_the_same_time_is_nobodys() -> None:
    loads = filled(3.0, 1.0)
    log = made.begun(TOGETHER)
    made.phase(log, "rollout", 1, 0.0, 1.5)
    made.phase(log, "update_actor", 1, 0.75, 2.25)
    for event in log.events:
        loads.feed(event)
    assert loads.of_role("rollout", TOGETHER)[-2:] == [0.5, 0]
    assert loads.of_role("actor", TOGETHER)[-2:] == [0, 1]


def test_a_phase_that_still_runs_counts_until_now() -> None:
    loads = filled(4.0, 0.6, ("local:0", "local:1"))
    log = made.begun(APART)
    log.emit(PhaseBegan(1, 1.5), phase="rollout")
    for event in log.events:
        loads.feed(event)
    assert loads.of_role("rollout", APART)[-3:] == pytest.approx([0, 0.6, 0.6])  # the last stretch is not over, and full so far


def test_what_is_shown_grows_to_three_minutes() -> None:
    assert len(filled(3.0).busy("local:0")) == LEAST
    assert len(filled(40 * WIDTH).busy("local:0")) == 40
    assert len(filled(2 * POINTS * WIDTH).busy("local:0")) == POINTS


def test_other_devices_do_not_disturb() -> None:
    loads = filled(3.0, 1.0, ("local:0", "local:1"))
    log = made.begun(APART)
    made.phase(log, "rollout", 1, 0.0, 3.0)
    made.phase(log, "update_actor", 1, 0.0, 3.0)
    for event in log.events:
        loads.feed(event)
    assert loads.of_role("rollout", APART)[-2:] == [1, 1]


def test_a_restore_begins_anew() -> None:
    loads = filled(60.0)
    log = made.begun(APART)
    log.emit(Restored(0, "", {}))
    loads.feed(log.events[-1])
    loads.feed(made.load("local:0", 2.0, 0.1))  # a clock of its own, which begins earlier
    assert loads.busy("local:0")[-2:] == [None, 0.1]


def test_a_role_without_devices_that_were_sampled_has_nothing() -> None:
    assert filled(3.0).of_role("reward", {"reward": ["cpu:0"]}) == [None] * LEAST
    assert filled(3.0).of_role("reward", {}) == []
