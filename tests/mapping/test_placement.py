"""One role's place, in all the ways in which people write it."""

from typing import Any

import pytest

from workbench.errors import ConfigError
from workbench.mapping.placement import Placement, parse, read


@pytest.mark.parametrize(
    ("text", "placement", "again"),
    [
        ("cpu", Placement(("cpu",)), "cpu"),
        ("0", Placement(("0",)), "0"),
        ("0-3", Placement(("0", "1", "2", "3")), "0-3"),
        ("0,2", Placement(("0", "2")), "0,2"),
        ("5,0-2", Placement(("0", "1", "2", "5")), "0-2,5"),
        ("9,10", Placement(("9", "10")), "9-10"),
        ("0-3 fsdp", Placement(("0", "1", "2", "3"), "fsdp"), "0-3 fsdp"),
        ("  0-1   tp=2 ", Placement(("0", "1"), "tp2"), "0-1 tp2"),
        ("0-1 tp1", Placement(("0", "1")), "0-1"),
        ("0-1 ddp", Placement(("0", "1")), "0-1"),
        ("share:actor", Placement(share="actor"), "share:actor"),
    ],
)
def test_compact_strings(text: str, placement: Placement, again: str) -> None:
    assert parse(text, "actor") == placement
    assert str(placement) == again
    assert parse(again, "actor") == placement


@pytest.mark.parametrize(
    ("value", "again"),
    [
        (0, "0"),
        ("0-3 tp2", "0-3 tp2"),
        ({"devices": "cpu"}, "cpu"),
        ({"devices": ["cpu"]}, "cpu"),
        ({"devices": 1}, "1"),
        ({"devices": "0-3"}, "0-3"),
        ({"devices": [0, 1, 2, 3], "layout": "fsdp"}, "0-3 fsdp"),
        ({"devices": [0, 1, 2, 3], "layout": "tp=4"}, "0-3 tp4"),
        ({"devices": [0, 1], "tp": 2}, "0-1 tp2"),
        ({"share": "actor"}, "share:actor"),
    ],
)
def test_values_of_a_file(value: Any, again: str) -> None:
    assert str(read(value, "actor")) == again


def test_two_engines_of_two_devices() -> None:
    assert parse("0-3 tp2", "rollout").tp == 2
    assert parse("0-3 fsdp", "actor").tp == 1


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", r"actor: that is no device\n  fix: write 'cpu', '0' for the first GPU"),
        ("cuda:0", "'cuda:0': that is no device"),
        ("node1:0-3", "'node1:0-3': that is no device"),
        ("cpu,0", "'cpu': that is no device"),
        ("3-1", "'3-1': that is no device"),
        ("0 fsdp tp2", "that is no device"),
        ("0,1,0-2", r"named twice\n  fix: name each once"),
        ("0-1 dp", r"'dp' is no layout\n  fix: write ddp"),
        ("0-1 tp0", "'tp0' is no layout"),
        ("0-2 tp2", r"groups of 2 can't be made of 3\n  fix: name a multiple of 2"),
        ("cpu tp2", "groups of 2 can't be made of 1"),
        ("0 fsdp", r"this is one\n  fix: leave the layout out"),
    ],
)
def test_what_is_no_placement(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        parse(text, "actor")


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        [0],
        {},
        {"device": 0},
        {"devices": 0, "layout": "tp2", "tp": 2},
        {"share": "actor", "devices": 0},
        {"devices": 0, "pp": 2},
    ],
)
def test_values_that_are_not_understood(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"map.yaml, actor: .* is not understood\n  fix: write {devices: cpu}"):
        read(value, "map.yaml, actor")
