"""Nested settings as one level."""

from workbench.flat import flat


def test_flat() -> None:
    assert flat({}) == {}
    assert flat({"a": {"b": {"c": 1}, "d": [1, {"e": 2}]}, "f": None}) == {"a.b.c": 1, "a.d": [1, {"e": 2}], "f": None}
