"""What fits the fields of a record, and what is told of what doesn't."""

import math
from dataclasses import asdict

import pytest

from tests.telemetry.runs import a_load
from workbench.fitting import fits, uneven, unlike
from workbench.records import KINDS, Load, Step, Traffic

NUMBERS = list[float | None]


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (1, float),
        (1.5, float),
        (math.nan, float),
        (3.0, int),
        (0, bool),
        (None, float | None),
        ([1, None], NUMBERS),
        ([], NUMBERS),
        ({"a": [1]}, dict[str, list[int]]),
    ],
)
def test_what_fits(value: object, hint: object) -> None:
    assert fits(value, hint)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        ("1", float),
        (1.5, int),
        (math.nan, int),
        (None, float),
        ([1, "x"], NUMBERS),
        ({"a": 1}, NUMBERS),
        ({"a": ["x"]}, dict[str, list[int]]),
        (1, str),
    ],
)
def test_what_does_not(value: object, hint: object) -> None:
    assert not fits(value, hint)


def test_a_field_of_another_kind_is_named() -> None:
    load = asdict(a_load(["local:0"]))
    assert unlike(Load, load) == ""
    assert unlike(Load, {**load, "busy": "x"}) == "busy is 'x'"
    assert unlike(Load, {**load, "devices": [None] * 40}) == "devices is a list"
    assert unlike(Load, {**load, "seconds": math.inf}) == "seconds is inf"
    assert unlike(Step, {"loss": math.nan}) == ""  # it diverged, and its record says so


def test_lists_by_device_have_a_value_for_each() -> None:
    assert uneven(a_load(["local:0", "local:1"])) == ""
    assert uneven(Load(**{**asdict(a_load(["local:0", "local:1"])), "watts": [1.0]})) == "watts has 1 values for 2 devices"
    assert uneven(Traffic(1, "send", "g", [["a", "b", "c"]] * 3, ["a"], [1], [2], [0.1], "host")) == ""


def test_every_kind_of_record_can_be_looked_at() -> None:
    assert {unlike(cls, {}) for cls in KINDS.values()} == {""}
