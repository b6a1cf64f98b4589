"""What counts as a reward function, and as a reward."""

from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch

from workbench.errors import ConfigError
from workbench.rewards import check_reward, reward_name
from workbench.rewards.check import as_number, shorten


class Judge:
    def __call__(self, prompt, completion, answer):
        return 1.0

    def method(self, prompt, completion, answer):
        return 1.0


async def later(prompt, completion, answer):
    return 1.0


def weighted(weight, prompt, completion, answer, *, scale=1.0):
    return weight * scale


@pytest.mark.parametrize(
    "fn", [lambda p, c, a: 1, lambda *args: 1, lambda p, c, a=None, extra=2: 1, Judge(), Judge().method, later, partial(weighted, 0.5), max]
)
def test_functions_that_can_be_called(fn):
    assert check_reward(fn) is fn


def generator(prompt, completion, answer):
    yield 1.0


async def async_generator(prompt, completion, answer):
    yield 1.0


def two(prompt, completion):
    return 1.0


def needs_keyword(prompt, completion, answer, *, tokenizer):
    return 1.0


def batched(prompts, completions, **columns):
    return [1.0 for _ in completions]


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            two,
            r"reward two\(prompt, completion\): \(prompt, completion, answer\) does not fit: too many positional arguments\n  fix: .*three",
        ),
        (lambda: 1, r"reward <lambda>\(\)"),
        (lambda p, c, a, d: 1, r"missing a required argument: 'd'"),
        (needs_keyword, r"tokenizer"),
        (batched, r"\n  fix: it is called once for each completion, not once for a batch"),
        (Judge, r"reward Judge: that is a class\n  fix: give a function, or an object: Judge\(\.\.\.\)"),
        (generator, r"reward generator: it uses yield"),
        (async_generator, r"reward async_generator: it uses yield"),
        ("exact", r"reward='exact': str can't be called\n  fix: give a function: def reward\(prompt, completion, answer\)"),
        (None, r"reward=None: NoneType can't be called"),
    ],
)
def test_functions_that_cannot_be_called(fn, message):
    with pytest.raises(ConfigError, match=message):
        check_reward(fn)


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0),
        (-0.5, -0.5),
        (True, 1.0),
        (False, 0.0),
        (Fraction(1, 4), 0.25),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3.0),
        (np.bool_(True), 1.0),
        (np.array(2.0), 2.0),
        (torch.tensor(0.5), 0.5),
        (torch.tensor(0.5, dtype=torch.bfloat16, requires_grad=True), 0.5),
        (torch.tensor(True), 1.0),
    ],
)
def test_numbers(value, number):
    assert as_number(value) == number
    assert type(as_number(value)) is float


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "a `return` may be missing"),
        (float("nan"), "a finite number"),
        (float("-inf"), "a finite number"),
        (np.float64("nan"), "a finite number"),
        (torch.tensor(float("inf")), "a finite number"),
        (10**400, "a finite number"),
        ("1.0", "of type str"),
        (1j, "of type complex"),
        (Decimal("0.5"), "of type Decimal"),
        ([1.0], "one number for the one completion"),
        ({"score": 1.0}, "one number for the one completion"),
        (np.ones(1), "one number for the one completion"),
        (torch.ones(2), "one number for the one completion"),
    ],
)
def test_no_numbers(value, message):
    with pytest.raises(ValueError, match=message):
        as_number(value)


def test_names():
    assert [reward_name(f) for f in (later, Judge(), partial(partial(weighted, 1), scale=2))] == ["later", "Judge", "weighted"]


def test_long_values_are_shortened_in_the_middle():
    text = shorten("begin " + "x" * 500 + " end")
    assert len(text) < 90
    assert text.startswith("'begin x")
    assert text.endswith("x end'")
    assert shorten("a\nb") == r"'a\nb'"


def test_half_a_memory_is_refused():
    class Half:
        def __call__(self, prompt, completion, answer):
            return 0.0

        def state_dict(self):
            return {}

    with pytest.raises(ConfigError, match="one of state_dict and load_state_dict"):
        check_reward(Half())
