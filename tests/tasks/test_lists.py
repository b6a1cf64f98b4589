"""A list of prompts and answers as a task."""

import pytest

from workbench.errors import ConfigError
from workbench.tasks import from_list
from workbench.tasks.prompts import is_held_out
from workbench.tasks.scorers import exact

PAIRS = [(f"q{n}", str(n)) for n in range(20)]


def test_pairs_and_mappings_are_the_same() -> None:
    mappings = [{"prompt": text, "answer": answer, "source": "ignored"} for text, answer in PAIRS]
    task, other = from_list(PAIRS, scorer=exact), from_list(iter(mappings), scorer="exact", name="list")
    assert task.train(0, 0, 30) == other.train(0, 0, 30)
    assert {e.text for e in task.held_out(20)} == {text for text, _ in PAIRS if is_held_out(text)}
    assert {e.text for e in task.train(0, 0, 40)} == {text for text, _ in PAIRS if not is_held_out(text)}


def test_the_scorer_is_the_one_given() -> None:
    task = from_list(PAIRS, scorer=lambda prompt, completion, answer: len(prompt) / 10, name="lengths", held_out=0.5)
    assert task.scorer("1234", "", None) == 0.4
    assert task.name == "lengths"
    assert len(task.held_out(20)) == sum(is_held_out(text, 0.5) for text, _ in PAIRS)


def test_demonstrations_are_passed_on() -> None:
    task = from_list(PAIRS, scorer="exact", demonstrations=lambda seed, count: [("q", "a")] * count)
    assert task.demonstrations is not None
    assert task.demonstrations(0, 2) == [("q", "a")] * 2


def test_a_scorer_has_to_be_given() -> None:
    with pytest.raises(
        ConfigError, match=r"task 'list': it has no scorer\n  fix: give scorer='exact' or 'numeric' or 'math', or a function"
    ):
        from_list(PAIRS)
    with pytest.raises(ConfigError, match="the named scorers are exact, numeric, math"):
        from_list(PAIRS, scorer="Exact match")


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("text", "item 1 of the list: 'text' is no pair"),
        (("a", "b", "c"), "is no pair"),
        (7, "7 is no pair"),
        ({"question": "a", "answer": 1}, r"it has 'question', 'answer', and no 'prompt'"),
        ({}, "it has no keys, and no 'answer' and no 'prompt'"),
        ((None, "b"), "its prompt is None"),
        (("", "b"), "its prompt is ''"),
    ],
)
def test_items_that_are_no_pairs(item: object, found: str) -> None:
    with pytest.raises(ConfigError, match=found):
        from_list([PAIRS[0], item, *PAIRS[1:]], scorer="exact")  # type: ignore[list-item]


def test_numeric_answers_are_numbers() -> None:
    from_list([(f"q{n}", f" 1,{n:03d}.5 ") for n in range(20)], scorer="numeric")
    with pytest.raises(ConfigError, match=r"scorer='numeric' for item 3 of the list: its answer 'four' is no number"):
        from_list([*PAIRS[:3], ("q", "four"), *PAIRS[3:]], scorer="numeric")


def test_too_few_to_split() -> None:
    with pytest.raises(ConfigError, match=r"from_list\(\[\]\): the list is empty"):
        from_list([], scorer="exact")
    # "a" and "b" are both in training: 0.79 and 0.24 of the hash's range
    with pytest.raises(
        ConfigError, match=r"task 'list': 2 different prompts, 0.2 of them held out: the split leaves 3 to train on and 0 held"
    ):
        from_list([("a", 1), ("b", 2), ("a", 3)], scorer="exact")
    assert [e.text for e in from_list([("a", 1), ("b", 2)], scorer="exact", held_out=0.5).held_out(9)] == ["b"]
    with pytest.raises(ConfigError, match="a share lies between 0 and 1"):
        from_list(PAIRS, scorer="exact", held_out=0)


def test_a_task_says_in_a_line_what_it_is():
    task = from_list([(f"q{n}", str(n)) for n in range(50)], scorer="exact", name="mine")
    assert repr(task).startswith("Task('mine', ")
    assert " prompts to train on and " in repr(task)
    assert repr(task).endswith("scored by exact)")


@pytest.mark.parametrize(
    ("changes", "match"),
    [({"held_out": "0.2"}, "that is a str"), ({"chat": "yes"}, "that is a str"), ({"system": 3, "chat": True}, "that is a int")],
)
def test_arguments_of_the_wrong_kind(changes, match):
    with pytest.raises(ConfigError, match=match):
        from_list([("a", "b")] * 9, scorer="exact", **changes)


def test_half_a_character_is_named():
    with pytest.raises(ConfigError, match="half a character"):
        from_list([("z\ud83d", "1")], scorer="exact")
