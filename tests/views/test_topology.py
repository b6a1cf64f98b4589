"""The view of the machine without a browser: what it sends, and its static twin."""

import json
from typing import Any

import pytest

import workbench as wb
from workbench.records import Restored, State
from workbench.views.topology import TopologyView, watch_topology

from . import made
from .pages import logic


def test_before_the_run_begins_there_is_nothing_to_draw() -> None:
    view = TopologyView(made.EventLog())
    assert (view.picture, view.roles, view.state) == ({}, [], "new")
    assert set(view.twin()) == {"text/plain", "text/html"}


def test_the_machine_is_sent_once_and_numbers_after_that() -> None:
    log = made.begun(made.SMALL)
    made.began(log, "rollout", 1)
    view = TopologyView(log, wb.Topology.preset("l40s-4"), "replayed")
    changed: list[str] = []
    view.observe(lambda change: changed.append(change["name"]), ["picture", "roles", "now"])
    view.take(made.load("local:0", 1.0, 0.501, 24.04, 48.0, role_memory_gib={"actor": 12.04}))
    view.update()
    assert changed == ["now"]
    assert view.now["badge"] == "replayed"
    assert view.now["uses"] == {"local:0": {"busy": 0.5, "gib": 24.0, "of": 48.0, "roles": {"actor": 12.0}, "why": "", "facts": ""}}
    assert view.now["at_work"] == ["rollout"]
    assert [role["role"] for role in view.roles] == ["actor", "rollout", "reference", "reward"]


def test_sixteen_gpus_are_two_kilobytes_a_time() -> None:
    topology, placement = made.large()
    view = TopologyView(made.begun(placement), topology)
    for device in topology.ids:
        view.take(made.load(device, 1.0, 0.934, 61.2345, 80.0, role_memory_gib={"actor": 14.0, "critic": 9.0}))
    view.update()
    assert len(json.dumps(view.now)) < 2500
    assert len(json.dumps(view.picture)) < 40_000


def test_a_restore_that_moves_the_roles_is_drawn_anew() -> None:
    log = made.begun(made.SMALL)
    view = TopologyView(log, wb.Topology.preset("l40s-4"))
    before = view.picture["places"]
    log.emit(Restored(0, "", {}, {"actor": ["local:3"], "rollout": ["local:3"]}))
    view.update()
    assert len(before) == 6
    assert [place["role"] for place in view.picture["places"]] == ["actor", "rollout"]


def test_its_static_twin_is_a_drawing_and_a_table() -> None:
    log = made.begun(made.SMALL)
    view = TopologyView(log, wb.Topology.preset("l40s-4"))
    view.take(made.load("local:2", 1.0, 0.97, 40.0, 45.0))
    log.emit(State("paused"))
    twin = view.twin()
    assert set(twin) == {"text/plain", "text/html", "image/png"}
    lines = [line.split() for line in twin["text/plain"].splitlines()]
    assert lines[0] == ["a", "run", "·", "paused", "·", "step", "0", "of", "50"]
    assert lines[2:] == [
        ["local:0", "—", "—", "actor,", "reference"],
        ["local:1", "—", "—", "actor,", "reference"],
        ["local:2", "97%", "40.0", "of", "45", "GiB", "rollout"],
        ["local:3", "—", "—", "rollout"],
        ["cpu:0", "—", "—", "reward"],
    ]
    assert ">97%</text>" in twin["text/html"]


def test_asked_again_it_is_the_same_view() -> None:
    log = made.begun(made.SMALL)
    assert watch_topology(log) is watch_topology(log)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[0, 0.934, 1, null].map(percent)", ["0%", "93%", "100%", "n/a"]),
        ("memoryWords({ gib: 61.25, of: 80 }, true)", "61.3 of 80 GiB"),
        ("memoryWords({ gib: 61.25, of: 80 }, false)", "61/80"),
        ("memoryWords({ gib: 141.2, of: 288 }, false)", "141"),
        ("memoryWords({ gib: null, of: 80 }, true)", "n/a"),
        ("parts({ gib: 40, of: 80, roles: { actor: 20, other: 9 } }, { actor: 'update_actor' })", [["update_actor", 0.25], ["wire", 0.25]]),
        ("parts({ gib: 10, of: 80, roles: { actor: 20 } }, { actor: 'update_actor' })", [["update_actor", 0.25], ["wire", 0]]),
        ("parts({ gib: 40, of: 80, roles: { 'actor, critic': 20, '': 9 } }, { actor: 'a', critic: 'c' })", [["a", 0.25], ["wire", 0.25]]),
        (
            "memoryOf('actor', [{ roles: { 'actor, critic': 2 } }, { roles: { actor: 1, rollout: 9 } }, undefined])",
            "3.0 GiB in 2 processes, shared with critic",
        ),
        ("memoryOf('reward', [{ roles: { '': 2 } }])", "not told for this role"),
        ("parts({ gib: null, of: null, roles: {} }, {})", []),
        ("deviceWords('local:0', undefined, [])", "local:0: no sample yet; no role"),
        (
            "deviceWords('local:0', { busy: null, gib: 4, of: 8, why: 'n/a: MIG', facts: '90 W' }, ['actor'])",
            "local:0: busy n/a, memory 4.0 of 8 GiB, n/a: MIG, 90 W; actor",
        ),
    ],
)
def test_words_and_parts_of_a_head(expression: str, value: Any) -> None:
    assert logic(["machine.js", "topology.js"], expression) == value
