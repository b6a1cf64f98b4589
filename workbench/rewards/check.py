"""What a reward is, and what it may return.

A reward is any callable ``(prompt, completion, answer) -> float``, sync or async. It may also have

- ``score_rows(rows) -> list of floats``, sync or async, which is then called instead, for many (prompt, completion, answer) at once;
  ``chunk``, a number: for at most so many;
- ``prepare(device)``, called once in the process that scores, before the first row: "cpu" or "cuda";
- ``numbers() -> {name: number}``, what to note of the rows that were just scored;
- ``state_dict()`` and ``load_state_dict(state)``: a memory, which goes into checkpoints.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from math import isfinite
from numbers import Real
from typing import Any

from workbench.errors import ConfigError

Reward = Callable[[str, str, Any], float | Awaitable[float]]

_SHAPE = "def reward(prompt, completion, answer): ... return one number"
_TEXT_SHOWN = 80  # characters of a prompt, completion or value in an error


def check_reward(fn: object) -> Reward:
    """``fn``, if it can be called as ``fn(prompt, completion, answer)``, sync or async, and its optional members fit.

    A built-in without a readable signature is taken as it is. Raises ConfigError.
    """
    if not callable(fn):
        raise ConfigError(f"reward={shorten(fn)}", f"{type(fn).__name__} can't be called", f"give a function: {_SHAPE}")
    name = reward_name(fn)
    if isinstance(fn, type):
        raise ConfigError(f"reward {name}", "that is a class", f"give a function, or an object: {name}(...)")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise ConfigError(f"reward {name}", "it uses yield, so a call gives a generator and no number", f"use return: {_SHAPE}")
    if hasattr(fn, "state_dict") != hasattr(fn, "load_state_dict"):
        found = "it has one of state_dict and load_state_dict, so its memory can't go into a checkpoint and back"
        raise ConfigError(f"reward {name}", found, "give it both, or neither")
    _check_members(fn, name)
    try:
        signature = inspect.signature(fn)
    except ValueError:  # some built-ins have none
        return fn
    try:
        signature.bind("prompt", "completion", "answer")
    except TypeError as error:
        batched = {"prompts", "completions"} & set(signature.parameters)
        fix = "it is called once for each completion, not once for a batch" if batched else "it is called with three positional arguments"
        raise ConfigError(f"reward {name}{signature}", f"(prompt, completion, answer) does not fit: {error}", f"{fix}: {_SHAPE}") from None
    return fn


def _check_members(fn: object, name: str) -> None:
    """Raise ConfigError where an optional member can't be called as it will be."""
    for member, arguments in (("score_rows", ("rows",)), ("prepare", ("device",)), ("numbers", ())):
        given = getattr(fn, member, None)
        if given is None:
            continue
        try:
            inspect.signature(given).bind(*arguments)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"reward {name}.{member}", str(error), f"write def {member}({', '.join(('self', *arguments))})") from None
    chunk = getattr(fn, "chunk", None)
    if chunk is not None and not (isinstance(chunk, int) and chunk >= 1):
        raise ConfigError(f"reward {name}.chunk={chunk!r}", "it is the most rows that score_rows gets in a call", "give 1 or more, or None")


def as_number(value: object) -> float:
    """``value`` as a float: a number, a bool (0 or 1), or a numpy or torch scalar. Raises ValueError saying what to do otherwise."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if value is None:
        raise ValueError("return a number on every path; a `return` may be missing")
    if hasattr(value, "shape") or isinstance(value, list | tuple | dict | set):
        raise ValueError("return one number for the one completion, float(values.mean()) for example")
    if not isinstance(value, Real):
        raise ValueError(f"return a number; this is of type {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = float("inf")
    if not isfinite(number):
        raise ValueError("return a finite number for every completion; look at divisions, logarithms and means of nothing")
    return number


def reward_name(fn: object) -> str:
    """What to call ``fn`` in an error or a table."""
    if isinstance(fn, partial):
        return reward_name(fn.func)
    return getattr(fn, "__name__", type(fn).__name__)


def shorten(value: object) -> str:
    """The ``repr`` of ``value`` with its middle left out where it is long; on one line."""
    text = repr(value).replace("\n", " ")
    half = _TEXT_SHOWN // 2
    return text if len(text) <= _TEXT_SHOWN else f"{text[:half]} … {text[-half:]}"
