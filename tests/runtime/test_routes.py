"""Routes of maps, as a person reads them and as a team obeys them."""

from typing import Any

import pytest

from workbench.mapping import DeviceMap
from workbench.runtime.pools import Fan, machine_of, split
from workbench.runtime.routes import Route, Routes, routes

APART = {"actor": "0-3 fsdp", "rollout": "4-7 tp2", "reference": "8"}


def routes_of(written: dict[str, str], *, inline: bool = False) -> Routes:
    devices = DeviceMap(**written)
    return routes(split(devices, machine_of(devices, None)), inline=inline)


# phase, from, to, what, how
TEXTS = [
    (
        {},
        True,
        """
rollout       driver -> rollout    prompts                    stay
rollout       rollout -> driver    completions                stay
reference     driver -> reference  rows                       stay
reference     reference -> driver  log-probabilities          stay
update_actor  driver -> actor      rows and advantages        stay
update_actor  actor -> driver      statistics                 stay
sync          actor -> rollout     adapter                    stay""",
    ),
    (
        {"actor": "0-1"},
        False,
        """
rollout       driver -> rollout    prompts                    scatter to 2
rollout       rollout -> driver    completions                gather from 2
reference     driver -> reference  rows                       scatter to 2
reference     reference -> driver  log-probabilities          gather from 2
update_actor  driver -> actor      rows and advantages        scatter to 2
update_actor  actor -> driver      statistics                 gather from 2
sync          actor -> rollout     adapter                    stay""",
    ),
    (
        APART,
        False,
        """
rollout       driver -> rollout    prompts                    scatter to 2 x 2 ranks
rollout       rollout -> driver    completions                gather from 2 x 2 ranks
reference     driver -> reference  rows                       scatter to 1
reference     reference -> driver  log-probabilities          gather from 1
update_actor  driver -> actor      rows and advantages        scatter to 4
update_actor  actor -> driver      statistics                 gather from 4
sync          actor -> rollout     adapter                    broadcast""",
    ),
    (
        {"actor": "cpu:0-1", "rollout": "cpu:2", "reference": "cpu:3", "reward": "cpu:3"},
        False,
        """
rollout       driver -> rollout    prompts                    scatter to 1
rollout       rollout -> driver    completions                gather from 1
reward        driver -> reward     completions                scatter to 1
reward        reward -> driver     rewards                    gather from 1
reference     driver -> reference  rows                       scatter to 1
reference     reference -> driver  log-probabilities          gather from 1
update_actor  driver -> actor      rows and advantages        scatter to 2
update_actor  actor -> driver      statistics                 gather from 2
sync          actor -> rollout     adapter                    broadcast""",
    ),
    (
        {"actor": "0-3 tp2", "rollout": "0-3"},
        False,
        """
rollout       driver -> rollout    prompts                    scatter to 4
rollout       rollout -> driver    completions                gather from 4
reference     driver -> reference  rows                       scatter to 2 x 2 ranks
reference     reference -> driver  log-probabilities          gather from 2 x 2 ranks
update_actor  driver -> actor      rows and advantages        scatter to 2 x 2 ranks
update_actor  actor -> driver      statistics                 gather from 2 x 2 ranks
sync          actor -> rollout     adapter                    stay""",
    ),
]


@pytest.mark.parametrize(("written", "inline", "text"), TEXTS)
def test_routes_as_text(written: dict[str, Any], inline: bool, text: str) -> None:
    assert repr(routes_of(written, inline=inline)) == text.removeprefix("\n")


def test_routes_as_data() -> None:
    assert routes_of(APART) == (
        Route("rollout", "driver", "rollout", "prompts", "scatter", Fan(2, 2)),
        Route("rollout", "rollout", "driver", "completions", "gather", Fan(2, 2)),
        Route("reference", "driver", "reference", "rows", "scatter", Fan(1)),
        Route("reference", "reference", "driver", "log-probabilities", "gather", Fan(1)),
        Route("update_actor", "driver", "actor", "rows and advantages", "scatter", Fan(4)),
        Route("update_actor", "actor", "driver", "statistics", "gather", Fan(4)),
        Route("sync", "actor", "rollout", "adapter", "broadcast", Fan(2, 2)),
    )


def test_bytes_of_the_last_time_stand_at_the_end_and_what_was_not_yet_has_none() -> None:
    moved = {("rollout", "there"): 1234, ("rollout", "back"): 5_678_901, ("sync", "sync"): 42}
    found = routes_of(APART).with_bytes(moved)
    assert [route.bytes for route in found] == [1234, 5_678_901, None, None, None, None, 42]
    lines = repr(found).splitlines()
    assert lines[1] == "rollout       rollout -> driver    completions                gather from 2 x 2 ranks 5,678,901 bytes"
    assert lines[2] == "reference     driver -> reference  rows                       scatter to 1"
    assert lines[6] == "sync          actor -> rollout     adapter                    broadcast              42 bytes"


def test_no_workers_no_routes() -> None:
    assert repr(routes((), inline=False)) == "no routes: every role works in this process"


def test_a_service_is_asked_after_the_rollout() -> None:
    found = routes(split(DeviceMap(actor="0", rollout="1", reward="http://h:1")), inline=False).asking("http://h:1")
    assert [(route.phase, route.source, route.target, route.how) for route in found][1:4] == [
        ("rollout", "rollout", "driver", "gather"),
        ("reward", "driver", "http://h:1", "ask"),
        ("reward", "http://h:1", "driver", "ask"),
    ]
