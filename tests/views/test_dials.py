"""What a panel shows, as plain data: ladders, rows, words."""

import pytest

from workbench.errors import ConfigError
from workbench.records import Knob
from workbench.views.dials import Ladder, Value, counts, decades, even, exact, fitting, rows, table, turned_at, wanted
from workbench.views.tables import as_text


class Fixed:
    """Knobs that stand still: ``values``, of which ``used`` differ from what the last step used."""

    def __init__(self, values: dict[str, Value], used: dict[str, Value] | None = None) -> None:
        self.values = values
        self.pending = {name: (old, values[name]) for name, old in (used or {}).items()}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.values)

    def get(self, name: str) -> Value:
        return self.values[name]

    def set(self, **values: object) -> None:
        raise ConfigError("set", "these stand still", "read them")


def test_a_decade_has_ten_tidy_stops() -> None:
    assert decades(1e-4, 1e-3) == (1e-4, 1.2e-4, 1.5e-4, 2e-4, 2.5e-4, 3e-4, 4e-4, 5e-4, 6e-4, 8e-4, 1e-3)


def test_counts_are_those_one_would_write() -> None:
    assert counts(2, 32) == (2, 3, 4, 6, 8, 12, 16, 24, 32)
    assert counts(1, 6) == (1, 2, 3, 4, 6)


def test_even_stops_have_no_dust() -> None:
    assert even(0.1, 0.5, 0.1) == (0.1, 0.2, 0.3, 0.4, 0.5)


@pytest.mark.parametrize(
    ("name", "value", "low", "high"),
    [
        ("learning_rate", 1e-4, 4e-6, 3e-3),
        ("learning_rate", 1.0, 0.04, 30.0),
        ("temperature", 1.0, 0.1, 2.0),
        ("temperature", 0.03, 0.03, 2.0),  # a value beyond the usual ends is an end
        ("clip", 0.2, 0.01, 0.9),
        ("clip", 0.95, 0.01, 0.95),
        ("kl", 0.0, 0.0, 1.0),
        ("kl", 5.0, 0.0, 5.0),
        ("group_size", 16, 2, 64),
        ("prompts", 500, 1, 1536),
        ("prompts", 100_001, 1, 393_216),
        ("max_tokens", 32, 8, 256),
        ("max_tokens", 3, 3, 256),
        ("max_tokens", 4096, 8, 32768),
    ],
)
def test_a_ladder_holds_the_value(name: str, value: float, low: float, high: float) -> None:
    ladder = fitting((), name, value)
    assert (ladder[0], ladder[-1]) == (low, high)
    assert list(ladder) == sorted(set(ladder))
    assert len(ladder) <= 120


def test_ends_stay_while_the_value_is_between() -> None:
    ladder: Ladder = fitting((), "learning_rate", 1e-4)
    assert fitting(ladder, "learning_rate", 1e-3) is ladder
    assert fitting(ladder, "learning_rate", 1e-2)[-1] == 0.3


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-4, "1e-4"),
        (0.00012345678, "1.2345678e-4"),
        (3e-5, "3e-5"),
        (0.05, "0.05"),
        (1.0, "1"),
        (0, "0"),
        (0.0, "0"),
        (32, "32"),
        (100_001, "100001"),
        ((0.2, 0.28), "0.2, 0.28"),
    ],
)
def test_no_digit_is_lost(value: Value, text: str) -> None:
    assert exact(value) == text
    if not isinstance(value, tuple | list):
        assert float(text) == value


def test_a_row_says_what_is_in_use_and_when_a_change_acts() -> None:
    knobs = Fixed({"learning_rate": 3e-4, "temperature": 0.8, "prompts": 32}, {"learning_rate": 1e-4})
    rate, temperature, prompts = rows(knobs, {}, {"temperature": 12, "learning_rate": 14})
    assert (rate.text, rate.used, rate.mark) == ("3e-4", "1e-4", 1e-4)
    assert rate.note == "at the next step; now 1e-4"
    assert (temperature.note, temperature.mark) == ("in use since step 12", None)
    assert prompts.note == "in use"


def test_a_pair_is_two_rows() -> None:
    low, high = rows(Fixed({"clip": (0.2, 0.28)}, {"clip": 0.2}), {}, {})
    assert (low.key, low.label, low.note) == ("clip.0", "clip low", "in use")
    assert (high.key, high.value, high.note) == ("clip.1", 0.28, "at the next step; now 0.2")


def test_one_number_where_a_pair_is_in_use() -> None:
    (row,) = rows(Fixed({"clip": 0.3}, {"clip": [0.2, 0.28]}), {}, {})
    assert (row.key, row.mark, row.note) == ("clip", None, "at the next step; now 0.2, 0.28")


def test_what_was_entered_becomes_a_value() -> None:
    knobs = Fixed({"clip": (0.2, 0.28), "temperature": 0.7, "prompts": 8})
    assert wanted(knobs, "clip.1", 0.3) == ("clip", (0.2, 0.3))
    name, value = wanted(knobs, "temperature", 1)
    assert (name, value, type(value)) == ("temperature", 1.0, float)
    assert wanted(knobs, "prompts", 8.5) == ("prompts", 8.5)  # refused by the knobs, not rounded here
    assert wanted(knobs, "temperature", "warm") == ("temperature", "warm")


def test_turned_back_before_a_step_is_not_turned() -> None:
    turns = [Knob(5, "kl", 0.0, 0.1), Knob(9, "kl", 0.1, 0.2), Knob(9, "kl", 0.2, 0.1), Knob(9, "prompts", 8, 16)]
    assert turned_at(turns) == {"kl": 5, "prompts": 9}


def test_the_table_has_what_is_in_use_and_what_comes() -> None:
    knobs = Fixed({"learning_rate": 3e-4, "prompts": 32}, {"learning_rate": 1e-4})
    assert as_text(table(rows(knobs, {}, {"learning_rate": 13}), "paused")).splitlines() == [
        "Knobs · run paused",
        "  knob           in use  at the next step  changed at",
        "  learning_rate    1e-4              3e-4  step 13     before warm-up and decay",
        "  prompts            32                                a step",
    ]
