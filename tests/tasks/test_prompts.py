"""The split, and the two sources of prompts."""

from random import Random

import pytest

from workbench.errors import ConfigError
from workbench.tasks.prompts import Drawn, Listed, is_held_out


def test_the_split_is_by_the_text_alone() -> None:
    # SHA-256 of "a" begins ca978112 (0.79 of the range), of "b" 3e23e816 (0.24), of "hello" 2cf24dba (0.176)
    assert [is_held_out(text) for text in ("a", "b", "hello")] == [False, False, True]
    assert is_held_out("b", share=0.25)
    assert not is_held_out("b", share=0.24)


def test_a_fifth_is_held_out() -> None:
    assert sum(is_held_out(str(n)) for n in range(10_000)) == pytest.approx(2000, abs=120)  # three standard deviations


def test_drawn_prompts_keep_the_spread_on_both_sides() -> None:
    drawn = Drawn("numbers", lambda rng: (f"{rng.choices('ab', (3, 1))[0]}{rng.random()}", None))
    for prompts in ([drawn.train(0, n)[0] for n in range(2000)], [text for text, _ in drawn.held_out(2000)]):
        assert sum(text[0] == "a" for text in prompts) == pytest.approx(1500, abs=60)


def test_a_generator_of_one_prompt_has_one_side() -> None:
    always = Drawn("always", lambda rng: ("hello", 1))
    assert always.held_out(2) == [("hello", 1)] * 2
    with pytest.raises(ConfigError, match=r"a training prompt of task 'always': 1000 draws in a row, such as 'hello', fell"):
        always.train(0, 0)
    with pytest.raises(ConfigError, match=r"a held out prompt of task 'never'"):
        Drawn("never", lambda rng: ("a", 1)).held_out(1)


def test_a_draw_uses_only_its_own_chance() -> None:
    drawn = Drawn("numbers", lambda rng: (str(rng.random()), None))
    first = drawn.train(0, 5)
    Random(0).random()
    assert drawn.train(0, 5) == first != drawn.train(0, 6)


def test_a_list_is_gone_through_once_per_epoch() -> None:
    listed = Listed(tuple((str(n), n) for n in range(10)), (("kept", 0),))
    first, second = ([listed.train(1, position)[1] for position in range(start, start + 10)] for start in (0, 10))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second
    assert first != list(range(10))
    assert listed.held_out(5) == [("kept", 0)]
