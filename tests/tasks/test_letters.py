"""The demonstration's task."""

from collections import Counter
from math import factorial

import pytest

from workbench.errors import ConfigError
from workbench.tasks import sorting
from workbench.tasks.letters import LENGTHS


def letters(prompt: str) -> str:
    """What is to be sorted."""
    assert prompt.startswith("sort ")
    assert prompt.endswith("=")
    return prompt[5:-1]


def test_the_answer_is_the_letters_sorted() -> None:
    for example in [*sorting().train(0, 0, 300), *sorting().held_out(100)]:
        assert example.answer == "".join(sorted(letters(example.text)))
        assert len(set(example.answer)) == len(example.answer) in LENGTHS


def test_scores() -> None:
    scorer = sorting().scorer
    assert [scorer("sort dgab=", said, "abdg") for said in ("abdg", "abgd", "abd", "abdgg", "")] == [1, 0, 0, 0, 0]


def test_the_alphabet_says_the_order() -> None:
    task = sorting("zyx", {3: 1})
    assert {example.answer for example in task.train(0, 0, 50)} == {"zyx"}
    assert task.name == "sorting('zyx', {3: 1})"
    assert sorting().name == "sorting"


def test_lengths_follow_their_weights() -> None:
    for examples in (sorting().train(0, 0, 2200), sorting().held_out(2200)):
        counts = Counter(len(example.answer) for example in examples)
        for length, weight in LENGTHS.items():
            assert counts[length] == pytest.approx(200 * weight, abs=75)  # of 2200 = 200 * 11; three standard deviations


def test_demonstrations_prefer_no_order() -> None:
    pairs = sorting().demonstrations(0, 11_000)  # type: ignore[misc]
    for prompt, said in pairs:
        assert sorted(said) == sorted(letters(prompt))
    # A random order of n letters is sorted once in n!, and repeats the prompt's own order as often.
    expected = sum(weight / 11 / factorial(length) for length, weight in LENGTHS.items())
    assert expected == pytest.approx(0.281, abs=0.001)
    assert sum(said == "".join(sorted(said)) for _, said in pairs) / 11_000 == pytest.approx(expected, abs=0.013)
    assert sum(said == letters(prompt) for prompt, said in pairs) / 11_000 == pytest.approx(expected, abs=0.013)


def test_demonstrations_depend_on_their_seed_and_show_no_held_out_prompt() -> None:
    task = sorting()
    assert task.demonstrations is not None
    pairs = task.demonstrations(0, 2000)
    assert pairs == task.demonstrations(0, 2000) != task.demonstrations(1, 2000)
    assert not {prompt for prompt, _ in pairs} & {example.text for example in task.held_out(500)}
    assert task.held_out_temperature == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("abca", {2: 1}), r"sorting\(alphabet='abca'\): 'a' is there twice"),
        (("ab c", {2: 1}), "something else in it than letters and digits"),
        (("", {2: 1}), "something else in it than letters and digits"),
        (("abc", {}), "no length is given"),
        (("abc", {4: 1}), r"4 letters can't be drawn and sorted\n  fix: lengths go from 2 to 3, the alphabet's"),
        (("abc", {1: 1}), "1 letters can't be drawn"),
        (("abc", {2: 0}), "length 2 has the weight 0"),
        (("abc", {2: float("nan")}), "length 2 has the weight nan"),
    ],
)
def test_what_cannot_be_drawn(arguments: tuple[str, dict[int, float]], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sorting(*arguments)
