"""``run.profile`` as text and as HTML, from events alone."""

import pytest

from workbench.errors import StateError
from workbench.events import EventLog
from workbench.records import LinkTraffic, PhaseProfile, Profiled, Traffic
from workbench.views.profile import profile

PAIRS = [["local:0", "local:2"], ["local:1", "local:3"]]
DEVICES = ["local:0", "local:1", "local:2", "local:3"]


def told(*steps: int) -> EventLog:
    log = EventLog()
    for step in steps:
        log.emit(Profiled(step, f"profile/step-{step:06d}", "all.json", 4))
        log.emit(PhaseProfile(step, DEVICES, [2.0, 2.5, 2.0, 2.25], [0.2, 0.05, 0.1, 0.1]), role="actor", phase="update_actor")
        sums = Traffic(step, "all_reduce", "actor.gradients", PAIRS, DEVICES, [3] * 4, [2048 * step] * 4, [0.2, 0.05, 0.1, 0.1], "kernel")
        log.emit(sums, role="actor", phase="update_actor")
        engine = Traffic(step, "all_reduce", "(engine, past torch)", [], DEVICES, [4, 5, 4, 4], [None] * 4, [0.01] * 4, "kernel")
        log.emit(engine, role="rollout", phase="rollout")
        log.emit(LinkTraffic(step, "local:0", "local:2", 10**9, 5 * 10**8, "NV18: NVLink", 450.0))
        log.emit(LinkTraffic(step, "local:1", "local:3", 512, 0, "not known", None))
    return log


def test_the_last_step_is_shown_as_text():
    text = repr(profile(told(3, 4).events, "mine"))
    assert text.startswith("mine · communication in step 4 (profiled: 3, 4; run.profile.steps has all)\n\nPhases\n")
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert "actor update_actor 4 2.00 s to 2.50 s 50 ms to 0.20 s" in rows
    assert "actor update_actor actor.gradients all_reduce 2 x 2 3 8.0 KiB 50 ms to 0.20 s NCCL's kernel" in rows
    assert "rollout rollout (engine, past torch) all_reduce — 4 to 5 n/a 10 ms NCCL's kernel" in rows
    assert "local:0 local:2 NV18: NVLink 954 MiB 477 MiB 2.2 ms at 450 GB/s" in rows
    assert "local:1 local:3 not known 512 B 0 B n/a" in rows
    assert "a ring of the group's ranks" in text
    assert "profile/step-000004/all.json" in text


def test_every_step_is_there():
    steps = profile(told(3, 4).events).steps
    assert [(step.told.step, step.traffic[0].record.bytes[0]) for step in steps] == [(3, 6144), (4, 8192)]


def test_as_html_it_has_the_same_cells_and_no_styles_of_its_own():
    log = told(3)
    log.emit(Traffic(3, "send", "<b>", [], ["local:0"], [1], [1], [0.0], "host"), role="actor", phase="sync")
    html = profile(log.events, "<mine>")._repr_html_()
    assert html.count("<table") == 3
    assert "&lt;mine&gt; · communication in step 3" in html
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "<style" not in html
    assert ">actor.gradients</td>" in html


@pytest.mark.parametrize(("processes", "words"), [(1, "One process: it has nobody to exchange anything with"), (2, "run.routes")])
def test_a_step_without_collectives_says_why(processes, words):
    log = EventLog()
    log.emit(Profiled(1, "profile/step-000001", "all.json", processes))
    log.emit(PhaseProfile(1, ["cpu:0"], [0.5], [0.0]), role="actor", phase="update_actor")
    text = repr(profile(log.events))
    assert words in text
    assert "Collectives" not in text
    assert "0.50 s" in text


def test_without_a_profiled_step_there_is_nothing_to_show():
    with pytest.raises(StateError, match="no step has been profiled"):
        profile([])
